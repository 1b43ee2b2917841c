import { IndexedHeap } from "../../shared/indexedHeap.js";
import { maxRememberedStarts } from "../model/tuning.js";
import type { ActiveGroup, GapWait } from "./activeGroup.js";

type Starts = Pick<ActiveGroup, "starting" | "queuedTasks" | "startedAt">;

/**
 * Enforces the column `gap`: a group cannot start a head with a gap until the gap has passed since the group's last
 * start. The gap counts from the start that the session reports, so that a session that is slow to start its task does
 * not shorten it. Until the report arrives, and while tasks of the group are queued, no task with a gap starts.
 *
 * Of the groups that are not active, only those that were active last are remembered. All times are in ms, on the
 * process's clock.
 */
export class Gaps {
  readonly #now: () => number;
  readonly #maxRemembered: number;
  readonly #waits = new IndexedHeap<GapWait>((a, b) => a.until < b.until);
  readonly #starts = new Map<number, number>();
  /** No group that is not remembered had a start after this time. */
  #othersStartedAt: number;
  #lastStartAt: number;

  /** @param now returns the time; until now, tasks of any group may have started */
  constructor(now: () => number, maxRemembered = maxRememberedStarts) {
    this.#now = now;
    this.#maxRemembered = maxRemembered;
    this.#othersStartedAt = this.#lastStartAt = now();
  }

  get hasWaits(): boolean {
    return this.#waits.size > 0;
  }

  /** Time until the next gap is over, in ms. Infinity if no group waits. */
  get nextMs(): number {
    const next = this.#waits.best;
    return next === null ? Infinity : Math.max(0, next.until - this.#now());
  }

  get ended(): ActiveGroup | null {
    const next = this.#waits.best;
    return next !== null && next.until <= this.#now() ? next.group : null;
  }

  /** How long no task of any group has started, in ms. */
  get allQuietMs(): number {
    return this.#now() - this.#lastStartAt;
  }

  /** How long no task of the group has started, in ms. -1 if a task may start at any moment. */
  quietMs(group: Starts): number {
    return mayStartAnyMoment(group) ? -1 : this.#now() - group.startedAt;
  }

  /** Whether the group must not start a task with this gap yet. */
  isWithin(group: Starts, gapMs: number): boolean {
    return gapMs > 0 && (mayStartAnyMoment(group) || this.#now() < group.startedAt + gapMs);
  }

  /**
   * Lets the group wait for the gap of its head, if need be.
   *
   * @param couldStart whether the group could start its head if it had no gap
   * @returns whether the group has to wait
   */
  wait(group: ActiveGroup, couldStart: boolean): boolean {
    const gapMs = group.head?.gapMs ?? 0;
    const isWaiting = couldStart && this.isWithin(group, gapMs);
    // While a task may start at any moment, it is not known when the gap ends.
    if (isWaiting && !mayStartAnyMoment(group)) {
      group.wait ??= { heapIndex: -1, group, until: 0 };
      group.wait.until = group.startedAt + gapMs;
      this.#waits.put(group.wait);
    } else if (group.wait !== null) this.#waits.remove(group.wait);
    return isWaiting;
  }

  /** Returns the latest time at which a task of a group that becomes active may have started. */
  take(hash: number): number {
    const startedAt = this.#starts.get(hash);
    this.#starts.delete(hash);
    return startedAt ?? this.#othersStartedAt;
  }

  remember(hash: number, startedAt: number): void {
    if (startedAt <= this.#othersStartedAt) return;
    this.#starts.set(hash, startedAt);
    if (this.#starts.size <= this.#maxRemembered) return;
    for (const [oldest, at] of this.#starts) {
      this.#starts.delete(oldest);
      this.#othersStartedAt = Math.max(this.#othersStartedAt, at);
      return;
    }
  }

  /** Returns the time of a start, now. */
  noteStart(): number {
    this.#lastStartAt = this.#now();
    return this.#lastStartAt;
  }

  /**
   * Forgets all starts.
   *
   * @param quietMs since when no task of any group has started, in ms
   * @returns the latest time at which a task of any group may have started
   */
  forget(quietMs: number): number {
    this.#starts.clear();
    this.#othersStartedAt = this.#lastStartAt = this.#now() - quietMs;
    return this.#lastStartAt;
  }
}

export const mayStartAnyMoment = ({ starting, queuedTasks }: Pick<ActiveGroup, "starting" | "queuedTasks">): boolean =>
  starting > 0 || queuedTasks > 0;
