import { toReport, type PgTaskError } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import type { RunResult } from "../../shared/ipc/run.js";
import type { BackendIdentity } from "../../shared/postgres/backendIdentity.js";
import { mayBeUndoneByCrash } from "../results/pendingResults.js";
import type { ExecutorThread, ExecutorThreads, SessionMessage } from "./executorThreads.js";
import { elapsedMs } from "../model/elapsedMs.js";
import type { RunTimes } from "./runTimes.js";
import { shortenDedication, type PooledSession, type SessionPoolEvents } from "./session.js";
import type { Recalls } from "./recalls.js";
import type { SessionRegistry } from "./sessionRegistry.js";

interface ExecutorMessageHandlerOptions {
  readonly registry: SessionRegistry;
  readonly executors: ExecutorThreads;
  readonly recalls: Recalls;
  readonly runTimes: RunTimes;
  readonly markStale: () => void;
  readonly events: SessionPoolEvents;
  readonly log: Log;
}

export class ExecutorMessageHandler {
  readonly #options: ExecutorMessageHandlerOptions;
  /** Ids of tasks whose runs are being repeated, once each, because an object that pg-task created was missing. */
  readonly #repeated = new Set<string>();

  constructor(options: ExecutorMessageHandlerOptions) {
    this.#options = options;
  }

  receive(thread: ExecutorThread, message: SessionMessage): void {
    switch (message.type) {
      case "opened":
        this.#opened(message.session, message.backend);
        break;
      case "openFailed": {
        const lane = this.#options.registry.get(message.session)?.lane ?? null;
        this.#remove(message.session);
        this.#options.events.openFailed(message.reason, lane);
        break;
      }
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
        this.#options.recalls.answered(message);
        break;
      case "silence": {
        const backend = this.#options.registry.get(message.session)?.backend ?? null;
        if (backend !== null) this.#options.events.silent(backend.owner, message.ms);
        return;
      }
      case "remoteStarted":
        this.#remoteStarted(message.session, message.id, message.pid);
        break;
      case "lost": {
        const { session, reason } = message;
        const id = this.#options.registry.get(session)?.queue.current?.task.id;
        this.#options.log.warn({ session, id, reason: reason.message }, "session lost");
        this.#remove(session, reason.message);
        break;
      }
      case "closed":
        this.#remove(message.session);
        break;
    }
    this.#options.events.changed(true);
  }

  threadEnded(thread: ExecutorThread, reason: PgTaskError | null): void {
    if (reason !== null) this.#options.log.error({ reason: reason.message }, "executor thread died");
    for (const session of this.#options.registry) {
      if (session.thread !== thread) continue;
      if (session.state === "opening" && reason !== null)
        this.#options.events.openFailed(toReport(reason), session.lane);
      this.#remove(session.number);
    }
    this.#options.events.changed(true);
  }

  #opened(number: number, backend: BackendIdentity): void {
    const session = this.#options.registry.get(number);
    if (session === undefined) return;
    this.#options.registry.setBackend(session, backend);
    this.#options.events.opened(session.lane);
  }

  #addResults(results: readonly RunResult[]): void {
    let urgent = false;
    for (const result of results) {
      const session = this.#options.registry.get(result.session);
      if (session === undefined || session.backend === null) continue;
      if (this.#endRecalledRun(session, result)) continue;
      this.#addResult(session, session.backend, result);
      urgent ||= result.outcome === "released" || session.queue.expectedMs < this.#options.runTimes.lowWaterMs;
    }
    this.#options.events.changed(urgent);
  }

  #addResult(session: PooledSession, { owner }: BackendIdentity, result: RunResult): void {
    session.stale ||= result.stale === true;
    const queued = this.#options.registry.dequeue(session, result.id);
    if (queued === null) return;
    const { id, hash, key } = queued.task;
    // The session did not run this task, so the task must not count towards the session's `count` limit.
    if (result.outcome === "released" && result.serverFull === true) session.dedication = shortenDedication(session);
    if (session.distrusted && result.outcome === "ended" && mayBeUndoneByCrash(result)) {
      this.#options.events.lost({ id, hash, key }, owner, false, null);
      return;
    }
    if (this.#mustRepeat(result)) {
      this.#options.events.result({ outcome: "released", session: session.number, id }, owner, queued);
      return;
    }
    if (result.outcome === "ended" && result.stop !== null) {
      const ms = elapsedMs(result.start, result.stop);
      if (ms >= 0) this.#options.runTimes.add(hash, ms);
    }
    this.#options.events.result(result, owner, queued);
  }

  /** Handles the result of a run that was recalled after it had been sent. Returns false for any other run. */
  #endRecalledRun(session: PooledSession, { id, outcome }: RunResult): boolean {
    if (!this.#options.registry.endRecalledRun(session, id)) return false;
    if (outcome === "ended") this.#options.log.error({ id }, "a recalled run has been executed");
    this.#options.recalls.requestPermit(session);
    return true;
  }

  /** Reports that an object of pg-task was missing. Returns whether the run has to be repeated, which it is once. */
  #mustRepeat(result: RunResult): boolean {
    const wasRepeated = this.#repeated.delete(result.id);
    if (result.objectsMissing !== true) return false;
    // Query plans of existing sessions still refer to functions that are about to be replaced.
    this.#options.markStale();
    this.#options.events.objectMissing();
    if (result.outcome === "released" || result.error === null) return false;
    if (wasRepeated || result.largeOutput !== undefined) return false;
    this.#repeated.add(result.id);
    return true;
  }

  #started(number: number, id: string, start: string): void {
    const session = this.#options.registry.get(number);
    const current = session?.queue.current;
    if (session?.backend === null || session === undefined || current?.task.id !== id) return;
    if (current.task.reportsStart) {
      // The claim has already written that the task runs.
      this.#options.registry.noteReportedStart(current);
      return;
    }
    current.isStartWritten = true;
    this.#options.events.started({ id, owner: session.backend.owner, start });
  }

  #remoteStarted(number: number, id: string, pid: number): void {
    const session = this.#options.registry.get(number);
    if (session?.queue.current?.task.id !== id || session.backend === null) return;
    this.#options.events.remote({ id, owner: session.backend.owner, pid });
  }

  #requestCancel(thread: ExecutorThread, number: number, id: string): void {
    const session = this.#options.registry.get(number);
    const pid = session?.queue.current?.task.id === id ? session.backend?.pid : undefined;
    if (pid !== undefined) this.#options.events.cancel({ session: number, id, pid });
    else this.#options.executors.send(thread, { type: "cancelAnswered", session: number, id });
  }

  #remove(number: number, reason: string | null = null): void {
    const session = this.#options.registry.get(number);
    if (session === undefined) return;
    this.#options.registry.remove(session);
    this.#options.recalls.sessionGone(session);
    for (const [index, { task }] of [...session.queue.all].entries()) {
      const queued = this.#options.registry.dequeue(session, task.id);
      if (queued === null || session.backend === null) continue;
      const { id, hash, key } = task;
      this.#options.events.lost({ id, hash, key }, session.backend.owner, index === 0, reason);
    }
  }
}
