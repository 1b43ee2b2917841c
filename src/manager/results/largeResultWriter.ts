import { disconnect, sqlState, type Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import type { RunResult } from "../../shared/ipc/messages.js";
import type { PendingResults } from "./pendingResults.js";
import type { OwnedResult } from "./completeFull.sql.js";

/** Writes one result, or puts it into the outbox again. */
export type WriteOne = (client: Client, result: OwnedResult) => Promise<void>;

/** How long a write may take without a word before its connection is looked after, in ms: some, and for each MB. */
const quietMs = { first: 2_000, each: 1_000 };

/** SQLSTATE of a server that has no connection left, or none for this role or database. */
const tooManyConnections = "53300";

/**
 * Writes results with large outputs, one at a time, over a connection of its own: the turns, and with
 * them all other tasks, go on meanwhile. The connection is there only while there are such results.
 * Where the server has none left for it the turns have to wait for theirs.
 */
export class LargeResultWriter {
  readonly #outbox: PendingResults;
  readonly #connect: (signal: AbortSignal) => Promise<Client>;
  readonly #watch: (client: Client, quietMs: number) => { stop(): void };
  readonly #written: () => void;
  readonly #more: () => void;
  readonly #log: Log;
  /** Whether some came of which it was not said yet that they are written. */
  #owing = false;
  #working: Promise<void> | null = null;
  #ending = new AbortController();

  constructor(options: {
    readonly outbox: PendingResults;
    readonly connect: (signal: AbortSignal) => Promise<Client>;
    /** Ends the connection when the network has swallowed it. */
    readonly watch: (client: Client, quietMs: number) => { stop(): void };
    /** One was written, or has to wait. */
    readonly written: () => void;
    /** All are written: executor threads may have more of them handed over. */
    readonly more: () => void;
    readonly log: Log;
  }) {
    this.#outbox = options.outbox;
    this.#connect = options.connect;
    this.#watch = options.watch;
    this.#written = options.written;
    this.#more = options.more;
    this.#log = options.log;
  }

  /** These came of an executor thread. */
  received([first]: readonly RunResult[]): void {
    this.#owing ||= first?.outcome === "ended" && first.large !== undefined;
  }

  /** Asks for more when all that came are written. */
  ask(): void {
    if (!this.#owing || this.#outbox.large > 0) return;
    this.#owing = false;
    this.#more();
  }

  /**
   * Writes what there is; without effect while that is under way.
   *
   * @param turns the turns' own connection.
   */
  start(turns: Client, write: WriteOne): void {
    if (this.#working !== null || this.#outbox.large === 0) return;
    this.#working = this.#work(turns, write).finally(() => (this.#working = null));
  }

  /** Gives up what is under way, which is in the outbox again when it resolves. */
  async stop(): Promise<void> {
    this.#ending.abort();
    await this.#working;
    this.#ending = new AbortController();
  }

  async #work(turns: Client, write: WriteOne): Promise<void> {
    const { signal } = this.#ending;
    let client: Client | null = null;
    let used: Client | null = null;
    const giveUp = (): void => void used?.connection.stream.destroy();
    signal.addEventListener("abort", giveUp);
    try {
      for (;;) {
        const result = signal.aborted ? null : this.#outbox.takeLarge();
        if (result === null) break;
        const opened: Client | "full" | null = client ?? (await this.#open(result, signal));
        if (opened === null) break;
        if (opened !== "full") client = opened;
        used = client ?? turns;
        const watch = client === null ? null : this.#watch(client, mostQuietMs(result));
        await this.#write(used, result, write);
        watch?.stop();
        used = client;
      }
    } finally {
      signal.removeEventListener("abort", giveUp);
      if (client !== null) await disconnect(client);
    }
  }

  /** Null when the result has to wait, "full" when the server has no connection left. */
  async #open(first: OwnedResult, signal: AbortSignal): Promise<Client | "full" | null> {
    try {
      return await this.#connect(signal);
    } catch (error) {
      const cause = error instanceof Error ? error.cause : null;
      if (sqlState(cause) === tooManyConnections && !signal.aborted) return "full";
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

/** On its way to the server nothing is heard of it, and the server does nothing. */
function mostQuietMs({ large }: OwnedResult): number {
  return quietMs.first + quietMs.each * Math.ceil((large?.length ?? 0) / (1 << 20));
}
