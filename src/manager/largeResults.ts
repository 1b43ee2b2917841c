import { disconnect, type Client } from "../shared/database.js";
import type { Log } from "../shared/log.js";
import type { Outbox } from "./outbox.js";
import type { OwnedResult } from "./sql/complete.js";

/** Writes one result, or puts it into the outbox again. */
export type WriteOne = (client: Client, result: OwnedResult) => Promise<void>;

/**
 * Writes results with large outputs, one at a time, over a connection of its own: the turns, and with
 * them all other tasks, go on meanwhile. The connection is there only while there are such results.
 */
export class LargeResults {
  readonly #outbox: Outbox;
  readonly #connect: (signal: AbortSignal) => Promise<Client>;
  readonly #written: () => void;
  readonly #log: Log;
  #working: Promise<void> | null = null;
  #ending = new AbortController();

  constructor(options: {
    readonly outbox: Outbox;
    readonly connect: (signal: AbortSignal) => Promise<Client>;
    /** One was written, or has to wait. */
    readonly written: () => void;
    readonly log: Log;
  }) {
    this.#outbox = options.outbox;
    this.#connect = options.connect;
    this.#written = options.written;
    this.#log = options.log;
  }

  /** Writes what there is; without effect while that is under way. */
  start(write: WriteOne): void {
    if (this.#working !== null || this.#outbox.large === 0) return;
    this.#working = this.#work(write).finally(() => (this.#working = null));
  }

  /** Gives up what is under way, which is in the outbox again when it resolves. */
  async stop(): Promise<void> {
    this.#ending.abort();
    await this.#working;
    this.#ending = new AbortController();
  }

  async #work(write: WriteOne): Promise<void> {
    const { signal } = this.#ending;
    let client: Client | null = null;
    const giveUp = (): void => void client?.connection.stream.destroy();
    signal.addEventListener("abort", giveUp);
    try {
      for (;;) {
        const result = signal.aborted ? null : this.#outbox.takeLarge();
        if (result === null) break;
        client ??= await this.#open(result, signal);
        if (client === null) break;
        await this.#write(client, result, write);
      }
    } finally {
      signal.removeEventListener("abort", giveUp);
      if (client !== null) await disconnect(client);
    }
  }

  async #open(first: OwnedResult, signal: AbortSignal): Promise<Client | null> {
    try {
      return await this.#connect(signal);
    } catch (error) {
      this.#log.debug({ id: first.id, err: error }, "no connection for a large output, it waits");
      this.#outbox.settleLarge();
      this.#outbox.putBack([first], []);
      return null;
    }
  }

  async #write(client: Client, result: OwnedResult, write: WriteOne): Promise<void> {
    try {
      await write(client, result);
    } catch (error) {
      this.#log.debug({ id: result.id, err: error }, "large output waits");
    } finally {
      this.#outbox.settleLarge();
      this.#written();
    }
  }
}
