import type { OwnedResult } from "../model/tasks.js";
import { maxGroupsOfSmallClaim } from "../model/tuning.js";
import { isPlainResult } from "../results/completePlain.sql.js";
import type { ReleasedTask } from "../results/pendingResults.js";
import type { ClaimComponents } from "./claimComponents.js";
import type { ClaimRequest, ClaimResult } from "./claimFull.sql.js";
import { canBePlain } from "./claimPlain.sql.js";

/**
 * How a cycle finds out which tasks are due: by a scan of the groups, or by a small claim, which also takes the tasks.
 * `nothing` means that it is known, because only results have changed, and only their own rows.
 */
export type Look = "small claim" | "scan" | "nothing";

export interface CycleStart {
  readonly results: readonly OwnedResult[];
  readonly released: readonly ReleasedTask[];
  /** Whether the table may have changed since the last cycle. */
  readonly mayHaveChanged: boolean;
  /** How many free sessions are kept from the tasks that are due. */
  readonly kept: number;
  /** The interval between checks of the table, in ms. */
  readonly sleepMs: number;
}

export interface ChosenClaims {
  readonly look: Look;
  /** Whether a full claim is sent together with the results, before the answer to the look is known. */
  readonly isEarly: boolean;
  /**
   * Whether every session is busy, except those that are kept from the waiting tasks, and more tasks are waiting. Then
   * the next cycle starts as soon as a session has less to do.
   */
  readonly isSaturated: boolean;
}

/**
 * Decides which claim is sent when:
 *
 * - The **small claim** (claimSmall.sql.ts) reads all due tasks of the table, starts those that can start, and says what
 *   else a cycle has to know, so that no scan is needed. It is sent if sessions are free and few tasks are due. If it
 *   meets a task with special needs, or more tasks than it can take, it takes none. A scan, which reads the head of each
 *   group, and a full claim then follow in the same cycle, and no small claims are sent until no due task is left.
 * - The **plain claim** (claimPlain.sql.ts) does what the full claim does if each task has its slot, with less work: it
 *   queues behind tasks of its own group, or is the only one of its group. If the claim meets a task with special needs,
 *   it takes none, and full claims follow until one meets no such task.
 * - The **full claim** (claimFull.sql.ts) handles every case. It is sent whenever the others do not apply or have failed.
 *   It or a plain one is sent together with the results and the scan if the next tasks are known.
 *
 * After a claim was rejected and no task was found to be the cause, each full claim takes a single task for a while
 * (rejectedClaims.ts).
 */
export class ClaimChoice {
  readonly #components: Pick<ClaimComponents, "groups" | "groupScanner" | "pendingResults" | "sessions" | "table">;
  /** Whether a small claim will probably find no more tasks than it can take. */
  #areFewDue = true;
  /** Whether the last claim met no task that only a full claim can handle. */
  #arePlain = true;

  constructor(components: Pick<ClaimComponents, "groups" | "groupScanner" | "pendingResults" | "sessions" | "table">) {
    this.#components = components;
  }

  /**
   * @param needsFull whether only a full claim can handle the tasks that are locked or rejected
   * @param hasTurns whether a chain runs alone, or is the next to do so
   */
  choose(
    { results, released, mayHaveChanged, kept, sleepMs }: CycleStart,
    needsFull: boolean,
    hasTurns: boolean,
  ): ChosenClaims {
    const { groups, groupScanner, sessions, table } = this.#components;
    // With users, a cycle claims for each role in turn, once it knows whose tasks are due. The next task of a chain that
    // runs alone is not known before its results are written.
    if (table.usersOwner !== null || hasTurns) return { look: "scan", isEarly: false, isSaturated: false };
    const { free, busy, taskCount } = sessions;
    const isSaturated = free <= kept && busy > 0 && (groups.startable.size > 0 || taskCount > busy);
    // Whether the tasks known to be next are certain to stay next.
    const isCertain =
      released.length === 0 &&
      !groupScanner.shouldMarkDue &&
      results.every(({ pausingHash }) => pausingHash === undefined);
    if (isSaturated || !isCertain) return { look: "scan", isEarly: isCertain, isSaturated };
    if (results.every(isPlainResult) && !mayHaveChanged && !groupScanner.needsScan(sleepMs))
      return { look: "nothing", isEarly: true, isSaturated };
    const isSmall = this.#areFewDue && !needsFull && this.#canBeSmall;
    return { look: isSmall ? "small claim" : "scan", isEarly: false, isSaturated };
  }

  /** Whether a claim is to be sent as a plain one. */
  isPlain(request: ClaimRequest): boolean {
    return this.#arePlain && canBePlain(request);
  }

  plainClaimFailed(): void {
    this.#arePlain = false;
  }

  recordFull({ claimed, exclusive, heads, late, locked }: ClaimResult): void {
    const isSpecial = claimed.some((task) => task.exclusive) || heads.some((head) => head.exclusive || head.paused);
    this.#arePlain = !isSpecial && exclusive + late.length + locked.length === 0;
  }

  foundMany(): void {
    this.#areFewDue = false;
  }

  /** Records which tasks are left after the full claims of a cycle. */
  endCycle(look: Look): void {
    if (look === "scan" || !this.#areFewDue) this.#areFewDue = !this.#components.groups.hasHeads;
  }

  /**
   * Whether a small claim would do. It knows nothing of groups that are withheld from claims or wait for a gap, nor of
   * rejected tasks and dedicated sessions, and it is told of every group that has tasks in sessions, so these must not be
   * many.
   */
  get #canBeSmall(): boolean {
    const { groups, groupScanner, pendingResults, sessions } = this.#components;
    if (groups.size > maxGroupsOfSmallClaim || groups.hasWithheld || groups.gaps.hasWaits) return false;
    return groupScanner.canUseSmallClaim && !pendingResults.blocksAnyGroup && !sessions.hasDedicated;
  }
}
