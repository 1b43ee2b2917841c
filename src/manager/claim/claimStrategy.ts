/**
 * Which claim is sent when:
 *
 * - The **single claim** (claimSingle.sql.ts) is sent when nothing runs and no due task is known. It takes the only due
 *   task of the table without knowing the task's group. If several tasks are due, it takes none of them. The group scan
 *   of the same cycle then reads the head of each group, and a full claim follows.
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

/**
 * Returns whether a single claim is possible. The group of its task is not known in advance. Therefore nothing may be
 * running (so no key runs either), no group may be withheld from claims or wait for a gap, and no task may be known that
 * would have to start first.
 */
export function canClaimSingle(
  { totalRunning, startable, hasWithheld, hasGapWaits }: ActiveGroups,
  { blocksAnyGroup }: PendingResults,
): boolean {
  return totalRunning === 0 && startable === 0 && !hasWithheld && !hasGapWaits && !blocksAnyGroup;
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
        return { ...emptyClaim, claimed, heads: heads.map((head) => ({ ...head, paused: false, gapMs: 0 })) };
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
