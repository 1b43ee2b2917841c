import { toReport, type PgTaskError } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import type { RunResult } from "../../shared/ipc/run.js";
import type { BackendIdentity } from "../../shared/postgres/backendIdentity.js";
import { mayBeUndoneByCrash } from "../results/pendingResults.js";
import type { ExecutorThread, ExecutorThreads, SessionMessage } from "./executorThreads.js";
import { elapsedMs } from "../model/elapsedMs.js";
import type { RunTimes } from "./runTimes.js";
import { shortenDedication, type PooledSession, type SessionPoolEvents } from "./session.js";
import type { SessionRecalls } from "./sessionRecalls.js";
import type { SessionRegistry } from "./sessionRegistry.js";

/** Handles the messages in which executor threads report on their sessions. */
export class ExecutorMessageHandler {
  readonly #registry: SessionRegistry;
  readonly #executors: ExecutorThreads;
  readonly #recalls: SessionRecalls;
  readonly #runTimes: RunTimes;
  readonly #markStale: () => void;
  readonly #events: SessionPoolEvents;
  readonly #log: Log;
  /** Ids of tasks whose runs are being repeated, once each, because an object that pg-task created was missing. */
  readonly #repeated = new Set<string>();

  constructor(options: {
    readonly registry: SessionRegistry;
    readonly executors: ExecutorThreads;
    readonly recalls: SessionRecalls;
    readonly runTimes: RunTimes;
    /** Marks all existing sessions as stale, so that they get no more tasks. */
    readonly markStale: () => void;
    readonly events: SessionPoolEvents;
    readonly log: Log;
  }) {
    this.#registry = options.registry;
    this.#executors = options.executors;
    this.#recalls = options.recalls;
    this.#runTimes = options.runTimes;
    this.#markStale = options.markStale;
    this.#events = options.events;
    this.#log = options.log;
  }

  receive(thread: ExecutorThread, message: SessionMessage): void {
    switch (message.type) {
      case "opened":
        this.#opened(message.session, message.backend);
        break;
      case "openFailed":
        this.#remove(message.session);
        this.#events.openFailed(message.reason);
        break;
      case "results":
        this.#addResults(message.results);
        return;
      case "requestCancel":
        this.#requestCancel(thread, message.session, message.id);
        break;
      case "started":
        this.#started(message.session, message.id, message.start);
        break;
      case "recalled":
        this.#recalls.answered(message);
        break;
      case "silence": {
        const backend = this.#registry.get(message.session)?.backend ?? null;
        if (backend !== null) this.#events.silent(backend.owner, message.ms);
        return;
      }
      case "remoteStarted":
        this.#remoteStarted(message.session, message.id, message.pid);
        break;
      case "lost": {
        const { session, reason } = message;
        const id = this.#registry.get(session)?.queue.current?.task.id;
        this.#log.warn({ session, id, reason: reason.message }, "session lost");
        this.#remove(session, reason.message);
        break;
      }
      case "closed":
        this.#remove(message.session);
        break;
    }
    this.#events.changed(true);
  }

  threadEnded(thread: ExecutorThread, reason: PgTaskError | null): void {
    if (reason !== null) this.#log.error({ reason: reason.message }, "executor thread died");
    for (const session of this.#registry) {
      if (session.thread !== thread) continue;
      if (session.state === "opening" && reason !== null) this.#events.openFailed(toReport(reason));
      this.#remove(session.number);
    }
    this.#events.changed(true);
  }

  #opened(number: number, backend: BackendIdentity): void {
    const session = this.#registry.get(number);
    if (session === undefined) return;
    this.#registry.setBackend(session, backend);
    this.#events.opened();
  }

  #addResults(results: readonly RunResult[]): void {
    let urgent = false;
    for (const result of results) {
      const session = this.#registry.get(result.session);
      if (session === undefined || session.backend === null) continue;
      if (this.#endRecalledRun(session, result)) continue;
      this.#addResult(session, session.backend, result);
      urgent ||= result.outcome === "released" || session.queue.expectedMs < this.#runTimes.lowWaterMs;
    }
    this.#events.changed(urgent);
  }

  #addResult(session: PooledSession, { owner }: BackendIdentity, result: RunResult): void {
    session.stale ||= result.stale === true;
    const queued = this.#registry.dequeue(session, result.id);
    if (queued === null) return;
    const { id, hash, key } = queued.task;
    // The session did not run this task, so the task must not count towards the session's `count` limit.
    if (result.outcome === "released" && result.serverFull === true) session.dedication = shortenDedication(session);
    if (session.distrusted && result.outcome === "ended" && mayBeUndoneByCrash(result)) {
      this.#events.lost({ id, hash, key }, owner, false, null);
      return;
    }
    if (this.#mustRepeat(result)) {
      this.#events.result({ outcome: "released", session: session.number, id }, owner, queued);
      return;
    }
    if (result.outcome === "ended" && result.stop !== null) {
      const ms = elapsedMs(result.start, result.stop);
      if (ms >= 0) this.#runTimes.add(hash, ms);
    }
    this.#events.result(result, owner, queued);
  }

  /**
   * Handles the result of a run that was recalled after it had been sent.
   * @returns false if the result belongs to a run that was not recalled.
   */
  #endRecalledRun(session: PooledSession, { id, outcome }: RunResult): boolean {
    if (!this.#registry.endRecalledRun(session, id)) return false;
    if (outcome === "ended") this.#log.error({ id }, "a recalled run has been executed");
    this.#recalls.requestPermit(session);
    return true;
  }

  /**
   * Checks whether the run lacked an object that pg-task created, and reports this.
   * @returns true if the run has to be repeated: it failed for this reason, and for the first time.
   */
  #mustRepeat(result: RunResult): boolean {
    const wasRepeated = this.#repeated.delete(result.id);
    if (result.objectsMissing !== true) return false;
    // Query plans of existing sessions still refer to functions that are about to be replaced.
    this.#markStale();
    this.#events.objectMissing();
    if (result.outcome === "released" || result.error === null) return false;
    if (wasRepeated || result.largeOutput !== undefined) return false;
    this.#repeated.add(result.id);
    return true;
  }

  #started(number: number, id: string, start: string): void {
    const session = this.#registry.get(number);
    const current = session?.queue.current;
    if (session?.backend === null || session === undefined || current?.task.id !== id) return;
    if (current.task.reportsStart) {
      // The claim has already written that the task runs.
      this.#registry.noteReportedStart(current);
      return;
    }
    current.isStartWritten = true;
    this.#events.started({ id, owner: session.backend.owner, start });
  }

  #remoteStarted(number: number, id: string, pid: number): void {
    const session = this.#registry.get(number);
    if (session?.queue.current?.task.id !== id || session.backend === null) return;
    this.#events.remote({ id, owner: session.backend.owner, pid });
  }

  #requestCancel(thread: ExecutorThread, number: number, id: string): void {
    const session = this.#registry.get(number);
    const pid = session?.queue.current?.task.id === id ? session.backend?.pid : undefined;
    if (pid !== undefined) this.#events.cancel({ session: number, id, pid });
    else this.#executors.send(thread, { type: "cancelAnswered", session: number, id });
  }

  /** @param reason why the session was lost, if it is known */
  #remove(number: number, reason: string | null = null): void {
    const session = this.#registry.get(number);
    if (session === undefined) return;
    this.#registry.remove(session);
    if (typeof session.permit === "number") this.#events.permitUnused(session.permit);
    for (const [index, { task }] of [...session.queue.all].entries()) {
      const queued = this.#registry.dequeue(session, task.id);
      if (queued === null || session.backend === null) continue;
      const { id, hash, key } = task;
      this.#events.lost({ id, hash, key }, session.backend.owner, index === 0, reason);
    }
  }
}
