import type { Client } from "./client.js";
import { identifier } from "./quoting.js";

const question = "ask";
const answer = "here";

/**
 * Asks the processes that listen on a channel whether they are alive, and answers for this one. A suspended process
 * does not answer, although its kernel keeps its connections open.
 */
export class RollCall {
  readonly #client: Client;
  readonly #channel: string;
  readonly #isPresent: () => boolean;
  readonly #answered: (pid: number) => void;

  /** @param options.answered receives the pid of the backend of each process that has answered */
  private constructor(
    client: Client,
    channel: string,
    options: { readonly isPresent: () => boolean; readonly answered: (pid: number) => void },
  ) {
    this.#client = client;
    this.#channel = channel;
    this.#isPresent = options.isPresent;
    this.#answered = options.answered;
  }

  /** Starts to listen on the channel, until the connection ends. */
  static async open(
    client: Client,
    channel: string,
    options: { readonly isPresent: () => boolean; readonly answered: (pid: number) => void },
  ): Promise<RollCall> {
    const rollCall = new RollCall(client, channel, options);
    client.on("notification", ({ channel: from, payload = "", processId }) => {
      if (from === channel) rollCall.#receive(payload, processId);
    });
    await client.query(`LISTEN ${identifier(channel)}`);
    return rollCall;
  }

  async ask(): Promise<void> {
    await this.#notify(question);
  }

  #receive(payload: string, pid: number): void {
    // The server sends a process its own notifications as well.
    if ("processID" in this.#client && this.#client.processID === pid) return;
    if (payload === answer) this.#answered(pid);
    // If the answer cannot be sent, the connection has ended.
    if (payload === question && this.#isPresent()) this.#notify(answer).catch(() => {});
  }

  /** It changes nothing, so its commit need not wait for the disk or for replicas. */
  async #notify(payload: string): Promise<void> {
    await this.#client.query(
      "SELECT pg_catalog.set_config('synchronous_commit', 'off', true), pg_catalog.pg_notify($1, $2)",
      [this.#channel, payload],
    );
  }
}

export const isRollCall = (payload: string | undefined): boolean => payload === question || payload === answer;
