import type { ClaimedTask } from "../model/tasks.js";
import type { ActiveGroups } from "../groups/groups.js";
import type { RunTimes } from "./runTimes.js";
import type { PooledSession, SessionPoolEvents } from "./session.js";
import type { QueuedTask } from "./sessionQueue.js";
import { slowRunMs } from "../../shared/tuning.js";
import { minQueuedMs } from "../model/tuning.js";

export interface SlowRunMonitorOptions {
  readonly groups: ActiveGroups;
  readonly runTimes: RunTimes;
  /** Whether one more session could be given a task, of a group that already runs something or of another. */
  readonly mayUseMore: (groupRuns: boolean) => boolean;
  readonly recall: (ids: readonly string[]) => void;
  readonly events: Pick<SessionPoolEvents, "started" | "changed">;
}

/**
 * While sessions are busy, checks which of them are delayed by a run that takes longer than expected. Executors report
 * slow runs too, but only after the server has answered, and only the manager knows which sessions are free.
 *
 *   idle ──start──▶ waiting ──timer──▶ check ──some session has tasks──▶ waiting
 *     ▲                                  └──none──┐
 *     └───────────────────────────────────────────┘
 */
export class SlowRunMonitor {
  readonly #sessions: Iterable<PooledSession>;
  readonly #options: SlowRunMonitorOptions;
  readonly #timer = new CheckTimer(slowRunMs / 2, () => this.#check());

  constructor(sessions: Iterable<PooledSession>, options: SlowRunMonitorOptions) {
    this.#sessions = sessions;
    this.#options = options;
  }

  /** Monitoring ends by itself when no session has tasks. */
  start(): void {
    this.#timer.start();
  }

  /** Reports slow tasks as started, and recalls those behind them and those that others could run earlier. */
  #check(): void {
    const { runTimes, recall, events } = this.#options;
    const recalled: string[] = [];
    let [isBusy, changed] = [false, false];
    const findMovable = this.#movableFinder();
    for (const session of this.#sessions) {
      const { current, currentMs, queued } = session.queue;
      if (current === null || (current.isSlow && queued.length === 0)) continue;
      isBusy = true;
      const isSlow = currentMs >= slowRunMs;
      if (isSlow && !current.isSlow) {
        current.isSlow = changed = true;
        // Other tasks of this group may well take as long.
        runTimes.add(current.task.hash, slowRunMs);
        this.#reportStart(session, current);
      }
      const delayed = isSlow ? queued : findMovable(queued, current);
      if (!session.slow && (isSlow || delayed.length > 0)) session.slow = changed = true;
      recalled.push(...delayed.map(({ task }) => task.id));
    }
    if (recalled.length > 0) recall(recalled);
    if (isBusy) this.#timer.start();
    if (changed) events.changed(true);
  }

  /**
   * Returns a function that chooses which queued tasks of a session to recall so that another session can run them: if
   * one of those that the group limit allows to move is overdue, all of them.
   */
  #movableFinder(): (queued: readonly QueuedTask[], current: QueuedTask) => readonly QueuedTask[] {
    const { groups, mayUseMore } = this.#options;
    const now = performance.now();
    if (!mayUseMore(false)) return () => [];
    const canUseUnreserved = mayUseMore(true);
    const hasUnused = [...this.#sessions].some(({ unused }) => unused);
    const canSteal = hasUnused && groups.startable.size === 0;
    const isDelayed = ({ assignedAt, expectedAt }: QueuedTask): boolean =>
      now - expectedAt >= slowRunMs || (canSteal && now - assignedAt >= minQueuedMs);
    return (queued, current) => {
      const movable = queued.filter(
        ({ task }) =>
          canMove(task, current.task, groups) &&
          (canUseUnreserved || (groups.shares?.runs(task) ?? countOthers(task, current.task, groups)) === 0),
      );
      return movable.some(isDelayed) ? movable : [];
    };
  }

  #reportStart({ backend }: PooledSession, current: QueuedTask): void {
    if (current.isStartWritten || backend === null) return;
    current.isStartWritten = true;
    this.#options.events.started({ id: current.task.id, owner: backend.owner, start: null });
  }
}

/** Whether the group limit allows a queued task to run in another session. */
export const canMove = (task: ClaimedTask, current: ClaimedTask, groups: ActiveGroups): boolean =>
  task.max >= countOthers(task, current, groups);

/**
 * How many sessions have other tasks of the group once a queued task runs in another session. Its present session counts
 * only if the session's current task belongs to the same group.
 */
function countOthers({ hash }: ClaimedTask, current: ClaimedTask, groups: ActiveGroups): number {
  const running = groups.get(hash)?.running ?? 0;
  return current.hash === hash ? running : running - 1;
}

/** A one-shot timer that lets messages that have arrived be handled first, and keeps no process alive. */
export class CheckTimer {
  readonly #ms: number;
  readonly #check: () => void;
  #isRunning = false;

  constructor(ms: number, check: () => void) {
    this.#ms = ms;
    this.#check = check;
  }

  start(): void {
    if (this.#isRunning) return;
    this.#isRunning = true;
    this.#wait(true);
  }

  /** @param canRepeat whether to wait once more if this thread was too busy for the timer to fire in time */
  #wait(canRepeat: boolean): void {
    const from = performance.now();
    setTimeout(() => {
      const isLate = performance.now() - from > 2 * this.#ms;
      if (!isLate) this.#fire();
      else if (canRepeat) this.#wait(false);
      // A thread that is always late must not wait again and again, or this timer would never fire. `setImmediate`
      // still lets messages that have arrived be handled first.
      else setImmediate(() => this.#fire());
    }, this.#ms).unref();
  }

  #fire(): void {
    this.#isRunning = false;
    this.#check();
  }
}
