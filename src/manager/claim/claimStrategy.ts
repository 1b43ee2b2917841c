/**
 * Which claim is sent when:
 *
 * - The **small claim** (claimSmall.sql.ts) reads all due tasks of the table, starts those that can start, and says what
 *   else a cycle has to know, so that no scan is needed. It is sent if sessions are free and few tasks are due. If it
 *   meets a task with special needs, or more tasks than it can take, it takes none. A scan, which reads the head of each
 *   group, and a full claim then follow in the same cycle, and no small claims are sent until no due task is left.
 * - The **queued claim** (claimQueued.sql.ts) does the same as the full claim with three quarters of the work. It is
 *   sent when no session is free and all tasks would be queued behind tasks of their own group. If it meets a task that
 *   is late, is exclusive, or belongs to a paused group, full claims follow until a full claim meets no such task.
 * - The **full claim** (claimFull.sql.ts) handles every case. It is sent when sessions are free, and whenever the other
 *   two do not apply or have failed.
 */
import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { ActiveGroups } from "../groups/groups.js";
import type { PendingResults } from "../results/pendingResults.js";
import { claimFull, type ClaimRequest, type ClaimResult } from "./claimFull.sql.js";
import { claimQueued, isQueuedClaim } from "./claimQueued.sql.js";
import { maxGroupsOfSmallClaim } from "../model/tuning.js";

/**
 * Returns whether a small claim is possible. It knows nothing of groups that are withheld from claims or wait for a gap,
 * and it is told of every group that has tasks in sessions, so these must not be many.
 */
export function canClaimSmall(
  { hasWithheld, hasGapWaits, size }: ActiveGroups,
  { blocksAnyGroup }: PendingResults,
): boolean {
  return size <= maxGroupsOfSmallClaim && !hasWithheld && !hasGapWaits && !blocksAnyGroup;
}

/** The result of a claim that found nothing. */
export const emptyClaim: ClaimResult = {
  claimed: [],
  late: [],
  locked: [],
  heads: [],
  more: 0,
  moreOf: new Set(),
  exclusive: 0,
};

/** Sends each claim as a queued claim if possible, and otherwise as a full claim. */
export class ClaimStrategy {
  readonly #table: TaskTable;
  readonly #log: Log;
  /** Whether the last claim found a task that only a full claim can handle. */
  #needsFull = false;

  constructor(table: TaskTable, log: Log) {
    this.#table = table;
    this.#log = log;
  }

  get needsFull(): boolean {
    return this.#needsFull;
  }

  async claim(client: Client, request: ClaimRequest): Promise<ClaimResult> {
    if (!this.#needsFull && isQueuedClaim(request)) {
      try {
        const { needsFull, claimed, heads } = await claimQueued(client, this.#table, request);
        this.#needsFull = needsFull;
        return {
          ...emptyClaim,
          claimed,
          heads: heads.map((head) => ({ ...head, paused: false, gapMs: 0, exclusive: false })),
        };
      } catch (error) {
        if (!isTransient(error)) throw error;
        this.#log.debug({ err: error }, "queued claim failed, sending a full claim");
      }
    }
    const result = await claimFull(client, this.#table, request);
    const { late, locked, exclusive, claimed, heads } = result;
    this.#needsFull =
      late.length + locked.length + exclusive > 0 ||
      claimed.some((task) => task.exclusive) ||
      heads.some(({ paused }) => paused);
    return result;
  }
}
