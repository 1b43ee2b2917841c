import type { ActiveGroups } from "../groups/groups.js";
import type { ClaimComponents } from "./claimComponents.js";
import type { ClaimResult } from "./claimFull.sql.js";

/** Counts the tasks that could start after the last claim if there were sessions for them, at most `lookAhead`. */
export function countMore(
  { groups, sessions }: Pick<ClaimComponents, "groups" | "sessions">,
  { claimed, more: read, moreOf }: ClaimResult,
  reserved: number,
  lookAhead: number,
): number {
  const { idle, passIdleOver, size } = groups.startable;
  // The claim counts only tasks in groups whose tasks were read. Every other startable group adds one known task: its
  // head.
  const counted = [...moreOf].filter((hash) => groups.canStart(hash)).length;
  let more = read + size - counted;
  if (groups.shares !== null) more += expectMore(groups, new Set([...moreOf, ...claimed.map(({ hash }) => hash)]));
  if (more < lookAhead) more += sessions.countMovable(lookAhead - more);
  // A group that is to get a reserved session needs one to be opened if none is free.
  return Math.max(passIdleOver ? Math.min(reserved, idle) : 0, Math.min(lookAhead, more));
}

/**
 * With shares, a claim reads no more tasks than it gives sessions to. So it is not known how many more there are, and
 * each of these groups is expected to have as many as it runs.
 */
function expectMore(groups: ActiveGroups, hashes: ReadonlySet<number>): number {
  let more = 0;
  for (const hash of hashes) {
    const group = groups.get(hash);
    if (group === null || group.heapIndex < 0 || group.head === null) continue;
    more += Math.min(group.running, group.head.max - group.running);
  }
  return more;
}
