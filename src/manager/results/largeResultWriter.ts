import { applicationNames } from "../../shared/postgres/applicationNames.js";
import { disconnect, type Client } from "../../shared/postgres/client.js";
import { ConnectionWatchdog } from "../../shared/postgres/connectionWatchdog.js";
import { PgTaskError } from "../../shared/errors.js";
import { tooManyConnections } from "../../shared/postgres/sqlStates.js";
import type { Log } from "../../shared/log.js";
import type { RunResult } from "../../shared/ipc/run.js";
import type { WakeSignal } from "../../shared/wakeSignal.js";
import type { PendingResults } from "./pendingResults.js";
import type { OwnedResult } from "../model/tasks.js";

export type WriteResult = (client: Client, result: OwnedResult) => Promise<void>;

/** How long a write may stay unanswered before its connection is checked, in ms: a base, and more for each MB. */
const quietMs = { base: 2_000, perMb: 1_000 };

interface LargeResultWriterOptions {
  readonly pendingResults: PendingResults;
  readonly connect: (signal: AbortSignal) => Promise<Client>;
  /** Notified after each result. */
  readonly wakeSignal: WakeSignal;
  /** Lets the executor threads send the next large results. */
  readonly onAllWritten: () => void;
  readonly log: Log;
}

/**
 * Writes results with large outputs, one at a time, while the manager's cycles and all other tasks go on: over a separate
 * connection, or over the manager's own if the server has none left.
 */
export class LargeResultWriter {
  readonly #options: LargeResultWriterOptions;
  /** Whether large results have been received since the last call of `onAllWritten`. */
  #isUnacknowledged = false;
  #working: Promise<void> | null = null;
  #stopping = new AbortController();

  constructor(options: LargeResultWriterOptions) {
    this.#options = options;
  }

  /** Notes whether a thread has sent a large result, and waits for `acknowledge` before it sends the next. */
  receive([first]: readonly RunResult[]): void {
    this.#isUnacknowledged ||= first?.outcome === "ended" && first.largeOutput !== undefined;
  }

  /** Lets the executor threads send more large results once all large results received so far are written. */
  acknowledge(): void {
    if (!this.#isUnacknowledged || this.#options.pendingResults.largeCount > 0) return;
    this.#isUnacknowledged = false;
    this.#options.onAllWritten();
  }

  /** Starts writing, unless that is under way. */
  start(managerClient: Client, write: WriteResult): void {
    if (this.#working !== null || this.#options.pendingResults.largeCount === 0) return;
    this.#working = this.#writeAll(managerClient, write).finally(() => (this.#working = null));
  }

  /** Aborts the current write. When the promise resolves, the result of that write is pending again. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#working;
    this.#stopping = new AbortController();
  }

  async #writeAll(managerClient: Client, write: WriteResult): Promise<void> {
    const { signal } = this.#stopping;
    let client: Client | null = null;
    let clientInUse: Client | null = null;
    const abort = (): void => void clientInUse?.connection.stream.destroy();
    signal.addEventListener("abort", abort);
    try {
      for (;;) {
        const result = signal.aborted ? null : this.#options.pendingResults.takeLarge();
        if (result === null) break;
        const opened: Client | "full" | null = client ?? (await this.#open(result, signal));
        if (opened === null) break;
        if (opened !== "full") client = opened;
        clientInUse = client ?? managerClient;
        const watchdog = client === null ? null : watch(client, result);
        await this.#write(clientInUse, result, write);
        watchdog?.stop();
        clientInUse = client;
      }
    } finally {
      signal.removeEventListener("abort", abort);
      if (client !== null) await disconnect(client);
    }
  }

  /** Opens the connection. Returns null if the result has to wait, "full" if the server has no connection left. */
  async #open(first: OwnedResult, signal: AbortSignal): Promise<Client | "full" | null> {
    try {
      return await this.#options.connect(signal);
    } catch (error) {
      const isFull = error instanceof PgTaskError && error.sqlState === tooManyConnections;
      if (isFull && !signal.aborted) return "full";
      this.#options.log.debug({ id: first.id, err: error }, "large result deferred, no connection");
      this.#options.pendingResults.settleLarge();
      this.#options.pendingResults.requeue([first]);
      return null;
    }
  }

  async #write(client: Client, result: OwnedResult, write: WriteResult): Promise<void> {
    try {
      await write(client, result);
    } catch (error) {
      this.#options.log.debug({ id: result.id, err: error }, "large result deferred");
    } finally {
      this.#options.pendingResults.settleLarge();
      this.acknowledge();
      this.#options.wakeSignal.notify();
    }
  }
}

/** While the output is being sent, the server neither answers nor does anything. */
const watch = (client: Client, { largeOutput }: OwnedResult): ConnectionWatchdog =>
  new ConnectionWatchdog(client, {
    name: applicationNames.managerWatch,
    quietMs: quietMs.base + quietMs.perMb * Math.ceil((largeOutput?.length ?? 0) / (1 << 20)),
  });
