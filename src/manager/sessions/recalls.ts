import { inOneWrite, type Client } from "../../shared/postgres/client.js";
import { randomKey } from "../../shared/randomKey.js";
import type { SentRecall } from "./session.js";
import type { SessionPool } from "./sessionPool.js";
import { heldRunLocks, revokePermits, takePermits } from "./recallLocks.sql.js";

/**
 * Takes back runs that have been sent to the server behind another one, while that one goes on.
 *
 * Such a run begins only while the manager holds the lock of its session's permit, and takes a lock of its own
 * then, to its end. So once the permit is revoked, nothing that has been sent begins; and what was sent behind
 * a run that still holds its lock after that has not begun before. With the manager's connection all permits
 * are gone, too: for certain once the manager has the lock of the table again, which that connection held.
 *
 *     none ──something waits in the session──▶ permitted ──recall, connection lost──▶ none
 */
export class Recalls {
  readonly #sessions: SessionPool;
  #recalls: SentRecall[] = [];
  /** Permits of sessions that are no more. */
  #unused: number[] = [];
  /** Sessions that are to have a permit. */
  readonly #without = new Set<number>();
  /** Whether nobody holds permits but this connection. */
  #certain = true;

  constructor(sessions: SessionPool) {
    this.#sessions = sessions;
  }

  /** Whether there is something to do. */
  get pending(): boolean {
    return this.#recalls.length + this.#unused.length + this.#without.size > 0;
  }

  /** These runs of a session, which has a permit no more, are to be taken back. */
  add(recall: SentRecall): void {
    this.#recalls.push(recall);
  }

  /** A session has something to send behind what it runs. */
  wantPermit(session: number): void {
    this.#without.add(session);
  }

  /** Nothing that was sent under this permit is to begin any more. */
  revoke(permit: number): void {
    this.#unused.push(permit);
  }

  /**
   * There is another connection.
   *
   * @param locked whether it has the lock of the table. Else a connection that was lost may still hold permits
   *   at the server, so nothing is taken back, and nothing more is sent behind others.
   */
  attach(locked: boolean): void {
    this.#certain = locked;
  }

  /** The connection with the locks is gone. */
  lose(): void {
    for (const recall of this.#recalls.splice(0)) this.#sessions.leave({ ...recall, permit: null });
    this.#unused = [];
    this.#sessions.losePermits();
    this.#without.clear();
  }

  /** Takes back what can be taken back; that comes out as returned. */
  async send(client: Client): Promise<void> {
    const asked = this.#recalls.splice(0);
    if (!this.#certain) {
      for (const recall of asked) this.#sessions.leave({ ...recall, permit: null });
      return;
    }
    const permits = this.#unused;
    // Of this connection: `lose` begins another list.
    const unused: number[] = [];
    this.#unused = unused;
    let recalls = asked;
    try {
      recalls = await this.#stillHeldUp(client, asked);
      for (const { session, permit } of recalls) {
        // A session may have another one by now, since another recall of its was given up.
        const current = this.#sessions.giveUpPermit(session);
        permits.push(...[permit, current].filter((each) => each !== null));
      }
      if (recalls.length + permits.length === 0) return;
      const [, running] = await inOneWrite(client, () =>
        Promise.all([
          revokePermits(client, permits),
          // After that: what runs by now keeps the others from having begun.
          runningIn(client, recalls),
        ]),
      );
      for (const recall of recalls) {
        const front = recall.sent.findIndex((run) => running.has(keyOf(recall.pid, run.lock)));
        const behind = front < 0 ? [] : recall.sent.slice(front + 1).map(({ id }) => id);
        this.#sessions.withhold(recall, new Set(behind));
      }
    } catch (error) {
      // Which of them are revoked is not known: the sessions get others.
      const theirs = recalls.flatMap(({ permit }) => permit ?? []);
      unused.push(...new Set([...permits, ...theirs]));
      for (const recall of recalls) this.#sessions.withhold(recall, new Set());
      throw error;
    }
  }

  /** Those that wait behind something else than a run that has ended, so that it is worth what it costs. */
  async #stillHeldUp(client: Client, recalls: SentRecall[]): Promise<SentRecall[]> {
    const heldUp = recalls.filter(({ behind }) => behind !== null);
    if (heldUp.length === 0) return recalls;
    const running = await runningIn(client, heldUp);
    return recalls.filter((recall) => {
      const { behind, pid, sent } = recall;
      if (behind === null || running.has(keyOf(pid, sent[0]?.lock))) return true;
      this.#sessions.leave(recall);
      return false;
    });
  }

  /** Gives permits to the sessions that are to have one. */
  async permit(client: Client): Promise<void> {
    if (this.#without.size === 0) return;
    const asked = [...this.#without].map((session) => ({ session, permit: randomKey() }));
    this.#without.clear();
    if (!this.#certain) return;
    let taken: ReadonlySet<number> = new Set();
    try {
      taken = await takePermits(
        client,
        asked.map(({ permit }) => permit),
      );
    } finally {
      for (const { session, permit } of asked)
        this.#sessions.permit(session, taken.has(permit) ? permit : null);
    }
  }
}

/** What runs in these sessions, by their server processes and the locks of the runs. */
async function runningIn(
  client: Client,
  recalls: readonly SentRecall[],
): Promise<ReadonlySet<string>> {
  if (recalls.length === 0) return new Set();
  const held = await heldRunLocks(
    client,
    recalls.map(({ pid }) => pid),
  );
  return new Set(held.map(({ pid, lock }) => keyOf(pid, lock)));
}

const keyOf = (pid: number, lock: number | undefined): string => `${pid} ${lock}`;
