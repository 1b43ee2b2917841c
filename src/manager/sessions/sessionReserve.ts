import type { Entry } from "../../shared/config/types.js";
import { reservedSessions } from "../../shared/reservedSessions.js";
import type { ActiveGroups } from "../groups/groups.js";
import type { PoolScaler } from "./poolScaler.js";
import type { SessionPool } from "./sessionPool.js";

export interface StartLimits {
  /** How many more sessions can become busy. */
  readonly all: number;
  /** How many of them a group may take that already runs something. The rest is reserved for the others. */
  readonly unreserved: number;
  /** How many groups that run nothing can get a session before their turn, even beyond `all`. */
  readonly reserved: number;
}

export const noStarts: StartLimits = { all: 0, unreserved: 0, reserved: 0 };

/** Returns the limits after a claim that has started `count` tasks. */
export function afterStarts(
  { all, unreserved, reserved }: StartLimits,
  count: number,
  { usesReserve }: { readonly usesReserve: boolean },
): StartLimits {
  const rest = all - count;
  if (usesReserve) return { all: rest, unreserved: Math.min(rest, unreserved), reserved: reserved - count };
  return { all: rest, unreserved: unreserved - count, reserved };
}

interface SessionReserveComponents {
  readonly sessions: Pick<SessionPool, "size" | "closing" | "free" | "busy">;
  readonly groups: ActiveGroups;
  readonly poolScaler: Pick<PoolScaler, "granted" | "isAtLimit" | "usableSessions">;
  readonly maxRuns: number;
  readonly entry: Entry;
}

/**
 * The reserve (`pg_conf.reserve`): the last few sessions, which groups that already run something leave to groups that
 * run nothing. Otherwise a group whose tasks may all run at once, and come first because of their large `max`, would
 * keep all others from starting until its last task has started.
 *
 * A group that has got a reserved session before its turn uses up a part of the reserve while tasks of it run. While more
 * sessions can be opened, none has to be kept free: a session is opened for the group that needs it.
 */
export class SessionReserve {
  readonly #components: SessionReserveComponents;

  constructor(components: SessionReserveComponents) {
    this.#components = components;
  }

  get size(): number {
    const { entry, groups, maxRuns, poolScaler } = this.#components;
    // With shares, those that run something do not take the last of the sessions that are still to be opened either.
    const sessions = groups.shares === null ? this.#open : Math.max(this.#open, poolScaler.granted);
    return reservedSessions(Math.min(sessions, maxRuns), entry.parameters["pg_conf.reserve"]);
  }

  /** How many reserved sessions no group has got before its turn. */
  get left(): number {
    return Math.max(0, this.size - this.#components.groups.usingReserve);
  }

  /** How many free sessions are kept from the tasks that are due. */
  get kept(): number {
    return this.#components.poolScaler.isAtLimit && this.#components.groups.startable.needReserve ? this.left : 0;
  }

  get starts(): StartLimits {
    const { groups, maxRuns, poolScaler, sessions } = this.#components;
    const { left } = this;
    const allowed = Math.max(0, maxRuns - groups.totalRunning);
    const all = Math.min(allowed, poolScaler.usableSessions);
    // How many sessions there can be, as far as is known.
    const openLimit = poolScaler.isAtLimit ? this.#open : groups.shares === null ? Infinity : poolScaler.granted;
    const unreserved = Math.max(0, Math.min(all, allowed - left, openLimit - left - sessions.busy));
    return { all, unreserved, reserved: Math.min(allowed, left) };
  }

  /** Whether the limits allow one more task of a group that already runs something, or of one that does not. */
  allows(groupRuns: boolean): boolean {
    const { unreserved } = this.starts;
    return groupRuns ? unreserved > 0 : this.#components.groups.totalRunning < this.#components.maxRuns;
  }

  get #open(): number {
    return this.#components.sessions.size - this.#components.sessions.closing;
  }
}
