import { EventEmitter } from "eventemitter3";
import { networkId } from "../shared/networkId.js";
import type { PortMessage, SharedPorts } from "../shared/sharedPorts.js";

const messages: readonly PortMessage[] = ["wanted", "freed", "asked", "used"];

const messagePattern = new RegExp(String.raw`^(${messages.join("|")}) ([\da-f]+) (\d{1,5})$`);

export const isPortMessage = (payload: string): boolean => messagePattern.test(payload);

/**
 * Asks for ports and about them, and frees them, by NOTIFY on the channel of the cluster. A message names the network
 * of its sender, because the port of another machine or container is another port.
 *
 *   leader: port in use ──wanted──▶ standby closes its server ──freed──▶ leader listens
 *   standby: port in use ──asked──▶ leader listens on it ──used──▶ standby waits
 */
export class PortRequests extends EventEmitter<Record<PortMessage, [port: number]>> implements SharedPorts {
  readonly #notify: (payload: string) => void;
  readonly #network: string;

  /** @param notify sends a payload to the processes of the cluster */
  constructor(notify: (payload: string) => void, network = networkId()) {
    super();
    this.#notify = notify;
    this.#network = network;
  }

  tell(message: PortMessage, port: number): void {
    this.#notify(`${message} ${this.#network} ${port}`);
  }

  receive(payload: string): void {
    const [, text, network, port] = messagePattern.exec(payload) ?? [];
    const message = messages.find((each) => each === text);
    if (network === this.#network && message !== undefined) this.emit(message, Number(port));
  }
}
