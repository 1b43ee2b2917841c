import { maxGroupsOfSmallClaim } from "../model/tuning.js";
import type { ClaimComponents } from "./claimComponents.js";

/**
 * How a cycle finds out which tasks are due: by a scan of the groups, or by a small claim, which also takes the tasks.
 * `nothing` means that it is known, because only results have changed, and only their own rows.
 */
export type Look = "small claim" | "scan" | "nothing";

/** What a cycle knows before it looks for tasks. */
export interface CycleStart {
  /** Whether every session is busy, except those that are kept from the waiting tasks, and more tasks are waiting. */
  readonly isSaturated: boolean;
  /** Whether the tasks known to be next are certain to stay next. */
  readonly isCertain: boolean;
  /** Whether the results of the cycle change nothing but their own rows. */
  readonly arePlain: boolean;
  /** Whether the table may have changed since the last cycle. */
  readonly mayHaveChanged: boolean;
  /** The interval between checks of the table, in ms. */
  readonly sleepMs: number;
}

/**
 * Decides which claim is sent when:
 *
 * - The **small claim** (claimSmall.sql.ts) reads all due tasks of the table, starts those that can start, and says what
 *   else a cycle has to know, so that no scan is needed. It is sent if sessions are free and few tasks are due. If it
 *   meets a task with special needs, or more tasks than it can take, it takes none. A scan, which reads the head of each
 *   group, and a full claim then follow in the same cycle, and no small claims are sent until no due task is left.
 * - The **full claim** (claimFull.sql.ts) handles every case. It is sent whenever the small claim does not apply or has
 *   failed. It is sent together with the results and the scan if the next tasks are known.
 *
 * After a claim was rejected and no task was found to be the cause, each full claim takes a single task for a while
 * (rejectedClaims.ts).
 */
export class ClaimChoice {
  readonly #components: Pick<ClaimComponents, "groups" | "groupScanner" | "pendingResults" | "sessions">;
  /** Whether a small claim will probably find no more tasks than it can take. */
  #areFewDue = true;

  constructor(components: Pick<ClaimComponents, "groups" | "groupScanner" | "pendingResults" | "sessions">) {
    this.#components = components;
  }

  /** @param needsFull whether only a full claim can handle the tasks that are locked or rejected */
  look({ isSaturated, isCertain, arePlain, mayHaveChanged, sleepMs }: CycleStart, needsFull: boolean): Look {
    if (isSaturated || !isCertain) return "scan";
    if (arePlain && !mayHaveChanged && !this.#components.groupScanner.needsScan(sleepMs)) return "nothing";
    return this.#areFewDue && !needsFull && this.#canBeSmall ? "small claim" : "scan";
  }

  /** Returns whether a full claim is sent together with this look, before its answer is known. */
  isEarly(look: Look, { isSaturated, isCertain }: CycleStart): boolean {
    return isCertain && (isSaturated || look === "nothing");
  }

  /** Records that a small claim has left tasks to a full claim. */
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
