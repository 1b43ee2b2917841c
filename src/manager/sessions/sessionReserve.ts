import { reservedSessions } from "../../shared/reservedSessions.js";
import type { StartLimits } from "./startLimits.js";
import type { ActiveGroups } from "../groups/groups.js";
import type { PoolScaler } from "./poolScaler.js";
import type { SessionPool } from "./sessionPool.js";

interface SessionReserveOptions {
  readonly sessions: Pick<SessionPool, "size" | "closing" | "free" | "busy">;
  readonly groups: ActiveGroups;
  readonly poolScaler: Pick<PoolScaler, "isAtLimit" | "usableSessions">;
  /** Returns the maximum number of running tasks, `pg_task.run`. */
  readonly maxRuns: () => number;
  /** Returns the value of `pg_conf.reserve`. */
  readonly setting: () => number;
}

/**
 * The reserve (`pg_conf.reserve`): the last few sessions, which groups that already run something leave to groups that
 * run nothing. Otherwise a group whose tasks may all run at once, and come first because of their large `max`, would
 * keep all others from starting until its last task has started.
 *
 * A group that has got a reserved session before its turn uses up a part of the reserve while tasks of it run. So the
 * reserve never keeps more than that many sessions from the groups whose turn it is.
 *
 * While more sessions can be opened, none has to be kept free: a session is opened for the group that needs it.
 */
export class SessionReserve {
  readonly #options: SessionReserveOptions;

  constructor(options: SessionReserveOptions) {
    this.#options = options;
  }

  /** How many sessions are reserved. */
  get size(): number {
    return reservedSessions(Math.min(this.#open, this.#options.maxRuns()), this.#options.setting());
  }

  /** How many reserved sessions no group has got before its turn. */
  get left(): number {
    return Math.max(0, this.size - this.#options.groups.usingReserve);
  }

  /** How many free sessions are kept from the tasks that are due. */
  get kept(): number {
    return this.#options.poolScaler.isAtLimit && this.#options.groups.startable.needReserve ? this.left : 0;
  }

  /** How many sessions can become busy. */
  get starts(): StartLimits {
    const { totalRunning } = this.#options.groups;
    const allowed = Math.max(0, this.#options.maxRuns() - totalRunning);
    const all = Math.min(allowed, this.#options.poolScaler.usableSessions);
    const { left } = this;
    const unreserved = Math.max(0, Math.min(all, allowed - left, this.#openLimit - left - this.#options.sessions.busy));
    return { all, unreserved, reserved: Math.min(allowed, left) };
  }

  /** Whether the limits allow one more task of a group that already runs something, or of one that does not. */
  allows(groupRuns: boolean): boolean {
    const { unreserved } = this.starts;
    return groupRuns ? unreserved > 0 : this.#options.groups.totalRunning < this.#options.maxRuns();
  }

  get #open(): number {
    return this.#options.sessions.size - this.#options.sessions.closing;
  }

  /** How many sessions there can be, as far as is known. */
  get #openLimit(): number {
    return this.#options.poolScaler.isAtLimit ? this.#open : Infinity;
  }
}
