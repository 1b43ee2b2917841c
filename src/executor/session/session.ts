import { toReport, PgTaskError } from "../../shared/errors.js";
import type { ExecutorParameters, FromExecutor, SentRun, RecalledRuns } from "../../shared/ipc/executorMessages.js";
import type { Run } from "../../shared/ipc/run.js";
import type { OpenConnection } from "./connector.js";
import { Pipeline } from "./pipeline.js";
import { StartReporter } from "./startReporter.js";
import type { ForwardingLog } from "../forwardingLog.js";
import type { ConnectionPermits } from "../remote/managerServer.js";
import type { RemoteExecution } from "../remote/remoteExecution.js";
import type { RemoteLedgers } from "../remote/remoteLedgers.js";
import type { RemoteSessionCache } from "../remote/remoteSession.js";
import { Execution, type OutgoingResult } from "../run/execution.js";
import { SettingsSql } from "../run/runSettings.sql.js";

export type SessionMessage = Exclude<Extract<FromExecutor, { readonly session: number }>, { type: "recalled" }>;

interface SessionContext {
  readonly parameters: ExecutorParameters;
  /** With users: the role whose tasks it runs. Null stands for the user of the target. */
  readonly role: string | null;
  readonly connect: () => Promise<OpenConnection>;
  readonly send: (message: SessionMessage) => void;
  readonly sendResult: (result: OutgoingResult) => void;
  readonly connectionPermits: ConnectionPermits;
  readonly remoteLedgers: RemoteLedgers;
  readonly log: ForwardingLog;
}

type AnyExecution = Execution | RemoteExecution;

interface RemoteSupport {
  readonly RemoteExecution: typeof RemoteExecution;
  readonly sessions: RemoteSessionCache;
}

/**
 * One connection that executes the runs dispatched to it, in order.
 *
 *     opening ──▶ open ──close──▶ closing ──▶ gone
 *        └─────────┴─ connection lost, stop ───▶ gone
 */
export class ExecutorSession {
  readonly #id: number;
  readonly #context: SessionContext;
  #state: "opening" | "open" | "closing" | "gone" = "opening";
  /** Runs that wait for the connection, or for the code that they need. */
  #waitingRuns: Run[] = [];
  #queue: AnyExecution[] = [];
  #connection: OpenConnection | null = null;
  #pipeline: Pipeline | null = null;
  #remote: { readonly execution: RemoteExecution; readonly over: Promise<void> } | null = null;
  #remoteSupport: RemoteSupport | null = null;
  readonly #settings: SettingsSql;
  #permit: number | null = null;
  readonly #startReporter: StartReporter;
  /** Whether a run left something that no reset removes. Queued runs are then released. */
  #isStale = false;
  #resolveEnd: (loss: PgTaskError | null) => void = () => {};
  readonly #ended: Promise<void>;

  constructor(id: number, context: SessionContext) {
    this.#id = id;
    this.#context = context;
    this.#settings = new SettingsSql(context.parameters);
    this.#startReporter = new StartReporter((runId, start) => this.#sendStart(runId, start));
    this.#ended = this.#connectAndServe();
  }

  get isIdle(): boolean {
    return this.#queue.length === 0 && this.#waitingRuns.length === 0 && this.#inProgress().length === 0;
  }

  /** Returns false if the session takes no more runs. */
  dispatch(run: Run): boolean {
    if (this.#state === "closing" || this.#state === "gone") return false;
    // The manager never sends the SQL of one role to a session of another. A mistake there must not become a breach.
    if ((run.lane ?? null) !== this.#context.role) return false;
    this.#waitingRuns.push(run);
    this.#addWaiting();
    if (this.#isStale) this.#releaseQueued();
    return true;
  }

  cancel(id: string): void {
    if (this.#releaseQueued((run) => run.id === id)) return;
    for (const work of this.#inProgress()) if (work.id === id) work.stop();
  }

  cancelAnswered(id: string): void {
    for (const work of this.#inProgress()) if (work.id === id) work.cancelAnswered();
  }

  setPermit(permit: number | null): void {
    this.#permit = permit;
    if (this.#pipeline !== null) this.#pipeline.permit = permit;
    this.#sendQueued();
  }

  /**
   * Releases runs that have not been sent, and marks the others to be released unless the server runs them. Returns
   * those that have been sent and have not finished; null if `queuedBehind` is no longer the current run.
   */
  recall({ ids, queuedBehind }: RecalledRuns): SentRun[] | null {
    if (queuedBehind !== null && this.#inProgress()[0]?.id !== queuedBehind) return null;
    this.setPermit(null);
    this.#releaseQueued(({ id }) => ids.includes(id));
    return this.#pipeline?.recall(ids) ?? [];
  }

  close(): void {
    if (this.#state === "opening" || this.#state === "open") this.#state = "closing";
    this.#sendQueued();
  }

  async reportSilence(): Promise<void> {
    const ms = (await this.#connection?.wire.silentMs()) ?? 0;
    if (ms > 0 && this.#inProgress().length > 0) this.#context.send({ type: "silence", session: this.#id, ms });
  }

  abort(): void {
    this.#releaseQueued();
    for (const work of this.#inProgress()) work.abort();
  }

  async stop(): Promise<void> {
    this.#releaseQueued();
    if (this.#state === "opening") {
      this.#state = "gone";
      this.#sendEnd("openFailed", stopped("while it was opening"));
      return;
    }
    this.close();
    if (this.#inProgress().length > 0) {
      this.#connection?.wire.destroy(stopped("during a run"));
    }
    await this.#ended;
  }

  async #connectAndServe(): Promise<void> {
    let connection: OpenConnection;
    try {
      connection = await this.#context.connect();
    } catch (error) {
      if (this.#state === "gone") return;
      this.#state = "gone";
      this.#releaseQueued();
      this.#sendEnd("openFailed", error);
      return;
    }
    if (this.#state === "gone") return await connection.wire.close();
    const loss = await this.#serve(connection);
    this.#state = "gone";
    this.#startReporter.stop();
    await this.#disconnect(connection, loss);
  }

  async #disconnect({ wire }: OpenConnection, loss: PgTaskError | null): Promise<void> {
    if (loss === null) {
      await Promise.all([wire.close(), this.#remoteSupport?.sessions.end()]);
      this.#context.send({ type: "closed", session: this.#id });
      return;
    }
    wire.destroy(loss);
    await wire.ended;
    this.#remote?.execution.sessionLost();
    await Promise.all([this.#pipeline?.connectionLost(loss), this.#remote?.over]);
    await this.#remoteSupport?.sessions.end();
    this.#releaseQueued();
    this.#sendEnd("lost", loss);
  }

  /** Returns why the connection was lost, or null if the session was closed. */
  async #serve(connection: OpenConnection): Promise<PgTaskError | null> {
    const end = new Promise<PgTaskError | null>((resolve) => (this.#resolveEnd = resolve));
    void connection.wire.ended.then(this.#resolveEnd);
    this.#connection = connection;
    this.#pipeline = new Pipeline(connection.wire, {
      finished: (execution, { result }) => this.#runFinished(execution, result),
      lost: (execution) => execution.discardOutput(),
      retry: (execution) => this.#queue.unshift(execution),
      started: (execution) => this.#runStarted(execution, execution.attempt?.start ?? ""),
      changed: () => this.#sendQueued(),
    });
    this.#pipeline.permit = this.#permit;
    if (this.#state === "opening") this.#state = "open";
    this.#context.send({ type: "opened", session: this.#id, backend: connection.backend });
    this.#addWaiting();
    this.#sendQueued();
    return await end;
  }

  #addWaiting(): void {
    if (this.#connection === null) return;
    if (this.#remoteSupport === null && this.#waitingRuns.some(({ remote }) => remote !== null)) {
      void this.#loadRemoteSupport();
      return;
    }
    for (const run of this.#waitingRuns.splice(0)) this.#add(this.#connection, run);
  }

  /** On first use, because the first task after deep sleep waits for all code. */
  async #loadRemoteSupport(): Promise<void> {
    try {
      const { RemoteExecution } = await import("../remote/remoteExecution.js");
      const { RemoteSessionCache } = await import("../remote/remoteSession.js");
      this.#remoteSupport ??= { RemoteExecution, sessions: new RemoteSessionCache() };
      this.#addWaiting();
    } catch (error) {
      this.#resolveEnd(internalError(error));
    }
  }

  #add(connection: OpenConnection, run: Run): void {
    const work = this.#toExecution(connection, run);
    work.reportsStart = run.reportsStart;
    work.wasQueued = this.#queue.length > 0 || this.#remote !== null || this.#pipeline?.isIdle === false;
    this.#queue.push(work);
    // Sending waits for the rest of the dispatch, so that runs dispatched together are sent together.
    if (this.#queue.length === 1) process.nextTick(() => this.#sendQueued());
  }

  #sendQueued(): void {
    const pipeline = this.#pipeline;
    if (pipeline === null || this.#state === "gone" || this.#remote !== null) return;
    for (;;) {
      const [first, second] = this.#queue;
      if (first instanceof Execution && pipeline.canSend(first)) {
        this.#queue.shift();
        pipeline.send(first, second instanceof Execution ? second : null);
      } else if (first !== undefined && !(first instanceof Execution) && pipeline.isIdle) {
        this.#queue.shift();
        this.#remote = { execution: first, over: this.#runRemote(first) };
        return;
      } else {
        pipeline.closeUnlessFollowedBy(first instanceof Execution ? first : null);
        const isDone = first === undefined && this.#waitingRuns.length === 0 && pipeline.isIdle;
        if (this.#state === "closing" && isDone) this.#resolveEnd(null);
        return;
      }
    }
  }

  async #runRemote(execution: RemoteExecution): Promise<void> {
    let loss: PgTaskError | null;
    try {
      const outcome = await execution.execute();
      this.#runFinished(execution, outcome.result);
      loss = outcome.loss;
    } catch (error) {
      loss = error instanceof PgTaskError ? error : internalError(error);
    }
    this.#remote = null;
    if (loss === null) this.#sendQueued();
    else this.#resolveEnd(loss);
  }

  #toExecution(connection: OpenConnection, run: Run): AnyExecution {
    const { parameters, connectionPermits, remoteLedgers, log } = this.#context;
    if (run.remote === null) {
      const { wire, messages, proof, cancel } = connection;
      const requestCancel = (): void => this.#context.send({ type: "requestCancel", session: this.#id, id: run.id });
      const execution: Execution = new Execution(run, {
        wire,
        messages,
        settings: this.#settings,
        outputLimit: parameters.outputLimit,
        proof,
        requestCancel: cancel === null ? requestCancel : () => void cancel().finally(() => execution.cancelAnswered()),
      });
      return execution;
    }
    if (this.#remoteSupport === null) throw new PgTaskError("INTERNAL", "the code for remote tasks is not loaded");
    const { RemoteExecution, sessions } = this.#remoteSupport;
    const work: RemoteExecution = new RemoteExecution(run, run.remote, {
      ...parameters,
      ...remoteIdentity(parameters, run),
      session: connection,
      sessionCache: sessions,
      connectionPermits,
      remoteLedgers,
      log,
      onStart: (start) => this.#runStarted(work, start),
      onPidNotShown: (pid) => this.#context.send({ type: "remoteStarted", session: this.#id, id: run.id, pid }),
    });
    return work;
  }

  #inProgress(): readonly AnyExecution[] {
    return this.#remote === null ? (this.#pipeline?.runs ?? []) : [this.#remote.execution];
  }

  #sendStart(id: string, start: string): void {
    this.#context.send({ type: "started", session: this.#id, id, start });
  }

  #sendEnd(type: "openFailed" | "lost", error: unknown): void {
    this.#context.send({ type, session: this.#id, reason: toReport(error) });
  }

  #runStarted(work: AnyExecution, start: string): void {
    if (work.reportsStart) this.#sendStart(work.id, start);
    else if (work.wasQueued) this.#startReporter.started(work.id, start);
  }

  #runFinished(work: AnyExecution, result: OutgoingResult): void {
    this.#startReporter.finished(work.id);
    this.#context.sendResult(result);
    if (result.stale !== true) return;
    this.#isStale = true;
    this.#releaseQueued();
  }

  #releaseQueued(matches: (run: Pick<Run, "id">) => boolean = () => true): boolean {
    const released = [...this.#waitingRuns, ...this.#queue].filter(matches);
    if (released.length === 0) return false;
    this.#waitingRuns = this.#waitingRuns.filter((run) => !matches(run));
    this.#queue = this.#queue.filter((work) => !matches(work));
    for (const { id } of released) this.#context.sendResult({ outcome: "released", session: this.#id, id });
    this.#sendQueued();
    return true;
  }
}

/** A run of another role on another server inherits nothing that the user of the target could do there. */
function remoteIdentity({ target, isSuperuser }: ExecutorParameters, { role = null }: Run) {
  return role === null || role === target.user
    ? { target, isSuperuser }
    : { target: { ...target, user: role }, isSuperuser: false };
}

function internalError(error: unknown): PgTaskError {
  return new PgTaskError("INTERNAL", toReport(error).message, { cause: error });
}

function stopped(when: string): PgTaskError {
  return new PgTaskError("CONNECTION_LOST", `the session was stopped ${when}`);
}
