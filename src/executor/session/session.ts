import { toReport, PgTaskError, type ErrorReport } from "../../shared/errors.js";
import type {
  BackendIdentity,
  ExecutorParameters,
  Run,
  SentRun,
  SessionRuns,
} from "../../shared/ipc/messages.js";
import type { OpenConnection } from "./connector.js";
import { Pipeline } from "./pipeline.js";
import type { ForwardingLog } from "../forwardingLog.js";
import type { ConnectionPermits } from "../remote/managerServerLimit.js";
import { RemoteExecution } from "../remote/remoteExecution.js";
import { RemoteSessionCache } from "../remote/remoteSession.js";
import { Execution, type OutgoingResult } from "../run/execution.js";
import { SettingsText } from "../run/sessionSql.js";

/** What a session tells its executor; `unopened`, `lost` or `closed` is the last. */
export interface ExecutorSessionEvents {
  opened(backend: BackendIdentity): void;
  unopened(reason: ErrorReport): void;
  result(result: OutgoingResult): void;
  /** Please cancel what the backend runs, and answer with `cancelled`. */
  cancel(id: string): void;
  /** A run that waited behind another has been under way for a while. */
  started(id: string, start: string): void;
  /** A remote task runs in this process of its own server, which its row does not say. */
  remote(id: string, pid: number): void;
  /** Nothing came of the server for so long, though an answer is awaited. */
  silent(ms: number): void;
  lost(reason: ErrorReport): void;
  closed(): void;
}

/** A run that waited behind another is told of when it has been under way for so long. */
const startedMs = 50;

type Work = Execution | RemoteExecution;

/** What is under way and has waited, and since when. */
interface Late {
  readonly id: string;
  readonly start: string;
  readonly sinceMs: number;
}

/**
 * One connection that runs what it is given, one after another.
 *
 *     opening ──▶ open ──close──▶ closing ──▶ gone
 *        └─────────┴─ connection lost, stop ───▶ gone
 */
export class ExecutorSession {
  readonly #id: number;
  readonly #parameters: ExecutorParameters;
  readonly #events: ExecutorSessionEvents;
  readonly #log: ForwardingLog;
  readonly #desk: ConnectionPermits;
  #state: "opening" | "open" | "closing" | "gone" = "opening";
  /** Given while the session was being opened. */
  #early: Run[] = [];
  /** Given and not on the wire yet. */
  #queue: Work[] = [];
  #connection: OpenConnection | null = null;
  #lane: Pipeline | null = null;
  #remote: { readonly execution: RemoteExecution; readonly over: Promise<void> } | null = null;
  readonly #kept = new RemoteSessionCache();
  readonly #settings: SettingsText;
  #permit: number | null = null;
  #late: Late | null = null;
  #lateTimer: NodeJS.Timeout | undefined;
  /** Whether something is left of a run: what waits goes back, until the manager closes the session. */
  #spoiled = false;
  #end: (loss: PgTaskError | null) => void = () => {};
  readonly #ended: Promise<void>;

  /** @param id the manager's number for it */
  constructor(
    id: number,
    parameters: ExecutorParameters,
    connect: () => Promise<OpenConnection>,
    events: ExecutorSessionEvents,
    shared: { readonly log: ForwardingLog; readonly desk: ConnectionPermits },
  ) {
    this.#log = shared.log;
    this.#desk = shared.desk;
    this.#id = id;
    this.#parameters = parameters;
    this.#settings = new SettingsText(parameters);
    this.#events = events;
    this.#ended = this.#live(connect);
  }

  /** Whether it has nothing to do. */
  get idle(): boolean {
    return this.#queue.length === 0 && this.#early.length === 0 && this.#underWay().length === 0;
  }

  /** Queues a run. False when the session takes no more: then nothing happens. */
  dispatch(run: Run): boolean {
    if (this.#state === "closing" || this.#state === "gone") return false;
    if (this.#connection === null) this.#early.push(run);
    else this.#add(this.#connection, run);
    if (this.#spoiled) this.#returnWaiting();
    return true;
  }

  /** Cancels a run that is not wanted any more; without effect when it has come out. */
  cancel(id: string): void {
    if (this.#returnWaiting((run) => run.id === id)) return;
    for (const work of this.#underWay()) if (work.id === id) work.stop();
  }

  /** The manager's answer to `cancel`; without effect when that run has come out. */
  cancelled(id: string): void {
    for (const work of this.#underWay()) if (work.id === id) work.cancelled();
  }

  /** Runs are sent behind others under this permit from now on, with null not at all. */
  permit(permit: number | null): void {
    this.#permit = permit;
    if (this.#lane !== null) this.#lane.permit = permit;
    this.#pump();
  }

  /**
   * Returns those of these runs that are not on the wire, and marks the others, so that they come back if
   * the server does not run them; nothing more is sent behind others without another permit.
   *
   * @returns what is on the wire, null when they wait behind a run that has come out.
   */
  recall({ ids, behind }: SessionRuns): SentRun[] | null {
    if (behind !== null && this.#underWay()[0]?.id !== behind) return null;
    this.permit(null);
    this.#returnWaiting(({ id }) => ids.includes(id));
    return this.#lane?.recall(ids) ?? [];
  }

  /** Ends the session once what was dispatched to it has come out. */
  close(): void {
    if (this.#state === "opening" || this.#state === "open") this.#state = "closing";
    this.#pump();
  }

  /** Tells for how long nothing has come of the server, if it has something to run. */
  async listen(): Promise<void> {
    const ms = (await this.#connection?.wire.silentMs()) ?? 0;
    if (ms > 0 && this.#underWay().length > 0) this.#events.silent(ms);
  }

  /** Returns what waits, and cancels what runs. */
  abort(): void {
    this.#returnWaiting();
    for (const work of this.#underWay()) work.abort();
  }

  /** Ends the session at once; a run in the middle is lost. Resolves when the connection is closed. */
  async stop(): Promise<void> {
    this.#returnWaiting();
    if (this.#state === "opening") {
      this.#state = "gone";
      this.#events.unopened(toReport(stopped("while it was being opened")));
      return;
    }
    this.close();
    if (this.#underWay().length > 0) {
      this.#connection?.wire.destroy(stopped("in the middle of a run"));
    }
    await this.#ended;
  }

  async #live(connect: () => Promise<OpenConnection>): Promise<void> {
    let connection: OpenConnection;
    try {
      connection = await connect();
    } catch (error) {
      this.#failOpening(error);
      return;
    }
    if (this.#state === "gone") return await connection.wire.close();
    const loss = await this.#work(connection);
    this.#state = "gone";
    clearTimeout(this.#lateTimer);
    await this.#disconnect(connection, loss);
  }

  #failOpening(error: unknown): void {
    if (this.#state === "gone") return;
    this.#state = "gone";
    this.#returnWaiting();
    this.#events.unopened(toReport(error));
  }

  async #disconnect({ wire }: OpenConnection, loss: PgTaskError | null): Promise<void> {
    if (loss === null) {
      await Promise.all([wire.close(), this.#kept.end()]);
      this.#events.closed();
      return;
    }
    wire.destroy(loss);
    await wire.ended;
    this.#remote?.execution.forsake();
    await Promise.all([this.#lane?.lose(loss), this.#remote?.over]);
    await this.#kept.end();
    this.#returnWaiting();
    this.#events.lost(toReport(loss));
  }

  /** Runs what comes; resolves with the reason when the connection is lost, with null when told to close. */
  async #work(connection: OpenConnection): Promise<PgTaskError | null> {
    const end = new Promise<PgTaskError | null>((resolve) => (this.#end = resolve));
    void connection.wire.ended.then(this.#end);
    this.#connection = connection;
    this.#lane = new Pipeline(connection.wire, {
      out: (execution, { result }) => this.#out(execution, result),
      lost: (execution) => execution.drop(),
      again: (execution) => this.#queue.unshift(execution),
      begun: (execution) => this.#begun(execution, execution.start),
      changed: () => this.#pump(),
    });
    this.#lane.permit = this.#permit;
    if (this.#state === "opening") this.#state = "open";
    this.#events.opened(connection.backend);
    for (const run of this.#early.splice(0)) this.#add(connection, run);
    this.#pump();
    return await end;
  }

  #add(connection: OpenConnection, run: Run): void {
    const work = this.#prepare(connection, run);
    work.waited = this.#queue.length > 0 || this.#remote !== null || this.#lane?.idle === false;
    this.#queue.push(work);
    // What is dispatched together is looked at together.
    if (this.#queue.length === 1) process.nextTick(() => this.#pump());
  }

  /** Sends what can be sent. */
  #pump(): void {
    const lane = this.#lane;
    if (lane === null || this.#state === "gone" || this.#remote !== null) return;
    for (;;) {
      const [first, second] = this.#queue;
      if (first instanceof Execution && lane.takes(first)) {
        this.#queue.shift();
        lane.send(first, second instanceof Execution ? second : null);
      } else if (first instanceof RemoteExecution && lane.idle) {
        this.#queue.shift();
        this.#remote = { execution: first, over: this.#runRemote(first) };
        return;
      } else {
        lane.settle(first instanceof Execution ? first : null);
        if (this.#state === "closing" && first === undefined && lane.idle) this.#end(null);
        return;
      }
    }
  }

  async #runRemote(execution: RemoteExecution): Promise<void> {
    let loss: PgTaskError | null;
    try {
      const outcome = await execution.execute();
      this.#out(execution, outcome.result);
      loss = outcome.loss;
    } catch (error) {
      loss = error instanceof PgTaskError ? error : internal(error);
    }
    this.#remote = null;
    if (loss === null) this.#pump();
    else this.#end(loss);
  }

  #prepare(home: OpenConnection, run: Run): Work {
    const { schema, table, outputLimit, finish, ledgers } = this.#parameters;
    const { wire, messages, backend } = home;
    if (run.remote === null) {
      const settings = this.#settings;
      const cancel = () => this.#events.cancel(run.id);
      const proof = { finish, owner: backend.owner };
      return new Execution(run, { wire, messages, settings, outputLimit, proof, cancel });
    }
    const { target: own, superuser, resetMs } = this.#parameters;
    const work: RemoteExecution = new RemoteExecution(run, run.remote, {
      home,
      kept: this.#kept,
      desk: this.#desk,
      own,
      superuser,
      schema,
      table,
      outputLimit,
      ledger: ledgers[run.ledger - 1] ?? ledgers[0],
      resetMs,
      log: this.#log,
      begun: (start) => this.#begun(work, start),
      runsIn: (pid) => this.#events.remote(run.id, pid),
    });
    return work;
  }

  #underWay(): readonly Work[] {
    return this.#remote === null ? (this.#lane?.runs ?? []) : [this.#remote.execution];
  }

  #begun(work: Work, start: string): void {
    if (!work.waited) return;
    this.#late = { id: work.id, start, sinceMs: performance.now() };
    this.#lateTimer ??= setTimeout(() => this.#lookForLate(), startedMs);
  }

  #lookForLate(): void {
    this.#lateTimer = undefined;
    const late = this.#late;
    if (late === null) return;
    const leftMs = late.sinceMs + startedMs - performance.now();
    if (leftMs > 0) {
      this.#lateTimer = setTimeout(() => this.#lookForLate(), Math.ceil(leftMs));
    } else {
      // Its end may have come, and only not have been read yet.
      setImmediate(() => this.#tellLate(late));
    }
  }

  #tellLate(late: Late): void {
    if (this.#late === late) {
      this.#late = null;
      this.#events.started(late.id, late.start);
    } else if (this.#late !== null) this.#lookForLate();
  }

  #out(work: Work, result: OutgoingResult): void {
    if (this.#late?.id === work.id) this.#late = null;
    this.#events.result(result);
    if (result.spoiled !== true) return;
    this.#spoiled = true;
    this.#returnWaiting();
  }

  /**
   * Returns runs that are not on the wire: those that `chosen` says, or all.
   *
   * @returns whether there were any.
   */
  #returnWaiting(chosen: (run: Pick<Run, "id">) => boolean = () => true): boolean {
    const returned = [...this.#early, ...this.#queue].filter(chosen);
    if (returned.length === 0) return false;
    this.#early = this.#early.filter((run) => !chosen(run));
    this.#queue = this.#queue.filter((work) => !chosen(work));
    for (const { id } of returned)
      this.#events.result({ outcome: "returned", session: this.#id, id });
    this.#pump();
    return true;
  }
}

function internal(error: unknown): PgTaskError {
  return new PgTaskError("INTERNAL", toReport(error).message, { cause: error });
}

function stopped(when: string): PgTaskError {
  return new PgTaskError("CONNECTION_LOST", `the session was stopped ${when}`);
}
