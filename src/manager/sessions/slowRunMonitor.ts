import type { ActiveGroups } from "../groups/groups.js";
import type { RunTimes } from "./runTimes.js";
import type { PooledSession, SessionPoolEvents } from "./session.js";
import type { QueuedTask } from "./sessionQueue.js";
import { Watch } from "./watch.js";

/** After this a front is slow: what waits behind it is called back, in ms. */
export const slowMs = 50;
/** How long something waits at least before it is called back for a session that is free, in ms. */
const stealMs = 25;

/** Looks, while sessions are busy, which of them are held up by a run that takes longer than was expected. */
export class SlowFronts {
  readonly #sessions: ReadonlyMap<number, PooledSession>;
  readonly #groups: ActiveGroups;
  readonly #runTimes: RunTimes;
  readonly #recall: (ids: readonly string[]) => void;
  readonly #mayUseMore: () => boolean;
  readonly #events: Pick<SessionPoolEvents, "started" | "changed">;
  readonly #slowMs: number;
  readonly #watch: Watch;

  constructor(
    sessions: ReadonlyMap<number, PooledSession>,
    options: {
      readonly groups: ActiveGroups;
      readonly runTimes: RunTimes;
      /** Whether one more session may have something to do. */
      readonly mayUseMore: () => boolean;
      /** Calls runs back that have not begun. */
      readonly recall: (ids: readonly string[]) => void;
      readonly events: Pick<SessionPoolEvents, "started" | "changed">;
      /** After how long a front is slow, in ms. */
      readonly slowMs?: number;
    },
  ) {
    this.#sessions = sessions;
    this.#groups = options.groups;
    this.#runTimes = options.runTimes;
    this.#mayUseMore = options.mayUseMore;
    this.#recall = options.recall;
    this.#events = options.events;
    this.#slowMs = options.slowMs ?? slowMs;
    this.#watch = new Watch(this.#slowMs / 2, () => this.#look());
  }

  /** Sessions have something to do. */
  watch(): void {
    this.#watch.start();
  }

  /**
   * Calls back what waits behind a slow front, and has the front's own row say that it runs; and what could
   * run elsewhere by now.
   */
  #look(): void {
    const recalled: string[] = [];
    let [busy, changed] = [false, false];
    const movable = this.#movable();
    for (const session of this.#sessions.values()) {
      const { current: front, frontMs, waiting } = session.queue;
      if (front === null || (front.slow && waiting.length === 0)) continue;
      busy = true;
      const slow = frontMs >= this.#slowMs;
      if (slow && !front.slow) {
        front.slow = changed = true;
        // Others of its group may well be as long: that is not to be known only when it ends.
        this.#runTimes.add(front.hash, this.#slowMs);
        this.#show(session, front);
      }
      const late = slow ? waiting : movable(waiting, front);
      if (!session.slow && (slow || late.length > 0)) session.slow = changed = true;
      recalled.push(...late.map(({ id }) => id));
    }
    if (recalled.length > 0) this.#recall(recalled);
    if (busy) this.#watch.start();
    if (changed) this.#events.changed(true);
  }

  /**
   * Tells what of a session's waiting tasks is to be called back since it could run elsewhere, in a session that
   * is free or in one that may be opened: nothing before one of them has waited for longer than was expected.
   */
  #movable(): (waiting: readonly QueuedTask[], front: QueuedTask) => readonly QueuedTask[] {
    const now = performance.now();
    if (!this.#mayUseMore()) return () => [];
    const spare = [...this.#sessions.values()].some((session) => session.spare);
    const idle = spare && this.#groups.startable === 0;
    const isLate = ({ sinceMs, dueMs }: QueuedTask): boolean =>
      now - dueMs >= this.#slowMs || (idle && now - sinceMs >= stealMs);
    return (waiting, front) => {
      const others = waiting.filter((held) => mayMove(held, front, this.#groups));
      return others.some(isLate) ? others : [];
    };
  }

  #show({ backend }: PooledSession, front: QueuedTask): void {
    if (front.shown || backend === null) return;
    front.shown = true;
    this.#events.started({ id: front.id, owner: backend.owner, start: null });
  }
}

/**
 * Whether a waiting task could run in another session. Its own session counts for its group no longer then,
 * unless the front is of that group too.
 */
export function mayMove(
  { hash, max }: QueuedTask,
  front: QueuedTask,
  groups: ActiveGroups,
): boolean {
  const running = groups.get(hash)?.running ?? 0;
  return max >= (front.hash === hash ? running : running - 1);
}
