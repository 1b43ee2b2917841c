import { inOneWrite, type Client } from "../../shared/postgres/client.js";
import { randomLockKey } from "../../shared/postgres/advisoryLocks.js";
import type { SentRecall } from "./session.js";
import type { SessionRecalls } from "./sessionRecalls.js";
import { heldRunLocks, revokePermits, takePermits } from "./recallLocks.sql.js";

/**
 * Recalls runs that have been sent to the server behind another run, while that other run continues.
 *
 * A session that has runs to send behind its current one needs a pipeline permit: an advisory lock that the manager
 * holds. A run that was sent behind another one begins only while the manager holds that lock. So once a permit is
 * revoked, no run that was sent under it can begin any more. In addition, each run holds a lock of its own from its
 * beginning to its end. If a run still holds its own lock after the permit was revoked, none of the runs sent behind it
 * has begun.
 *
 * Permits also end when the server ends the manager's connection. After losing its connection, the manager knows that
 * this has happened only when it has locked the table again: the lost connection held the table lock too.
 *
 *     none ──a task is queued in the session──▶ permitted ──recall, connection lost──▶ none
 */
export class PipelineRecalls {
  readonly #sessions: SessionRecalls;
  #recalls: SentRecall[] = [];
  /** Permits to revoke. */
  #unusedPermits: number[] = [];
  /** Numbers of the sessions that need a permit. */
  readonly #permitRequests = new Set<number>();
  /** Whether the manager's present connection holds the table lock. If so, no other connection holds permits. */
  #isTableLocked = true;

  constructor(sessions: SessionRecalls) {
    this.#sessions = sessions;
  }

  /** Whether there are recalls, revocations or permit requests to process. */
  get isPending(): boolean {
    return this.#recalls.length + this.#unusedPermits.length + this.#permitRequests.size > 0;
  }

  /** Adds a recall of runs. Their session must not have a permit any more. */
  add(recall: SentRecall): void {
    this.#recalls.push(recall);
  }

  /** Requests a permit for a session that has runs to send behind its current one. */
  requestPermit(session: number): void {
    this.#permitRequests.add(session);
  }

  /** Has a permit revoked, so that no run sent under it can begin any more. */
  revoke(permit: number): void {
    this.#unusedPermits.push(permit);
  }

  /**
   * Called when the manager has a new connection.
   *
   * @param locked whether the new connection has the lock of the table. If not, a lost connection may still
   *   hold permits at the server. Then no run is recalled and no permit is granted.
   */
  attach(locked: boolean): void {
    this.#isTableLocked = locked;
  }

  /** Called when the connection that held the locks of all permits is gone. Abandons all recalls. */
  detach(): void {
    for (const recall of this.#recalls.splice(0)) this.#sessions.abandon({ ...recall, permit: null });
    this.#unusedPermits = [];
    this.#sessions.resetPermits();
    this.#permitRequests.clear();
  }

  /** Completes the recalls. Runs that can no longer begin are released. */
  async process(client: Client): Promise<void> {
    const requested = this.#recalls.splice(0);
    if (!this.#isTableLocked) {
      for (const recall of requested) this.#sessions.abandon({ ...recall, permit: null });
      return;
    }
    const permits = this.#unusedPermits;
    // This list belongs to the present connection, because `detach` starts a new list.
    const unused: number[] = [];
    this.#unusedPermits = unused;
    let recalls = requested;
    try {
      recalls = await this.#stillDelayed(client, requested);
      for (const { session, permit } of recalls) {
        // The session may have got another permit in the meantime, because another recall of its runs was abandoned.
        const current = this.#sessions.takePermit(session);
        permits.push(...[permit, current].filter((each) => each !== null));
      }
      if (recalls.length + permits.length === 0) return;
      const [, running] = await inOneWrite(client, () =>
        Promise.all([
          revokePermits(client, permits),
          // Must be sent after the revocation. Only then does a run that is still executing prove that the runs behind
          // it have not begun.
          runningIn(client, recalls),
        ]),
      );
      for (const recall of recalls) {
        const index = recall.sent.findIndex((run) => running.has(keyOf(recall.pid, run.lockKey)));
        const unable = index < 0 ? [] : recall.sent.slice(index + 1).map(({ id }) => id);
        this.#sessions.complete(recall, new Set(unable));
      }
    } catch (error) {
      // It is unknown which permits were revoked, so all of them are revoked later and the sessions get new ones.
      const affected = recalls.flatMap(({ permit }) => permit ?? []);
      unused.push(...new Set([...permits, ...affected]));
      for (const recall of recalls) this.#sessions.complete(recall, new Set());
      throw error;
    }
  }

  /**
   * Abandons recalls that were meant to avoid waiting for a slow run, if that run has ended. Such a recall is no longer
   * worth its cost.
   */
  async #stillDelayed(client: Client, recalls: SentRecall[]): Promise<SentRecall[]> {
    const delayed = recalls.filter(({ queuedBehind }) => queuedBehind !== null);
    if (delayed.length === 0) return recalls;
    const running = await runningIn(client, delayed);
    return recalls.filter((recall) => {
      const { queuedBehind, pid, sent } = recall;
      if (queuedBehind === null || running.has(keyOf(pid, sent[0]?.lockKey))) return true;
      this.#sessions.abandon(recall);
      return false;
    });
  }

  /** Grants the requested permits, as far as their locks can be taken. */
  async grantPermits(client: Client): Promise<void> {
    if (this.#permitRequests.size === 0) return;
    const requests = [...this.#permitRequests].map((session) => ({
      session,
      permit: randomLockKey(),
    }));
    this.#permitRequests.clear();
    if (!this.#isTableLocked) return;
    let taken: ReadonlySet<number> = new Set();
    try {
      taken = await takePermits(
        client,
        requests.map(({ permit }) => permit),
      );
    } finally {
      for (const { session, permit } of requests) this.#sessions.setPermit(session, taken.has(permit) ? permit : null);
    }
  }
}

/** Returns the runs that these sessions are executing, each identified by the backend's pid and the run's lock. */
async function runningIn(client: Client, recalls: readonly SentRecall[]): Promise<ReadonlySet<string>> {
  if (recalls.length === 0) return new Set();
  const held = await heldRunLocks(
    client,
    recalls.map(({ pid }) => pid),
  );
  return new Set(held.map(({ pid, lock }) => keyOf(pid, lock)));
}

const keyOf = (pid: number, lock: number | undefined): string => `${pid} ${lock}`;
