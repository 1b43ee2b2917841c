import type { RecalledRuns, SentRuns } from "../../shared/ipc/executorMessages.js";
import type { ExecutorThread, ExecutorThreads } from "./executorThreads.js";
import { isBlocked, type PooledSession, type SentRecall, type SessionPoolEvents } from "./session.js";
import type { SessionRegistry } from "./sessionRegistry.js";

/**
 * Recalls queued tasks (takes them back so that other sessions can run them), and manages the pipeline permits of
 * sessions. Runs that have already been sent are left to PipelineRecalls, because only the server knows whether they
 * have begun.
 *
 *   queued ──recall──▶ recalling ──not sent──▶ released
 *     ▲                    │ sent
 *     │                    ▼
 *     └──has begun── PipelineRecalls ──cannot begin──▶ released, in `recalledRuns` until the executor's answer
 */
export class SessionRecalls {
  readonly #registry: SessionRegistry;
  readonly #executors: ExecutorThreads;
  readonly #events: Pick<SessionPoolEvents, "result" | "recall" | "permitWanted" | "permitUnused">;

  constructor(
    registry: SessionRegistry,
    executors: ExecutorThreads,
    events: Pick<SessionPoolEvents, "result" | "recall" | "permitWanted" | "permitUnused">,
  ) {
    this.#registry = registry;
    this.#executors = executors;
    this.#events = events;
  }

  /** Whether any recall has not been completed yet. */
  get isPending(): boolean {
    return [...this.#registry].some(({ pendingRecalls }) => pendingRecalls > 0);
  }

  /**
   * Recalls queued tasks. Each task is released unless it has begun.
   *
   * @param isForDelay whether the tasks are recalled because the current tasks take long. If so, a task may stay if the
   *   current task ahead of it has ended by the time the recall arrives.
   */
  recall(ids: readonly string[], isForDelay: boolean): void {
    const byThread = new Map<ExecutorThread, Map<PooledSession, string[]>>();
    for (const id of ids) {
      const session = this.#registry.ofTask(id);
      const queued = session?.queue.queued.find(({ task }) => task.id === id);
      if (session === undefined || queued === undefined || queued.isRecalling) continue;
      queued.isRecalling = true;
      const bySession = byThread.get(session.thread) ?? new Map<PooledSession, string[]>();
      byThread.set(session.thread, bySession);
      bySession.set(session, [...(bySession.get(session) ?? []), id]);
    }
    for (const [thread, bySession] of byThread) {
      for (const session of bySession.keys()) session.pendingRecalls += 1;
      const runs = [...bySession].map(([{ number, queue }, recalled]) => ({
        session: number,
        ids: recalled,
        queuedBehind: isForDelay ? (queue.current?.task.id ?? null) : null,
      }));
      this.#executors.send(thread, { type: "recall", runs });
    }
  }

  /**
   * Handles the executor's answer to a recall. The executor has released the runs that it had not sent. Runs that it
   * had sent still have to be recalled from the server.
   */
  answered(answer: SentRuns): void {
    const session = this.#registry.get(answer.session);
    if (session === undefined || session.backend === null) return;
    const { sent } = answer;
    const permit = session.permit ?? null;
    const recall = { ...answer, sent: sent ?? [], permit, pid: session.backend.pid };
    // If nothing was sent behind the current run, the session keeps its permit.
    if (sent === null || sent.length < 2) this.abandon(recall);
    else {
      session.permit = null;
      this.#events.recall(recall);
    }
  }

  /** Gives up a recall: the runs that have been sent stay in their session, and the session keeps its permit. */
  abandon(recall: Omit<SentRecall, "pid">): void {
    if (recall.permit !== null) this.setPermit(recall.session, recall.permit);
    this.complete(recall, new Set());
  }

  /**
   * Completes a recall: releases those recalled runs that cannot begin any more. The other runs stay in their session.
   *
   * @param unable ids of the runs that had not begun when the session's permit was revoked.
   */
  complete(recall: RecalledRuns, unable: ReadonlySet<string>): void {
    const { session: number, ids } = recall;
    const session = this.#registry.get(number);
    if (session === undefined || session.backend === null) return;
    session.pendingRecalls -= 1;
    const queue = new Map(session.queue.queued.map((queued) => [queued.task.id, queued]));
    for (const id of ids) {
      const queued = queue.get(id);
      if (queued === undefined) continue;
      queued.isRecalling = false;
      if (!unable.has(id)) continue;
      session.recalledRuns.add(id);
      this.#registry.dequeue(session, id);
      const result = { outcome: "released" as const, session: number, id };
      this.#events.result(result, session.backend.owner, queued);
    }
    // These tasks may have stayed because the delay was over. In a stale session they must not run, so they are
    // recalled again.
    if (session.stale && recall.queuedBehind !== null) this.recall(ids, false);
    this.requestPermit(session);
  }

  /** Requests a permit for a session that has tasks to send behind its current one. */
  requestPermit(session: PooledSession): void {
    if (session.permit !== null || session.queue.size < 2 || isBlocked(session)) return;
    session.permit = undefined;
    this.#events.permitWanted(session.number);
  }

  /**
   * Sets the permit under which a session may send runs behind others. If the session already has another permit, it
   * keeps that one.
   * @param permit null if the session gets no permit.
   */
  setPermit(number: number, permit: number | null): void {
    const session = this.#registry.get(number);
    const hasOther = typeof session?.permit === "number" && session.permit !== permit;
    if (session !== undefined && !hasOther) {
      session.permit = permit;
      this.#executors.send(session.thread, { type: "pipelinePermit", session: number, permit });
    } else if (permit !== null) this.#events.permitUnused(permit);
  }

  /**
   * Takes the session's permit away, so that it sends no more runs behind others. The permit's lock is not released
   * yet.
   * @returns the permit; null if the session had none.
   */
  takePermit(number: number): number | null {
    const session = this.#registry.get(number);
    const permit = session?.permit ?? null;
    if (session === undefined || permit === null) return null;
    session.permit = null;
    this.setPermit(number, null);
    return permit;
  }

  /**
   * Takes all permits away, because the connection that held their locks is gone. Each session has to request a new
   * permit.
   */
  resetPermits(): void {
    for (const session of this.#registry) {
      this.takePermit(session.number);
      session.permit = null;
    }
  }
}
