import type { Log } from "../shared/log.js";
import { toReport, PgTaskError, type ErrorReport } from "../shared/errors.js";
import type { BackendIdentity, ExecutorParameters, Run, RunResult } from "../shared/messages.js";
import type { Connector, OpenConnection } from "./connection.js";
import { RemoteExecution } from "./remote/remoteRun.js";
import { Execution } from "./run.js";

/** What a session tells its executor; `unopened`, `lost` or `closed` is the last. */
export interface SessionEvents {
  opened(backend: BackendIdentity): void;
  unopened(reason: ErrorReport): void;
  result(result: RunResult): void;
  /** Please cancel what the backend runs, and answer with `cancelled`. */
  cancel(id: string): void;
  /** A remote task runs in this process of its own server. */
  remote(id: string, pid: number): void;
  lost(reason: ErrorReport): void;
  closed(): void;
}

/**
 * One connection that runs what it is given, one after another.
 *
 *     opening ──▶ open ──close──▶ closing ──▶ gone
 *        └─────────┴─ connection lost, stop ───▶ gone
 */
export class Session {
  readonly #id: number;
  readonly #parameters: ExecutorParameters;
  readonly #events: SessionEvents;
  readonly #log: Log;
  #state: "opening" | "open" | "closing" | "gone" = "opening";
  readonly #queue: Run[] = [];
  #connection: OpenConnection | null = null;
  #execution: Execution | RemoteExecution | null = null;
  #wake: () => void = () => {};
  readonly #ended: Promise<void>;

  /** @param id the manager's number for it */
  constructor(
    id: number,
    parameters: ExecutorParameters,
    connector: Connector,
    events: SessionEvents,
    log: Log,
  ) {
    this.#log = log;
    this.#id = id;
    this.#parameters = parameters;
    this.#events = events;
    this.#ended = this.#live(connector);
  }

  /** Queues a run. False when the session takes no more: then nothing happens. */
  dispatch(run: Run): boolean {
    if (this.#state === "closing" || this.#state === "gone") return false;
    this.#queue.push(run);
    this.#wake();
    return true;
  }

  /** Cancels a run that is not wanted any more; without effect when it has come out. */
  cancel(id: string): void {
    if (this.#execution?.id === id) this.#execution.stop();
    else this.#returnQueue((run) => run.id === id);
  }

  /** Returns what waits. */
  recall(): void {
    this.#returnQueue();
  }

  /** The manager's answer to `cancel`; without effect when that run has come out. */
  cancelled(id: string): void {
    if (this.#execution?.id === id) this.#execution.cancelled();
  }

  /** Ends the session once what was dispatched to it has come out. */
  close(): void {
    if (this.#state === "opening" || this.#state === "open") this.#state = "closing";
    this.#wake();
  }

  /** Returns what waits, and cancels what runs. */
  abort(): void {
    this.#returnQueue();
    this.#execution?.abort();
  }

  /** Ends the session at once; a run in the middle is lost. Resolves when the connection is closed. */
  async stop(): Promise<void> {
    this.#returnQueue();
    if (this.#state === "opening") {
      this.#state = "gone";
      this.#events.unopened(toReport(stopped("while it was being opened")));
      return;
    }
    this.close();
    if (this.#execution !== null) {
      this.#connection?.wire.destroy(stopped("in the middle of a run"));
    }
    await this.#ended;
  }

  async #live(connector: Connector): Promise<void> {
    let connection: OpenConnection;
    try {
      connection = await connector.open();
    } catch (error) {
      this.#failOpening(error);
      return;
    }
    if (this.#state === "gone") return await connection.wire.close();
    this.#connection = connection;
    if (this.#state === "opening") this.#state = "open";
    this.#events.opened(connection.backend);
    const loss = await this.#work(connection);
    this.#state = "gone";
    await this.#disconnect(connection, loss);
  }

  #failOpening(error: unknown): void {
    if (this.#state === "gone") return;
    this.#state = "gone";
    this.#returnQueue();
    this.#events.unopened(toReport(error));
  }

  async #disconnect({ wire }: OpenConnection, loss: PgTaskError | null): Promise<void> {
    if (loss === null) {
      await wire.close();
      this.#events.closed();
      return;
    }
    wire.destroy(loss);
    await wire.ended;
    this.#events.lost(toReport(loss));
  }

  /** Runs what comes; resolves with the reason when the connection is lost, with null when told to close. */
  async #work(connection: OpenConnection): Promise<PgTaskError | null> {
    let loss: PgTaskError | null = null as PgTaskError | null;
    const notice = (reason: PgTaskError) => {
      loss = reason;
      this.#wake();
    };
    void connection.wire.ended.then(notice);
    while (loss === null) {
      const run = this.#queue.shift();
      if (run !== undefined) {
        const failure = await this.#execute(connection, run);
        loss ??= failure;
      } else if (this.#state === "closing") return null;
      else await new Promise<void>((resolve) => (this.#wake = resolve));
    }
    return loss;
  }

  async #execute(connection: OpenConnection, run: Run): Promise<PgTaskError | null> {
    this.#execution = this.#prepare(connection, run);
    try {
      const { result, loss } = await this.#execution.execute();
      this.#events.result(result);
      return loss;
    } catch (error) {
      return error instanceof PgTaskError ? error : internal(error);
    } finally {
      this.#execution = null;
    }
  }

  #prepare(home: OpenConnection, run: Run): Execution | RemoteExecution {
    const { schema, table, outputLimit, target: own, superuser, resetMs } = this.#parameters;
    if (run.remote === null) {
      const { wire } = home;
      const cancel = () => this.#events.cancel(run.id);
      return new Execution(run, { wire, schema, table, outputLimit, cancel });
    }
    const runsIn = (pid: number) => this.#events.remote(run.id, pid);
    const place = { home, own, superuser, schema, table, outputLimit, resetMs, runsIn };
    return new RemoteExecution(run, run.remote, { ...place, log: this.#log });
  }

  #returnQueue(wanted: (run: Run) => boolean = () => true): void {
    for (const run of this.#queue.splice(0)) {
      if (wanted(run)) this.#events.result({ outcome: "returned", session: this.#id, id: run.id });
      else this.#queue.push(run);
    }
  }
}

function internal(error: unknown): PgTaskError {
  return new PgTaskError("INTERNAL", toReport(error).message, { cause: error });
}

function stopped(when: string): PgTaskError {
  return new PgTaskError("CONNECTION_LOST", `the session was stopped ${when}`);
}
