import { PgTaskError, toReport } from "../shared/errors.js";
import type { ExecutorParameters, FromExecutor, RecalledRuns, ToExecutor } from "../shared/ipc/executorMessages.js";
import type { Run, RunResult } from "../shared/ipc/run.js";
import { Connector } from "./session/connector.js";
import { ResultSender } from "./output/resultSender.js";
import type { ForwardingLog } from "./forwardingLog.js";
import { ConnectionPermits } from "./remote/connectionPermits.js";
import type { OutgoingResult } from "./run/execution.js";
import { ExecutorSession, type ExecutorSessionEvents } from "./session/session.js";
import { resultBatchMs } from "./tuning.js";

/**
 * Holds sessions and executes the runs that the manager dispatches to them. Every method can be called at any time. A
 * run for a session that is unknown or takes no more runs is released. A recall from an unknown session is answered
 * with null. Other calls for unknown sessions have no effect.
 */
export class Executor {
  /** Shared with the sessions and the connector. `reconfigure` changes it in place. */
  readonly #parameters: { -readonly [K in keyof ExecutorParameters]: ExecutorParameters[K] };
  readonly #connector: Connector;
  readonly #send: (message: FromExecutor) => void;
  readonly #log: ForwardingLog;
  readonly #resultSender: ResultSender;
  readonly #connectionPermits: ConnectionPermits;
  readonly #sessions = new Map<number, ExecutorSession>();
  /** Results that wait to be sent together in one message. */
  #results: RunResult[] = [];
  #isFlushScheduled = false;
  #flushTimer: NodeJS.Timeout | undefined;
  #stopped: Promise<void> | null = null;

  /** @param options.send posts a message to the manager */
  constructor(
    parameters: ExecutorParameters,
    options: { readonly send: (message: FromExecutor) => void; readonly log: ForwardingLog },
  ) {
    this.#parameters = { ...parameters };
    this.#connector = new Connector(this.#parameters);
    this.#send = options.send;
    this.#resultSender = new ResultSender(options.send);
    this.#log = options.log;
    this.#connectionPermits = new ConnectionPermits((message) => this.#sendInOrder(message));
  }

  /** Sets the parameters of later runs and sessions. The schema and the names of database objects stay the same. */
  reconfigure({ target, serverStart, outputLimit, isSuperuser, lostRunTimeoutMs }: ExecutorParameters): void {
    this.#parameters.target = target;
    this.#parameters.serverStart = serverStart;
    this.#parameters.outputLimit = outputLimit;
    this.#parameters.isSuperuser = isSuperuser;
    this.#parameters.lostRunTimeoutMs = lostRunTimeoutMs;
  }

  /**
   * Opens sessions. Their first tasks will most likely belong to `group`. Each session answers `opened` or
   * `openFailed`.
   */
  open(sessions: readonly number[], group: string): void {
    for (const session of sessions) this.#open(session, group);
  }

  /** Queues runs in their sessions. Each session executes its runs in the given order. */
  dispatch(runs: readonly Run[]): void {
    for (const run of runs) {
      if (this.#sessions.get(run.session)?.dispatch(run) === true) continue;
      this.#log.warn({ session: run.session, id: run.id }, "session not open, run released");
      this.#addResult({ outcome: "released", session: run.session, id: run.id });
    }
  }

  /** Cancels a run because its task was deleted or set to another state. */
  cancel(session: number, id: string): void {
    this.#sessions.get(session)?.cancel(id);
  }

  /** Passes the manager's answer to `requestCancel` to the session that sent the request. */
  cancelAnswered(session: number, id: string): void {
    this.#sessions.get(session)?.cancelAnswered(id);
  }

  /**
   * Sets a session's pipeline permit: the key of the advisory lock that lets the session send queued runs. Null means
   * that the session may send none.
   */
  setPipelinePermit(session: number, permit: number | null): void {
    this.#sessions.get(session)?.setPermit(permit);
  }

  /**
   * Recalls runs from sessions. Runs that have not been sent to the server are released. Each session answers
   * `recalled` with the runs that it has sent and that have not finished.
   */
  recall(recalls: readonly RecalledRuns[]): void {
    for (const runs of recalls) {
      const sent = this.#sessions.get(runs.session)?.recall(runs) ?? null;
      this.#sendInOrder({ type: "recalled", ...runs, sent });
    }
  }

  /** Called when the manager has written the last large output. The next one may then be sent. */
  largeOutputWritten(): void {
    this.#resultSender.largeOutputWritten();
  }

  /** Ends sessions. Each session ends once the runs dispatched to it have finished, and then answers `closed`. */
  close(sessions: readonly number[]): void {
    for (const session of sessions) this.#sessions.get(session)?.close();
  }

  /** Ends sessions immediately. Each session answers `lost` or `closed`, or `openFailed` if it was still opening. */
  drop(sessions: readonly number[]): void {
    for (const session of sessions) void this.#sessions.get(session)?.stop();
  }

  /**
   * Asks sessions how long their server has been silent. A session that is waiting for an answer from the server
   * reports, as `silence`, how long nothing has arrived.
   */
  reportSilence(sessions: readonly number[]): void {
    for (const session of sessions) void this.#sessions.get(session)?.reportSilence();
  }

  /**
   * Asks the server of a remote run whether the run's backend is gone. Sends the answer to the manager as
   * `remoteProcessFound`.
   */
  async findRemoteProcess({
    number,
    remote,
    process: remoteProcess,
  }: Extract<ToExecutor, { type: "findRemoteProcess" }>): Promise<void> {
    const { target: managerTarget, isSuperuser } = this.#parameters;
    const warn = (message: string): void => this.#log.warn({}, message);
    const { findRemoteProcess } = await import("./remote/remoteRunLiveness.js");
    const context = { managerTarget, isSuperuser, env: process.env, warn };
    const gone = await findRemoteProcess(remote, remoteProcess, context, this.#connectionPermits);
    this.#sendInOrder({ type: "remoteProcessFound", number, gone });
  }

  /** Passes the manager's answer to the pending `requestConnectionPermit` with this number. */
  answerConnectionRequest({ number, granted }: Extract<ToExecutor, { type: "connectionPermit" }>): void {
    this.#connectionPermits.answer(number, granted);
  }

  /** Releases every unfinished run. Runs in progress are cancelled first. */
  abort(): void {
    for (const session of this.#sessions.values()) session.abort();
  }

  /**
   * Ends all sessions immediately. Resolves when the connections are closed and all messages to the manager have been
   * sent.
   */
  async stop(): Promise<void> {
    this.#stopped ??= this.#stopSessions();
    await this.#stopped;
  }

  async #stopSessions(): Promise<void> {
    await Promise.all([...this.#sessions.values()].map((session) => session.stop()));
    this.#flush();
    this.#resultSender.sendAll();
  }

  #open(id: number, group: string): void {
    if (this.#sessions.has(id)) {
      this.#log.warn({ session: id }, "session is already open");
      return;
    }
    if (this.#stopped !== null) {
      const reason = new PgTaskError("CONNECTION_FAILED", "the executor is stopped");
      this.#sendInOrder({ type: "openFailed", session: id, reason: toReport(reason) });
      return;
    }
    const connect = () => this.#connector.open(group);
    const shared = { log: this.#log, connectionPermits: this.#connectionPermits };
    const session = new ExecutorSession(id, this.#parameters, connect, this.#events(id), shared);
    this.#sessions.set(id, session);
  }

  #events(session: number): ExecutorSessionEvents {
    return {
      opened: (backend) => this.#sendInOrder({ type: "opened", session, backend }),
      openFailed: (reason) => this.#removeSession({ type: "openFailed", session, reason }),
      result: (result) => this.#addResult(result),
      requestCancel: (id) => this.#sendInOrder({ type: "requestCancel", session, id }),
      started: (id, start) => this.#sendInOrder({ type: "started", session, id, start }),
      remoteStarted: (id, pid) => this.#sendInOrder({ type: "remoteStarted", session, id, pid }),
      silence: (ms) => this.#sendInOrder({ type: "silence", session, ms }),
      lost: (reason) => this.#removeSession({ type: "lost", session, reason }),
      closed: () => this.#removeSession({ type: "closed", session }),
    };
  }

  #removeSession(message: FromExecutor & { readonly session: number }): void {
    this.#sessions.delete(message.session);
    this.#sendInOrder(message);
  }

  #addResult(result: OutgoingResult): void {
    if (result.spilledOutput !== undefined || this.#resultSender.hasQueued(result.session)) {
      this.#flush();
      this.#resultSender.sendResult(result);
      return;
    }
    this.#results.push(result);
    if (this.#sessions.get(result.session)?.isIdle !== false) this.#flushSoon();
    else this.#flushTimer ??= setTimeout(() => this.#flush(), resultBatchMs);
  }

  /** Sends the collected results at the end of this event loop iteration. */
  #flushSoon(): void {
    if (this.#isFlushScheduled) return;
    this.#isFlushScheduled = true;
    setImmediate(() => this.#flush());
  }

  #flush(): void {
    this.#isFlushScheduled = false;
    clearTimeout(this.#flushTimer);
    this.#flushTimer = undefined;
    if (this.#results.length === 0) return;
    const results = this.#results;
    this.#results = [];
    this.#send({ type: "results", results });
  }

  /** Sends a message to the manager, after all earlier results. */
  #sendInOrder(message: FromExecutor): void {
    this.#flush();
    this.#resultSender.sendMessage(message);
  }
}
