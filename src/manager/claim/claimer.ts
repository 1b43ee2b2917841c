import { sqlState, type Client } from "../../shared/postgres/client.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import type { ActiveGroup } from "../groups/activeGroup.js";
import type { ClaimedTask } from "../model/tasks.js";
import { maxEmptyClaims, maxSmallClaim, rejectedSearchMs } from "../model/tuning.js";
import { readColumnSet } from "../schema/columnSet.js";
import { afterStarts, type StartLimits } from "../sessions/sessionReserve.js";
import { recordLockTimeout } from "../sql/lockTimeout.js";
import { changeRows, isLockTimeout, isRowError, serverErrorClasses } from "../sql/rejectedRows.js";
import { ClaimChoice } from "./claimChoice.js";
import type { ClaimComponents } from "./claimComponents.js";
import { claimFull, emptyClaim, type ClaimConditions, type ClaimRequest, type ClaimResult } from "./claimFull.sql.js";
import { areQueuesFull, position, updateHeads, withoutGroups, type ClaimPlan } from "./claimPlan.js";
import { ClaimPlanner } from "./claimPlanner.js";
import { claimPlain } from "./claimPlain.sql.js";
import { claimSmall, type SmallClaim } from "./claimSmall.sql.js";
import { countMore } from "./countMore.js";
import { LockedTasks } from "./lockedTasks.js";
import { placeGroups } from "./placeGroups.sql.js";
import { planOverlapping } from "./planOverlapping.sql.js";
import { RejectedClaims } from "./rejectedClaims.js";

/** How many claimed tasks the share of exclusive tasks mostly reflects. */
const recentClaims = 32;

export interface ClaimLimits {
  readonly starts: StartLimits;
  /** How many startable tasks to count beyond the tasks that get a session. */
  readonly lookAhead: number;
  readonly fetch: number;
  /** Maximum number of tasks in all claims of one cycle together. */
  readonly limit: number;
}

export interface ClaimOutcome {
  readonly claimed: number;
  /** How many more tasks could start if there were sessions for them, at most `lookAhead`. */
  readonly more: number;
  readonly lateGroups: readonly number[];
  /** How many tasks were skipped because their rows are locked, plus how many groups because a claim was rejected. */
  readonly locked: number;
  /** Whether claiming stopped after `maxEmptyClaims` although more groups are still to be tried. */
  readonly again: boolean;
}

export const noClaim: ClaimOutcome = { claimed: 0, more: 0, lateGroups: [], locked: 0, again: false };

/**
 * Gives due tasks to sessions. When no session is free and runs are short, tasks queue behind the current tasks, so that
 * sessions need not wait for the manager: tasks of a group at its limit only in sessions that have tasks of that group.
 */
export class Claimer {
  readonly #components: ClaimComponents;
  readonly #planner: ClaimPlanner;
  readonly choice: ClaimChoice;
  readonly rejected: RejectedClaims;
  readonly locked: LockedTasks;
  /** Groups that are left out until the next cycle because a claim of their tasks was rejected. */
  #suspectGroups: ActiveGroup[] = [];
  #hasHadSession = false;
  #started = 0;
  #exclusiveShare = 0;

  constructor(components: ClaimComponents) {
    this.#components = components;
    this.#planner = new ClaimPlanner(components);
    this.choice = new ClaimChoice(components);
    this.rejected = new RejectedClaims(components);
    this.locked = new LockedTasks(components.table);
  }

  /** Ids of due tasks that claims and scans skip, because their rows are locked or rejected. */
  get skippedIds(): readonly string[] {
    return [...this.locked.ids, ...this.rejected.rows.ids];
  }

  get needsFull(): boolean {
    return this.rejected.claimsSingly || this.locked.contendedIds.length > 0;
  }

  get started(): number {
    return this.#started;
  }

  get exclusiveShare(): number {
    return this.#exclusiveShare;
  }

  get state(): Readonly<Record<string, number | boolean>> {
    return {
      locked: this.locked.ids.length,
      contended: this.locked.contendedIds.length,
      rejected: this.rejected.rows.ids.length,
      claimsSingly: this.rejected.claimsSingly,
      reservedSessions: this.#planner.reservedSessions,
    };
  }

  async claim(client: Client, limits: ClaimLimits): Promise<ClaimOutcome> {
    const { groups, sessions, settingsAge, table } = this.#components;
    this.#hasHadSession ||= sessions.size > sessions.opening || table.usersOwner !== null;
    try {
      if (groups.ranking.hasUnknown) await placeGroups(client, table, groups);
      // Before there is a session, a claim only counts tasks: one for each group, if none may run more than one.
      if (!this.#hasHadSession && !groups.startable.needReserve) {
        return { ...noClaim, more: Math.min(limits.lookAhead, groups.startable.size) };
      }
      const outcome = await this.#claimAll(client, limits);
      // This comes last because claimed tasks have to reach their sessions even if comparing the settings failed.
      settingsAge.throwFailure();
      return outcome;
    } finally {
      for (const group of this.#suspectGroups.splice(0)) groups.putBack(group);
    }
  }

  async #claimAll(client: Client, limits: ClaimLimits): Promise<ClaimOutcome> {
    const { groups, pendingResults, sessions } = this.#components;
    const late = new Set<number>();
    let [claimed, locked, starts, last] = [0, 0, limits.starts, emptyClaim];
    const searchUntil = performance.now() + rejectedSearchMs;
    let emptyClaims = 0;
    let hasFilled = false;
    // If tasks that would come first are about to be released, or a pause is about to be written, claiming waits for the
    // next cycle.
    while (!pendingResults.blocksAnyGroup) {
      const maxTasks = Math.min(limits.fetch, limits.limit - claimed);
      const startable = groups.startable.size;
      const minGroups = emptyClaims > 0 ? maxTasks : 0;
      // If the server rejects a claim of a single task, the rejected task is known.
      const plan = this.rejected.claimsSingly
        ? this.#planner.plan({ maxTasks: 1, starts, lookAhead: 0, minGroups: 0 }, false)
        : this.#planner.plan({ maxTasks, starts, lookAhead: limits.lookAhead, minGroups });
      if (plan === null) break;
      const busy = sessions.busy;
      const suspects = this.#suspectGroups.length;
      const result = (last = await this.#sendIsolating(client, plan, performance.now() < searchUntil));
      for (const { hash } of result.late) late.add(hash);
      claimed += result.claimed.length;
      locked += result.locked.length;
      starts = afterStarts(starts, Math.max(0, sessions.busy - busy), plan);
      // The claim was rejected, and some groups were left out. The other groups need not wait for the next cycle.
      if (this.#suspectGroups.length > suspects && claimed < limits.limit) continue;
      if (result.claimed.length === 0) {
        // The tasks known to be next have been stopped or deleted, so other tasks may be next now.
        if (result.locked.length > 0 || groups.startable.size >= startable) break;
        emptyClaims += 1;
        if (emptyClaims === maxEmptyClaims) break;
      } else if (claimed >= limits.limit || areQueuesFull(plan, result, { maxTasks, hasFilled })) break;
      hasFilled ||= plan.fillsQueues;
    }
    const more = countMore(this.#components, last, starts.reserved, limits.lookAhead);
    const again = emptyClaims === maxEmptyClaims;
    return { claimed, more, lateGroups: [...late], locked: locked + this.#suspectGroups.length, again };
  }

  /** Returns null if a full claim has to follow, because the server has rejected the small claim. */
  async claimSmall(client: Client, starts: StartLimits): Promise<SmallClaim | null> {
    const { groups, sessions, settingsAge, table, tracing } = this.#components;
    // A small claim knows nothing of shares, so it gets no session that is reserved for some of them.
    const limit = groups.shares === null ? starts.all : starts.unreserved;
    const offered = sessions.offer(Math.min(limit, maxSmallClaim));
    let hasClaimed = false;
    try {
      const since = tracing?.now() ?? 0;
      const claim = await claimSmall(client, table, {
        ...this.#conditions(),
        sessions: offered,
        unreserved: starts.unreserved,
        groups: groups.inUse(),
      });
      hasClaimed = claim.claimed.length > 0;
      settingsAge.accept(claim.settingsVersion);
      await this.#accept(client, claim.claimed, since);
      this.#assign(claim.claimed);
      return claim;
    } catch (error) {
      // Claimed tasks that no session has are released when the manager has reconnected.
      if (hasClaimed) throw error;
      // A full claim follows. It finds out which tasks the server rejects.
      if (!isRowError(error) && (sqlState(error) === null || isTransient(error))) throw error;
      return null;
    } finally {
      sessions.withdrawOffers(offered);
    }
  }

  #conditions(): ClaimConditions {
    const { groups, tracing } = this.#components;
    const runningKeys = groups.runningKeys.all;
    return { except: this.skippedIds, runningKeys, traced: tracing !== null, lane: groups.ranking.lane };
  }

  /** @param search whether to look for rejected tasks beyond the tasks of the claim if the server rejects it */
  async #sendIsolating(client: Client, plan: ClaimPlan, search: boolean): Promise<ClaimResult> {
    const { groups, groupScanner, sessions } = this.#components;
    try {
      return await this.#send(client, plan);
    } catch (error) {
      if (!isRowError(error)) throw error;
      // Tasks that cannot be read fail, and may be repeated.
      groupScanner.markPlanned();
      const hashes = await this.rejected.findRejected(client, plan, error, { ...this.#conditions(), search });
      return await this.#sendWithout(client, plan, hashes);
    } finally {
      for (const { group } of plan.planned) if (!this.#suspectGroups.includes(group)) groups.putBack(group);
      sessions.withdrawOffers(plan.offered);
    }
  }

  /** Repeats a rejected claim without these groups, which are claimed again in the next cycle. */
  async #sendWithout(client: Client, plan: ClaimPlan, hashes: ReadonlySet<number>): Promise<ClaimResult> {
    for (const { group } of plan.planned) if (hashes.has(group.hash)) this.#suspectGroups.push(group);
    const rest = withoutGroups(plan, hashes);
    if (rest.groups.length === 0) return emptyClaim;
    try {
      return await this.#send(client, rest);
    } catch (error) {
      if (!isRowError(error)) throw error;
      return await this.#sendWithout(client, rest, new Set(rest.groups.map(({ hash }) => hash)));
    }
  }

  async #send(client: Client, plan: ClaimPlan): Promise<ClaimResult> {
    const { groups, sessions, settingsAge, tracing } = this.#components;
    const since = tracing?.now() ?? 0;
    const [result] = await Promise.all([
      this.#sendWaiting(client, plan),
      settingsAge.tryCompare(client, plan.offered.length > 0),
    ]);
    await this.#accept(client, result.claimed, since);
    const contended = this.locked.addUnclaimed(result.locked);
    this.#planner.reservedSessions = result.exclusive;
    updateHeads(groups, plan, result);
    for (const task of contended) groups.addDue(task.hash, position(task));
    this.#assign(result.claimed);
    if (plan.usesReserve) for (const { hash } of result.claimed) groups.useReserve(hash);
    sessions.endOffers(plan.offered);
    this.rejected.recordSuccess(result.claimed);
    return result;
  }

  /** If waiting for the row of a contended task takes too long, the claim is sent again, and skips the locked rows. */
  async #sendWaiting(client: Client, plan: ClaimPlan): Promise<ClaimResult> {
    const { table } = this.#components;
    const contended = this.locked.contendedIds;
    const request = { ...plan, ...this.#conditions(), contended };
    try {
      const isPlain = !this.rejected.claimsSingly && this.choice.isPlain(request);
      const plain = isPlain ? await this.#tryPlain(client, request) : null;
      if (plain !== null) return plain;
      const result = await claimFull(client, table, request);
      this.choice.recordFull(result);
      return result;
    } catch (error) {
      if (contended.length === 0 || !isTransient(error)) throw error;
      for (const id of contended) this.locked.forget(id);
      if (isLockTimeout(error)) await recordLockTimeout(client);
      return await claimFull(client, table, { ...plan, ...this.#conditions() });
    }
  }

  /** Returns null if a full claim has to follow. */
  async #tryPlain(client: Client, request: ClaimRequest): Promise<ClaimResult | null> {
    let result: ClaimResult | null = null;
    try {
      result = await claimPlain(client, this.#components.table, request);
    } catch (error) {
      if (!isTransient(error)) throw error;
      this.#components.log.debug({ err: error }, "plain claim failed, sending a full claim");
    }
    if (result === null) this.choice.plainClaimFailed();
    return result;
  }

  /**
   * Plans the successors of tasks with `overlap` before they start. A task whose successor the server rejects keeps its
   * schedule, and its successor is planned when the run has ended.
   *
   * @throws if the connection is lost. The tasks are then released.
   */
  async #accept(client: Client, claimed: readonly ClaimedTask[], since: number): Promise<void> {
    const { groupScanner, log, table, tracing } = this.#components;
    const overlapping = claimed.filter(({ overlaps }) => overlaps);
    if (overlapping.length > 0) {
      groupScanner.markPlanned();
      const warn = (tasks: readonly ClaimedTask[], error: unknown): void => {
        const ids = tasks.map(({ id }) => id);
        log.warn({ ids, err: error }, "successors not inserted at the start, trying again at the end");
      };
      try {
        const columns = await readColumnSet(client, table);
        const plan = (tasks: readonly ClaimedTask[]) => planOverlapping(client, table, columns, tasks);
        await changeRows(client, overlapping, plan, (task, error) => warn([task], error));
      } catch (error) {
        const state = sqlState(error);
        if (state === null || (serverErrorClasses.test(state) && !isTransient(error))) throw error;
        warn(overlapping, error);
      }
    }
    tracing?.claimed(claimed, since);
    for (const { id } of claimed) this.locked.forget(id);
  }

  #assign(claimed: readonly ClaimedTask[]): void {
    const { ledgers, log, pendingResults, sessions } = this.#components;
    const startable: ClaimedTask[] = [];
    // A change of their group arrived during the claim and has to be written first.
    const blocked: ClaimedTask[] = [];
    // A task that starts at once has to be the first task that its session gets.
    const first = claimed.filter(({ startsNow }) => startsNow);
    const others = claimed.filter(({ startsNow }) => !startsNow);
    for (const task of [...first, ...others]) {
      log.debug({ id: task.id, group: task.group }, "task starts");
      if (pendingResults.blocksGroup(task.hash)) {
        blocked.push(task);
        continue;
      }
      this.#exclusiveShare += (Number(task.exclusive) - this.#exclusiveShare) / recentClaims;
      startable.push(task);
    }
    const missed = sessions.assign(startable, () => ledgers.countRun());
    this.#started += startable.length - missed.length;
    for (const { id, owner, hash, max } of [...blocked, ...missed])
      pendingResults.released.requeue([{ id, owner, due: { hash, max } }]);
  }
}
