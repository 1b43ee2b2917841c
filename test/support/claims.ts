import type { ClaimRequest } from "../../src/manager/claim/claimFull.sql.js";
import type { StartLimits } from "../../src/manager/sessions/sessionReserve.js";
import type { DedicatedSession } from "../../src/manager/model/tasks.js";

/**
 * Returns one queue slot for each of `count` sessions with empty queues. Their owners are `owner 0`, `owner 1` and so
 * on.
 */
export function emptySlots(count: number): ClaimRequest["slots"] {
  return Array.from({ length: count }, (_, index) => ({
    owner: `owner ${index}`,
    pid: 1000 + index,
    startsNow: true,
  }));
}

/** Lets `all` more sessions become busy, none of which is reserved. */
export const unreservedStarts = (all: number): StartLimits => ({ all, unreserved: all, reserved: 0 });

/** Returns a claim request that reads groups from their first task, for sessions with empty queues. */
export function claimOf(
  running: ReadonlyMap<number, number>,
  options: {
    readonly sessions: number;
    readonly lookAhead?: number;
    readonly except?: readonly string[];
    readonly dedicated?: readonly DedicatedSession[];
    /** How long the groups have had no start, in ms; for ever by default. */
    readonly quietMs?: number;
  },
): ClaimRequest {
  const { sessions, lookAhead = 0, except = [], dedicated = [], quietMs = Infinity } = options;
  const maxCandidates = sessions + lookAhead;
  return {
    groups: [...running].map(([hash, count]) => ({
      hash,
      running: count,
      max: 2_147_483_647,
      id: -(2n ** 63n),
      quietMs,
      maxTasks: maxCandidates,
      ownSlots: null,
    })),
    slots: emptySlots(sessions),
    dedicated,
    maxCandidates,
    except,
  };
}
