import { EventEmitter } from "eventemitter3";
import { networkId } from "../shared/networkId.js";
import type { SharedPorts } from "../shared/sharedPorts.js";

const messagePattern = /^(wanted|freed|asked|used) ([\da-f]+) (\d{1,5})$/;

type PortMessage = "wanted" | "freed" | "asked" | "used";

const isMessage = (text: string | undefined): text is PortMessage =>
  text === "wanted" || text === "freed" || text === "asked" || text === "used";

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

  request(port: number): void {
    this.#notify(`wanted ${this.#network} ${port}`);
  }

  announceFreed(port: number): void {
    this.#notify(`freed ${this.#network} ${port}`);
  }

  ask(port: number): void {
    this.#notify(`asked ${this.#network} ${port}`);
  }

  announceUsed(port: number): void {
    this.#notify(`used ${this.#network} ${port}`);
  }

  receive(payload: string): void {
    const [, message, network, port] = messagePattern.exec(payload) ?? [];
    if (network === this.#network && isMessage(message)) this.emit(message, Number(port));
  }
}
