import type { ActiveGroup } from "../groups/activeGroup.js";
import type { Shares } from "../groups/shares.js";
import type { RunTimes } from "../sessions/runTimes.js";
import type { QueueableSession, QueueSlot } from "../model/tasks.js";
import { shortRunMs, slotsPerMeasuredRun } from "../model/tuning.js";

/** The free slots in the queues of busy sessions, for tasks that are expected to be short. */
export class QueueCapacity {
  readonly #sessions: QueueableSession[];
  readonly #runTimes: RunTimes;
  readonly #shares: Shares | null;
  readonly #byGroup = new Map<number, QueueableSession[]>();

  constructor(sessions: readonly QueueableSession[], runTimes: RunTimes, shares: Shares | null = null) {
    this.#sessions = [...sessions];
    this.#runTimes = runTimes;
    this.#shares = shares;
    for (const session of sessions) {
      for (const hash of session.groups) {
        const others = this.#byGroup.get(hash);
        if (others === undefined) this.#byGroup.set(hash, [session]);
        else others.push(session);
      }
    }
  }

  get isExhausted(): boolean {
    return this.#sessions.length === 0;
  }

  /** Keeps the `count` least busy sessions from getting more tasks. */
  reserve(count: number): void {
    for (let each = 0; each < count; each += 1) {
      const session = leastBusy(this.#sessions);
      if (session === null) return;
      this.#sessions.splice(this.#sessions.indexOf(session), 1);
      session.expectedMs = Infinity;
    }
  }

  get groups(): number[] {
    return [...this.#byGroup.keys()];
  }

  /** Takes up to `maxSlots` slots behind tasks of the same group. */
  takeOwn(hash: number, maxSlots: number): QueueSlot[] {
    const expectedMs = this.#runTimes.expectedMs(hash);
    const sessions = this.#byGroup.get(hash) ?? [];
    const slots: QueueSlot[] = [];
    if (expectedMs === null) return slots;
    // While only few runs have been measured, the expected time is uncertain, so fewer slots are taken.
    const runs = this.#runTimes.count(hash) || this.#runTimes.count();
    const count = Math.min(maxSlots, slotsPerMeasuredRun * runs);
    while (slots.length < count) {
      const slot = take(leastBusy(sessions), expectedMs, this.#runTimes.maxOwnGroupMs);
      if (slot === null) break;
      slots.push(slot);
    }
    return slots;
  }

  /**
   * Whether a task of the group is expected to be short enough to queue behind tasks of any group. If no run of the group
   * has been measured yet, the run times of its share or of all groups decide, unless its first runs have started and not
   * ended.
   */
  isShort({
    hash,
    running,
    share = null,
  }: Pick<ActiveGroup, "hash" | "running"> & { readonly share?: string | null }): boolean {
    const isKnown = this.#runTimes.count(hash) > 0;
    if (running > 0 && !isKnown) return false;
    const ofShare = isKnown || share === null ? undefined : this.#shares?.expectedMs(share);
    return (ofShare ?? this.#runTimes.expectedMs(hash) ?? Infinity) <= shortRunMs;
  }

  /** Takes a queue slot for a task of this group, whatever groups the tasks ahead of it belong to. */
  takeAny(hash: number): QueueSlot | null {
    const expectedMs = this.#runTimes.expectedMs(hash) ?? Infinity;
    return take(leastBusy(this.#sessions), expectedMs, this.#runTimes.maxAnyGroupMs);
  }
}

function take(session: QueueableSession | null, expectedMs: number, maxMs: number): QueueSlot | null {
  if (session === null || session.expectedMs + expectedMs > maxMs) return null;
  session.expectedMs += expectedMs;
  return { owner: session.owner, pid: session.pid, startsNow: false };
}

function leastBusy(sessions: readonly QueueableSession[]): QueueableSession | null {
  let best: QueueableSession | null = null;
  for (const session of sessions) if (best === null || session.expectedMs < best.expectedMs) best = session;
  return best;
}
