import { PgTaskError, toReport } from "../shared/errors.js";
import type {
  ExecutorParameters,
  FromExecutor,
  Run,
  RunResult,
  SessionRuns,
  ToExecutor,
} from "../shared/ipc/messages.js";
import { Connector } from "./session/connector.js";
import { ResultSender } from "./output/resultSender.js";
import type { ForwardingLog } from "./forwardingLog.js";
import { ConnectionPermits } from "./remote/managerServerLimit.js";
import type { OutgoingResult } from "./run/execution.js";
import { ExecutorSession, type ExecutorSessionEvents } from "./session/session.js";

/**
 * Holds sessions and runs on them what the manager dispatches. Every order is harmless at any time:
 * a run for a session that cannot take it comes back as `returned`, others about sessions that are
 * not there have no effect.
 */
export class Executor {
  /** Sessions and connector look at this one object, which changes with reconfigure. */
  readonly #parameters: { -readonly [K in keyof ExecutorParameters]: ExecutorParameters[K] };
  readonly #connector: Connector;
  readonly #send: (message: FromExecutor) => void;
  readonly #log: ForwardingLog;
  readonly #handover: ResultSender;
  readonly #desk: ConnectionPermits;
  readonly #sessions = new Map<number, ExecutorSession>();
  /** Came out and have not been told. */
  #results: RunResult[] = [];
  #flushing = false;
  #timer: NodeJS.Timeout | undefined;
  #stopped: Promise<void> | null = null;

  /** @param send gets what the manager is to know */
  constructor(
    parameters: ExecutorParameters,
    options: { readonly send: (message: FromExecutor) => void; readonly log: ForwardingLog },
  ) {
    this.#parameters = { ...parameters };
    this.#connector = new Connector(this.#parameters);
    this.#send = options.send;
    this.#handover = new ResultSender(options.send);
    this.#log = options.log;
    this.#desk = new ConnectionPermits((message) => this.#tell(message));
  }

  /** Every run that starts from now on goes by these; place and names stay. */
  reconfigure({ outputLimit, superuser, resetMs }: ExecutorParameters): void {
    Object.assign(this.#parameters, { outputLimit, superuser, resetMs });
  }

  /** Opens sessions, most likely for tasks of this group; each answers `opened` or `unopened`. */
  open(sessions: readonly number[], group: string): void {
    for (const session of sessions) this.#open(session, group);
  }

  /** Gives runs to their sessions, which run them one after another in this order. */
  dispatch(runs: readonly Run[]): void {
    for (const run of runs) {
      if (this.#sessions.get(run.session)?.dispatch(run) === true) continue;
      this.#log.warn({ session: run.session, id: run.id }, "run for a session that is not open");
      this.#result({ outcome: "returned", session: run.session, id: run.id });
    }
  }

  /** Cancels a run that is not wanted any more. */
  cancel(session: number, id: string): void {
    this.#sessions.get(session)?.cancel(id);
  }

  /** The manager's answer to `cancel`. */
  cancelled(session: number, id: string): void {
    this.#sessions.get(session)?.cancelled(id);
  }

  /** A session sends runs behind others under this permit from now on, with null not at all. */
  permit(session: number, permit: number | null): void {
    this.#sessions.get(session)?.permit(permit);
  }

  /** Returns those of these runs that have not been sent; each session answers `recalled` with what has been. */
  recall(recalled: readonly SessionRuns[]): void {
    for (const each of recalled) {
      const sent = this.#sessions.get(each.session)?.recall(each) ?? null;
      this.#tell({ type: "recalled", ...each, sent });
    }
  }

  /** What was handed over of large outputs is written. */
  written(): void {
    this.#handover.written();
  }

  /** Ends sessions, each once the runs dispatched to it have come out; each answers `closed`. */
  close(sessions: readonly number[]): void {
    for (const session of sessions) this.#sessions.get(session)?.close();
  }

  /** Ends sessions at once; each answers `lost` or `closed`. */
  drop(sessions: readonly number[]): void {
    for (const session of sessions) void this.#sessions.get(session)?.stop();
  }

  /** Tells of each of these sessions that awaits an answer for how long nothing has come. */
  listen(sessions: readonly number[]): void {
    for (const session of sessions) void this.#sessions.get(session)?.listen();
  }

  /** Asks a remote run's own server whether its process is gone; answers `sought`. */
  async seek({ number, remote, place }: Extract<ToExecutor, { type: "seek" }>): Promise<void> {
    const { target: own, superuser } = this.#parameters;
    const warn = (message: string): void => this.#log.warn({}, message);
    const { findRemoteProcess } = await import("./remote/remoteProcess.js");
    const context = { own, superuser, env: process.env, warn };
    const gone = await findRemoteProcess(remote, place, context, this.#desk);
    this.#tell({ type: "sought", number, gone });
  }

  /** Whether there is room for a connection of a remote task that was asked for. */
  room({ number, room }: Extract<ToExecutor, { type: "room" }>): void {
    this.#desk.answered(number, room);
  }

  /** Makes every run that has not ended come out, by a cancel where it is under way. */
  abort(): void {
    for (const session of this.#sessions.values()) session.abort();
  }

  /**
   * Ends all sessions at once. Resolves when their connections are closed and everything about them
   * has been sent.
   */
  async stop(): Promise<void> {
    this.#stopped ??= this.#stopSessions();
    await this.#stopped;
  }

  async #stopSessions(): Promise<void> {
    await Promise.all([...this.#sessions.values()].map((session) => session.stop()));
    this.#flush();
    this.#handover.end();
  }

  #open(id: number, group: string): void {
    if (this.#sessions.has(id)) {
      this.#log.warn({ session: id }, "session to be opened is there already");
      return;
    }
    if (this.#stopped !== null) {
      const reason = new PgTaskError("CONNECTION_FAILED", "the executor has been stopped");
      this.#tell({ type: "unopened", session: id, reason: toReport(reason) });
      return;
    }
    const connect = () => this.#connector.open(group);
    const shared = { log: this.#log, desk: this.#desk };
    const session = new ExecutorSession(id, this.#parameters, connect, this.#events(id), shared);
    this.#sessions.set(id, session);
  }

  #events(session: number): ExecutorSessionEvents {
    return {
      opened: (backend) => this.#tell({ type: "opened", session, backend }),
      unopened: (reason) => this.#forget({ type: "unopened", session, reason }),
      result: (result) => this.#result(result),
      cancel: (id) => this.#tell({ type: "cancel", session, id }),
      started: (id, start) => this.#tell({ type: "started", session, id, start }),
      remote: (id, pid) => this.#tell({ type: "remote", session, id, pid }),
      silent: (ms) => this.#tell({ type: "silent", session, ms }),
      lost: (reason) => this.#forget({ type: "lost", session, reason }),
      closed: () => this.#forget({ type: "closed", session }),
    };
  }

  #forget(message: FromExecutor & { readonly session: number }): void {
    this.#sessions.delete(message.session);
    this.#tell(message);
  }

  #result(result: OutgoingResult): void {
    if (result.stored !== undefined || this.#handover.holds(result.session)) {
      this.#flush();
      this.#handover.result(result);
      return;
    }
    this.#results.push(result);
    if (this.#sessions.get(result.session)?.idle !== false) this.#flushSoon();
    else this.#timer ??= setTimeout(() => this.#flush(), gatherMs);
  }

  /** At the end of this turn of the event loop. */
  #flushSoon(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    setImmediate(() => this.#flush());
  }

  #flush(): void {
    this.#flushing = false;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#results.length === 0) return;
    const results = this.#results;
    this.#results = [];
    this.#send({ type: "results", results });
  }

  /** What comes after a result is never heard of before it. */
  #tell(message: FromExecutor): void {
    this.#flush();
    this.#handover.tell(message);
  }
}

/** How long results are gathered while their sessions have more to do, in ms. */
const gatherMs = 2;
