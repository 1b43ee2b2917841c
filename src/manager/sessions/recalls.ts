import { randomLockKey } from "../../shared/postgres/advisoryLocks.js";
import { inOneWrite, type Client } from "../../shared/postgres/client.js";
import type { RecalledRuns, SentRuns } from "../../shared/ipc/executorMessages.js";
import type { ExecutorThread, ExecutorThreads } from "./executorThreads.js";
import {
  heldRunLocks,
  keyOf,
  releaseRunLocks,
  revokePermits,
  takePermits,
  takeRunLocks,
  type RunLock,
} from "./recallLocks.sql.js";
import { isBlocked, type PooledSession, type SessionPoolEvents } from "./session.js";
import type { SessionRegistry } from "./sessionRegistry.js";

interface SentRecall extends SentRuns {
  readonly pid: number;
  /** The pipeline permit under which the runs were sent. Null if that permit has been revoked. */
  readonly permit: number | null;
}

/** A run whose lock the manager has taken, so that it cannot begin. */
interface WithheldRun extends RunLock {
  readonly session: number;
  readonly id: string;
}

/**
 * Recalls queued tasks, that is, takes them back from their sessions so that others can run them.
 *
 *   queued ──recall──▶ recalling ──not sent──▶ released
 *     ▲                    │ sent
 *     │                    ▼
 *     └──has begun── asked the server ──cannot begin──▶ released, in `recalledRuns` until the executor's answer
 *
 * Only the server knows whether a run that has been sent has begun. A session that has runs to send behind its current
 * one therefore needs a pipeline permit: an advisory lock that the manager holds. A run that was sent behind another
 * one begins only while the manager holds that lock. So once a permit is revoked, no run that was sent under it can
 * begin any more. In addition, each run holds a lock of its own from its beginning to its end. If a run still holds its
 * own lock after the permit was revoked, none of the runs sent behind it has begun.
 *
 * With users, any role can take the lock of a permit as soon as the manager releases it, so that the runs sent under it
 * could begin after all. So the manager also takes the locks of the recalled runs themselves, whose keys nobody else knows,
 * and keeps them until the executor has answered.
 *
 * Permits also end when the server ends the manager's connection. After losing its connection, the manager knows that
 * this has happened only when it has locked the table again: the lost connection held the table lock too.
 */
export class Recalls {
  readonly #registry: SessionRegistry;
  readonly #executors: ExecutorThreads;
  readonly #events: Pick<SessionPoolEvents, "result">;
  /** Recalls of runs that have been sent. Their sessions have no permit any more. */
  #sent: SentRecall[] = [];
  #unusedPermits: number[] = [];
  #withheld: WithheldRun[] = [];
  readonly #permitRequests = new Set<number>();
  /** Whether the manager's present connection holds the table lock. If so, no other connection holds permits. */
  #isTableLocked = true;

  constructor(registry: SessionRegistry, executors: ExecutorThreads, events: Pick<SessionPoolEvents, "result">) {
    this.#registry = registry;
    this.#executors = executors;
    this.#events = events;
  }

  get isPending(): boolean {
    return [...this.#registry].some(({ pendingRecalls }) => pendingRecalls > 0);
  }

  get needsServer(): boolean {
    if (this.#sent.length + this.#unusedPermits.length + this.#permitRequests.size > 0) return true;
    return this.#withheld.some((run) => !this.#isRecalled(run));
  }

  /**
   * Releases each of these tasks unless it has begun.
   *
   * @param isForDelay whether the current tasks take long. Then a task may stay if the one ahead of it has ended when the
   *   recall arrives.
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

  /** The executor has released what it had not sent. The rest is recalled from the server. */
  answered(answer: SentRuns): void {
    const session = this.#registry.get(answer.session);
    if (session === undefined || session.backend === null) return;
    const recall = { ...answer, permit: session.permit ?? null, pid: session.backend.pid };
    // If nothing was sent behind the current run, the session keeps its permit.
    if (answer.sent === null || answer.sent.length < 2) this.#abandon(recall);
    else {
      session.permit = null;
      this.#sent.push(recall);
    }
  }

  requestPermit(session: PooledSession): void {
    if (session.permit !== null || session.queue.size < 2 || isBlocked(session)) return;
    session.permit = undefined;
    this.#permitRequests.add(session.number);
  }

  sessionGone({ permit }: PooledSession): void {
    if (typeof permit === "number") this.#unusedPermits.push(permit);
  }

  /**
   * Called when the manager has a new connection. If it does not have the lock of the table, a lost connection may still
   * hold permits at the server. Then no run is recalled and no permit is granted.
   */
  attach(locked: boolean): void {
    this.#isTableLocked = locked;
  }

  /** Called when the connection that held all permits is gone. Each session has to request a new one. */
  detach(): void {
    for (const recall of this.#sent.splice(0)) this.#abandon({ ...recall, permit: null });
    this.#unusedPermits = [];
    this.#withheld = [];
    for (const session of this.#registry) {
      this.#takePermit(session.number);
      session.permit = null;
    }
    this.#permitRequests.clear();
  }

  /** Completes the recalls of runs that have been sent. Runs that can no longer begin are released. */
  async process(client: Client): Promise<void> {
    const requested = this.#sent.splice(0);
    if (!this.#isTableLocked) {
      for (const recall of requested) this.#abandon({ ...recall, permit: null });
      return;
    }
    const permits = this.#unusedPermits;
    // These lists belong to the present connection, because `detach` starts new ones.
    const unused: number[] = [];
    this.#unusedPermits = unused;
    const withheld = this.#withheld;
    const over = withheld.filter((run) => !this.#isRecalled(run));
    let recalls = requested;
    try {
      recalls = await this.#stillDelayed(client, requested);
      for (const { session, permit } of recalls) {
        // The session may have got another permit in the meantime, because another recall of its runs was abandoned.
        const current = this.#takePermit(session);
        permits.push(...[permit, current].filter((each) => each !== null));
      }
      const wanted = this.#registry.hasLanes ? recalls.flatMap(withholdable) : [];
      if (recalls.length + permits.length + over.length === 0) return;
      withheld.push(...wanted);
      const [, , taken, running] = await inOneWrite(client, () =>
        Promise.all([
          revokePermits(client, permits),
          over.length === 0 ? null : releaseRunLocks(client, over),
          wanted.length === 0 ? null : takeRunLocks(client, wanted),
          // Must be sent after the revocation and the locks. Only then does a run that is still executing prove that the
          // runs behind it have not begun.
          runningIn(client, recalls),
        ]),
      );
      for (const recall of recalls) {
        const sent = recall.sent ?? [];
        const index = sent.findIndex((run) => running.has(keyOf(recall.pid, run.lockKey)));
        const behind = index < 0 ? [] : sent.slice(index + 1);
        const unable = behind.filter(({ lockKey }) => taken?.has(keyOf(recall.pid, lockKey)) !== false);
        this.#complete(recall, new Set(unable.map(({ id }) => id)));
      }
      if (this.#withheld === withheld) this.#withheld = withheld.filter((run) => !over.includes(run));
    } catch (error) {
      // It is unknown which permits were revoked, so all of them are revoked later and the sessions get new ones.
      const affected = recalls.flatMap(({ permit }) => permit ?? []);
      unused.push(...new Set([...permits, ...affected]));
      for (const recall of recalls) this.#complete(recall, new Set());
      throw error;
    }
  }

  async grantPermits(client: Client): Promise<void> {
    if (this.#permitRequests.size === 0) return;
    const requests = [...this.#permitRequests].map((session) => ({ session, permit: randomLockKey() }));
    this.#permitRequests.clear();
    if (!this.#isTableLocked) return;
    let taken: ReadonlySet<number> = new Set();
    try {
      const permits = requests.map(({ permit }) => permit);
      taken = await takePermits(client, permits);
    } finally {
      for (const { session, permit } of requests) this.#setPermit(session, taken.has(permit) ? permit : null);
    }
  }

  #isRecalled({ session, id }: WithheldRun): boolean {
    return this.#registry.get(session)?.recalledRuns.has(id) === true;
  }

  /** Abandons recalls for the sake of a slow run that has ended. They are no longer worth their cost. */
  async #stillDelayed(client: Client, recalls: SentRecall[]): Promise<SentRecall[]> {
    const delayed = recalls.filter(({ queuedBehind }) => queuedBehind !== null);
    if (delayed.length === 0) return recalls;
    const running = await runningIn(client, delayed);
    return recalls.filter((recall) => {
      const { queuedBehind, pid, sent } = recall;
      if (queuedBehind === null || running.has(keyOf(pid, sent?.[0]?.lockKey))) return true;
      this.#abandon(recall);
      return false;
    });
  }

  /** The runs that have been sent stay in their session, and the session keeps its permit. */
  #abandon(recall: SentRecall): void {
    if (recall.permit !== null) this.#setPermit(recall.session, recall.permit);
    this.#complete(recall, new Set());
  }

  /** @param unable ids of the runs that had not begun when the session's permit was revoked. They are released. */
  #complete({ session: number, ids, queuedBehind }: RecalledRuns, unable: ReadonlySet<string>): void {
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
      this.#events.result({ outcome: "released", session: number, id }, session.backend.owner, queued);
    }
    // These tasks may have stayed because the delay was over. In a stale session they must not run, so they are
    // recalled again.
    if (session.stale && queuedBehind !== null) this.recall(ids, false);
    this.requestPermit(session);
  }

  /** If the session already has another permit, it keeps that one. */
  #setPermit(number: number, permit: number | null): void {
    const session = this.#registry.get(number);
    const hasOther = typeof session?.permit === "number" && session.permit !== permit;
    if (session !== undefined && !hasOther) {
      session.permit = permit;
      this.#executors.send(session.thread, { type: "pipelinePermit", session: number, permit });
    } else if (permit !== null) this.#unusedPermits.push(permit);
  }

  /** Takes the permit away, and returns it (null if there was none). Its lock is not released yet. */
  #takePermit(number: number): number | null {
    const session = this.#registry.get(number);
    const permit = session?.permit ?? null;
    if (session === undefined || permit === null) return null;
    session.permit = null;
    this.#setPermit(number, null);
    return permit;
  }
}

/** The runs that these sessions are executing, each identified by the backend's pid and the run's lock. */
async function runningIn(client: Client, recalls: readonly SentRecall[]): Promise<ReadonlySet<string>> {
  if (recalls.length === 0) return new Set();
  const pids = recalls.map(({ pid }) => pid);
  const held = await heldRunLocks(client, pids);
  return new Set(held.map(({ pid, lock }) => keyOf(pid, lock)));
}

const withholdable = ({ session, pid, ids, sent }: SentRecall): WithheldRun[] =>
  (sent ?? []).flatMap(({ id, lockKey }) => (ids.includes(id) ? { session, id, pid, lock: lockKey } : []));
