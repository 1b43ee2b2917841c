import { shortMs, type RunTimes } from "../sessions/runTimes.js";
import type { QueueableSession } from "../sessions/session.js";
import type { QueueSlot } from "./claimFull.sql.js";

/** Places in the queues of busy sessions, for tasks that are expected to be short. */
export class QueueCapacity {
  readonly #sessions: QueueableSession[];
  readonly #runTimes: RunTimes;
  readonly #ofGroup = new Map<number, QueueableSession[]>();

  constructor(sessions: readonly QueueableSession[], runTimes: RunTimes) {
    this.#sessions = [...sessions];
    this.#runTimes = runTimes;
    for (const session of sessions) {
      for (const hash of session.groups) {
        const others = this.#ofGroup.get(hash);
        if (others === undefined) this.#ofGroup.set(hash, [session]);
        else others.push(session);
      }
    }
  }

  get none(): boolean {
    return this.#sessions.length === 0;
  }

  /** Leaves the `count` least busy sessions to run dry. */
  reserve(count: number): void {
    for (let each = 0; each < count; each += 1) {
      const session = least(this.#sessions);
      if (session === null) return;
      this.#sessions.splice(this.#sessions.indexOf(session), 1);
      session.aheadMs = Infinity;
    }
  }

  /** Of which groups sessions have tasks. */
  get groups(): number[] {
    return [...this.#ofGroup.keys()];
  }

  /** At most `most` places behind tasks of the same group. */
  behindOwn(hash: number, most: number): QueueSlot[] {
    const expected = this.#runTimes.expected(hash);
    const sessions = this.#ofGroup.get(hash) ?? [];
    const places: QueueSlot[] = [];
    if (expected === null) return places;
    // What is expected rests on few runs at first.
    const known = this.#runTimes.known(hash) || this.#runTimes.known();
    const enough = Math.min(most, 2 * known);
    while (places.length < enough) {
      const place = take(least(sessions), expected, this.#runTimes.mostOwnMs);
      if (place === null) break;
      places.push(place);
    }
    return places;
  }

  /**
   * Whether a task of the group is expected to be short enough to be put behind any others. Of a group
   * that nothing is known of yet, the first that run will tell; others' runs speak for it until then.
   */
  suits({ hash, running }: { readonly hash: number; readonly running: number }): boolean {
    if (running > 0 && this.#runTimes.known(hash) === 0) return false;
    return (this.#runTimes.expected(hash) ?? Infinity) <= shortMs;
  }

  /** A place behind tasks of whatever group; null when there is none for a task of this one. */
  behindAny(hash: number): QueueSlot | null {
    const expected = this.#runTimes.expected(hash) ?? Infinity;
    return take(least(this.#sessions), expected, this.#runTimes.mostAnyMs);
  }
}

function take(
  session: QueueableSession | null,
  expectedMs: number,
  mostMs: number,
): QueueSlot | null {
  if (session === null || session.aheadMs + expectedMs > mostMs) return null;
  session.aheadMs += expectedMs;
  return { owner: session.owner, pid: session.pid, front: false };
}

function least(sessions: readonly QueueableSession[]): QueueableSession | null {
  let best: QueueableSession | null = null;
  for (const session of sessions)
    if (best === null || session.aheadMs < best.aheadMs) best = session;
  return best;
}
