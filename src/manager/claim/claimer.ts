import { sqlState, type Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import { ClaimPlanner, withoutGroups, type ClaimPlan, type PlanLimits } from "./claimPlanner.js";
import { headPrecedes, type ActiveGroups } from "../groups/groups.js";
import type { ActiveGroup } from "../groups/activeGroup.js";
import { canQueue, type Head } from "../groups/groupLimit.js";
import type { GroupScanner } from "../groups/groupScanner.js";
import type { LedgerRotation } from "../upkeep/ledgerRotation.js";
import type { PendingResults } from "../results/pendingResults.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import type { RunTimes } from "../sessions/runTimes.js";
import { RejectedClaims } from "./rejectedClaims.js";
import { isLockTimeout, isRowError, serverErrorClasses, type RejectedRows } from "../sql/rejectedRows.js";
import { recordLockTimeout } from "../sql/lockTimeout.js";
import type { SettingsAge } from "../sessions/settingsAge.js";
import type { SessionPool } from "../sessions/sessionPool.js";
import type { ClaimRequest, ClaimResult } from "./claimFull.sql.js";
import { claimSmall, type SmallClaim } from "./claimSmall.sql.js";
import { planOverlapping } from "./planOverlapping.sql.js";
import { readColumnSet } from "../schema/columnSet.js";
import { LockedTasks } from "./lockedTasks.js";
import { afterStarts, type StartLimits } from "../sessions/startLimits.js";
import { canClaimSmall, ClaimStrategy, emptyClaim } from "./claimStrategy.js";
import type { OwedSuccessors } from "../upkeep/owedSuccessors.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { Tracing } from "../telemetry/tracing.js";
import type { AssignedRun, ClaimedTask, DueTask } from "../model/tasks.js";
import { maxEmptyClaims, maxSmallClaim, rejectedSearchMs } from "../model/tuning.js";

/** The number of claimed tasks after which the share of exclusive tasks mostly reflects these tasks. */
const recentClaims = 32;

export interface ClaimLimits {
  readonly starts: StartLimits;
  /** How many startable tasks to count beyond the tasks that get a session. */
  readonly lookAhead: number;
  /** Maximum number of tasks in one claim. */
  readonly fetch: number;
  /** Maximum number of tasks in all claims of one cycle together. */
  readonly limit: number;
}

export interface ClaimOutcome {
  /** How many tasks were given to sessions. */
  readonly claimed: number;
  /** How many more tasks could start if there were sessions for them, at most `lookAhead`. */
  readonly more: number;
  /** Hashes of groups that have late tasks. */
  readonly lateGroups: readonly number[];
  /**
   * How many tasks were skipped because their rows are locked, plus how many groups were left out because a claim of
   * their tasks was rejected.
   */
  readonly locked: number;
  /** Whether claiming stopped after `maxEmptyClaims` empty claims although more groups are still to be tried. */
  readonly again: boolean;
}

/**
 * Gives due tasks to sessions. claimStrategy.ts describes the three kinds of claims.
 *
 * When no session is free and runs are short, tasks queue behind the current tasks, so that sessions need not wait for
 * the manager. Tasks of a group at its limit queue only in sessions that already have tasks of that group.
 */
export class Claimer {
  readonly #table: TaskTable;
  readonly #sessions: SessionPool;
  readonly #groups: ActiveGroups;
  readonly #groupScanner: Pick<GroupScanner, "markPlanned">;
  readonly #pendingResults: PendingResults;
  readonly #ledgers: LedgerRotation;
  readonly #planner: ClaimPlanner;
  readonly #strategy: ClaimStrategy;
  readonly #rejectedClaims: RejectedClaims;
  readonly #lockedTasks: LockedTasks;
  readonly #settingsAge: SettingsAge;
  readonly #tracing: Tracing | null;
  readonly #log: Log;
  /** Groups that are left out until the next cycle because a claim of their tasks was rejected. */
  #suspectGroups: ActiveGroup[] = [];
  #started = 0;
  #exclusiveShare = 0;

  constructor(options: {
    readonly table: TaskTable;
    readonly sessions: SessionPool;
    readonly groups: ActiveGroups;
    readonly groupScanner: Pick<GroupScanner, "markPlanned">;
    readonly pendingResults: PendingResults;
    readonly ledgers: LedgerRotation;
    readonly owed: Pick<OwedSuccessors, "touch">;
    readonly runTimes: RunTimes;
    readonly settingsAge: SettingsAge;
    readonly tracing?: Tracing | null;
    readonly log: Log;
  }) {
    this.#table = options.table;
    this.#sessions = options.sessions;
    this.#groups = options.groups;
    this.#groupScanner = options.groupScanner;
    this.#pendingResults = options.pendingResults;
    this.#ledgers = options.ledgers;
    this.#planner = new ClaimPlanner(options);
    this.#strategy = new ClaimStrategy(options.table, options.log);
    this.#rejectedClaims = new RejectedClaims(options.table, options.owed, options.log);
    this.#lockedTasks = new LockedTasks(options.table);
    this.#settingsAge = options.settingsAge;
    this.#tracing = options.tracing ?? null;
    this.#log = options.log;
  }

  /** Ids of due tasks that claims and scans skip, because their rows are locked or rejected. */
  get skippedIds(): readonly string[] {
    return [...this.#lockedTasks.ids, ...this.rejected.ids];
  }

  /** Due tasks whose claim or expiry the server rejects. */
  get rejected(): RejectedRows {
    return this.#rejectedClaims.rows;
  }

  get rejectedIds(): readonly string[] {
    return this.rejected.ids;
  }

  /** Retries rejected tasks whose retry delay is over. */
  async retryRejected(client: Client): Promise<void> {
    await this.#rejectedClaims.retry(client);
  }

  /** How many tasks have been given to sessions so far. */
  get started(): number {
    return this.#started;
  }

  /** The share of exclusive tasks among those that were claimed recently, 0 to 1. */
  get exclusiveShare(): number {
    return this.#exclusiveShare;
  }

  /** The state of the claimer, for diagnostics. */
  get state(): Readonly<Record<string, number | boolean>> {
    return {
      locked: this.#lockedTasks.ids.length,
      contended: this.#lockedTasks.contendedIds.length,
      rejected: this.rejected.ids.length,
      claimsSingly: this.#rejectedClaims.claimsSingly,
      reservedSessions: this.#planner.reservedSessions,
      needsFull: this.#strategy.needsFull,
    };
  }

  /** Due tasks whose rows were locked. */
  get lockedTasks(): LockedTasks {
    return this.#lockedTasks;
  }

  /** Forgets which rows were locked. */
  forgetLocked(): void {
    this.#lockedTasks.clear();
  }

  /** Sends claims as long as there are both due tasks and queue slots. */
  async claim(client: Client, limits: ClaimLimits): Promise<ClaimOutcome> {
    try {
      const outcome = await this.#claimAll(client, limits);
      // This comes last because claimed tasks have to reach their sessions even if comparing the settings failed.
      this.#settingsAge.throwFailure();
      return outcome;
    } finally {
      for (const group of this.#suspectGroups.splice(0)) this.#groups.putBack(group);
    }
  }

  async #claimAll(client: Client, limits: ClaimLimits): Promise<ClaimOutcome> {
    const late = new Set<number>();
    let [claimed, more, locked, starts] = [0, 0, 0, limits.starts];
    let moreOf: ReadonlySet<number> = new Set();
    const searchUntil = performance.now() + rejectedSearchMs;
    let emptyClaims = 0;
    let hasFilled = false;
    // If tasks that would come first are about to be released, or if a pause is about to be written, claiming waits for
    // the next cycle, which writes these changes first.
    while (!this.#pendingResults.blocksAnyGroup) {
      const maxTasks = Math.min(limits.fetch, limits.limit - claimed);
      const startable = this.#groups.startable.size;
      const minGroups = emptyClaims > 0 ? maxTasks : 0;
      const plan = this.#plan({
        maxTasks,
        starts,
        lookAhead: limits.lookAhead,
        minGroups,
      });
      if (plan === null) break;
      const busy = this.#sessions.busy;
      const suspects = this.#suspectGroups.length;
      const result = await this.#sendIsolating(client, plan, performance.now() < searchUntil);
      for (const { hash } of result.late) late.add(hash);
      claimed += result.claimed.length;
      locked += result.locked.length;
      starts = afterStarts(starts, Math.max(0, this.#sessions.busy - busy), plan);
      ({ more, moreOf } = result);
      // The claim was rejected, and some groups were left out. The other groups need not wait for the next cycle.
      if (this.#suspectGroups.length > suspects && claimed < limits.limit) continue;
      if (result.claimed.length === 0) {
        // The tasks known to be next have been stopped or deleted, so other tasks may be next now.
        if (result.locked.length > 0 || this.#groups.startable.size >= startable) break;
        emptyClaims += 1;
        if (emptyClaims === maxEmptyClaims) break;
      } else if (claimed >= limits.limit || areQueuesFull(plan, result, { maxTasks, hasFilled })) break;
      hasFilled ||= plan.fillsQueues;
    }
    locked += this.#suspectGroups.length;
    // `more` counts only tasks in groups whose tasks were read. Every other startable group adds one known task: its
    // head.
    const counted = [...moreOf].filter((hash) => this.#groups.canStart(hash)).length;
    more += this.#groups.startable.size - counted;
    if (more < limits.lookAhead) more += this.#sessions.tasks.countMovable(limits.lookAhead - more);
    // A group that is to get a reserved session needs one to be opened if none is free.
    const waitForReserve = this.#groups.startable.passIdleOver
      ? Math.min(starts.reserved, this.#groups.startable.idle)
      : 0;
    more = Math.max(waitForReserve, Math.min(limits.lookAhead, more));
    const again = emptyClaims === maxEmptyClaims;
    return { claimed, more, lateGroups: [...late], locked, again };
  }

  #plan(limits: PlanLimits): ClaimPlan | null {
    return this.#rejectedClaims.claimsSingly ? this.#planner.planSingle(limits.starts) : this.#planner.plan(limits);
  }

  /** Whether a small claim can be sent. */
  get canClaimSmall(): boolean {
    if (this.#rejectedClaims.claimsSingly || this.#lockedTasks.contendedIds.length > 0) return false;
    return !this.#sessions.hasDedicated && canClaimSmall(this.#groups, this.#pendingResults);
  }

  /**
   * Sends a small claim.
   *
   * @param limits.starts how many more sessions can become busy
   * @returns null if a full claim has to follow, because the server has rejected the small claim
   */
  async claimSmall(client: Client, { starts }: Pick<ClaimLimits, "starts">): Promise<SmallClaim | null> {
    const offered = this.#sessions.offer(Math.min(starts.all, maxSmallClaim));
    let hasClaimed = false;
    try {
      const since = this.#tracing?.now() ?? 0;
      const claim = await claimSmall(client, this.#table, {
        sessions: offered,
        unreserved: starts.unreserved,
        groups: this.#groups.inUse(),
        except: this.skippedIds,
        runningKeys: this.#groups.runningKeys.all,
        traced: this.#tracing !== null,
      });
      const { claimed } = claim;
      hasClaimed = claimed.length > 0;
      this.#settingsAge.accept(claim.settingsVersion);
      await this.#planOverlapping(client, claimed);
      this.#tracing?.claimed(claimed, since);
      for (const { id } of claimed) this.#lockedTasks.forget(id);
      this.#assign(claimed);
      return claim;
    } catch (error) {
      // Claimed tasks that no session has are released when the manager has reconnected.
      if (hasClaimed) throw error;
      // A full claim follows. It finds out which tasks the server rejects.
      if (!isRowError(error) && (sqlState(error) === null || isTransient(error))) throw error;
      return null;
    } finally {
      this.#sessions.withdrawOffers(offered);
    }
  }

  /**
   * Sends a claim. If the server rejects the claim, finds out which tasks caused this and claims the others.
   *
   * @param search whether to look for rejected tasks beyond the tasks of the claim
   */
  async #sendIsolating(client: Client, plan: ClaimPlan, search: boolean): Promise<ClaimResult> {
    try {
      return await this.#send(client, plan);
    } catch (error) {
      if (!isRowError(error)) throw error;
      // Tasks that cannot be read fail, and may be repeated.
      this.#groupScanner.markPlanned();
      const hashes = await this.#rejectedClaims.findRejected(client, plan, error, {
        except: this.skippedIds,
        runningKeys: this.#groups.runningKeys.all,
        search,
        traced: this.#tracing !== null,
      });
      return await this.#sendWithout(client, plan, hashes);
    } finally {
      for (const { group } of plan.planned) if (!this.#suspectGroups.includes(group)) this.#groups.putBack(group);
      this.#sessions.withdrawOffers(plan.offered);
    }
  }

  /** Repeats a rejected claim without these groups. They are claimed again in the next cycle. */
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
    const since = this.#tracing?.now() ?? 0;
    const request = {
      ...plan,
      except: this.skippedIds,
      runningKeys: this.#groups.runningKeys.all,
      traced: this.#tracing !== null,
    };
    const [result] = await Promise.all([
      this.#sendWaiting(client, request),
      this.#settingsAge.tryCompare(client, plan.offered.length > 0),
    ]);
    await this.#planOverlapping(client, result.claimed);
    this.#tracing?.claimed(result.claimed, since);
    for (const { id } of result.claimed) this.#lockedTasks.forget(id);
    const contended = this.#lockedTasks.addUnclaimed(result.locked);
    this.#planner.reservedSessions = result.exclusive;
    updateHeads(this.#groups, plan, result);
    for (const task of contended) this.#groups.addDue(task.hash, position(task));
    this.#assign(result.claimed);
    if (plan.usesReserve) for (const { hash } of result.claimed) this.#groups.useReserve(hash);
    this.#sessions.endOffers(plan.offered);
    this.#rejectedClaims.recordSuccess(result.claimed);
    return result;
  }

  /**
   * Sends a claim that waits for the row of a contended task. If that takes too long, the claim is sent again, and skips
   * the locked rows.
   */
  async #sendWaiting(client: Client, request: ClaimRequest): Promise<ClaimResult> {
    const contended = this.#lockedTasks.contendedIds;
    if (contended.length === 0) return await this.#strategy.claim(client, request);
    try {
      return await this.#strategy.claim(client, { ...request, contended });
    } catch (error) {
      if (!isTransient(error)) throw error;
      for (const id of contended) this.#lockedTasks.forget(id);
      if (isLockTimeout(error)) await recordLockTimeout(client);
      return await this.#strategy.claim(client, request);
    }
  }

  /**
   * Plans the successors of tasks with `overlap` before the tasks start. If the server rejects a successor, all these
   * tasks keep their schedules, and their successors are planned when the runs have ended.
   *
   * @throws if the connection is lost. The tasks are then released, and their successors are planned after the next
   *   claim.
   */
  async #planOverlapping(client: Client, claimed: readonly ClaimedTask[]): Promise<void> {
    const tasks = claimed.filter(({ overlaps }) => overlaps);
    if (tasks.length === 0) return;
    this.#groupScanner.markPlanned();
    try {
      await planOverlapping(client, this.#table, await readColumnSet(client, this.#table), tasks);
    } catch (error) {
      const state = sqlState(error);
      if (state === null || (serverErrorClasses.test(state) && !isTransient(error))) throw error;
      const ids = tasks.map(({ id }) => id);
      this.#log.warn({ ids, err: error }, "successors not inserted at the start, trying again at the end");
    }
  }

  #assign(claimed: readonly ClaimedTask[]): void {
    const runs: AssignedRun[] = [];
    /**
     * Claimed tasks that must not start yet, because a change of their group arrived during the claim and has to be
     * written first.
     */
    const blocked: ClaimedTask[] = [];
    // A task that starts at once has to be the first task that its session gets.
    const first = claimed.filter(({ startsNow }) => startsNow);
    const others = claimed.filter(({ startsNow }) => !startsNow);
    for (const task of [...first, ...others]) {
      this.#log.debug({ id: task.id, group: task.group }, "task starts");
      if (this.#pendingResults.blocksGroup(task.hash)) {
        blocked.push(task);
        continue;
      }
      this.#exclusiveShare += (Number(task.exclusive) - this.#exclusiveShare) / recentClaims;
      const session = this.#sessions.numberOf(task.owner);
      const ledger = this.#ledgers.countRun();
      runs.push({ task, session, isStartWritten: task.startsNow, ledger });
    }
    const missed = this.#sessions.assign(runs).map(({ task }) => task);
    this.#started += runs.length - missed.length;
    for (const { id, owner, hash, max } of [...blocked, ...missed])
      this.#pendingResults.requeue([], [{ id, owner, due: { hash, max } }]);
  }
}

/**
 * Returns whether another claim would hardly find free queue slots. The few that may have become free in the meantime
 * are not worth it. The first claim that fills the queues may start tasks behind which others of their groups can wait.
 *
 * @param request.hasFilled whether an earlier claim of the cycle has filled the queues
 */
function areQueuesFull(
  { offered, planned, fillsQueues, starts }: ClaimPlan,
  { claimed }: ClaimResult,
  { maxTasks, hasFilled }: { readonly maxTasks: number; readonly hasFilled: boolean },
): boolean {
  if (!fillsQueues || claimed.length >= maxTasks) return false;
  if (claimed.filter(({ startsNow }) => startsNow).length < starts) return false;
  return offered.length === 0 || hasFilled || !planned.some(({ group }) => canQueue(group));
}

/** Sets the next head (first due task) of each group of a claim. A group that was read to its end has no head. */
function updateHeads(groups: ActiveGroups, { planned }: ClaimPlan, result: ClaimResult): void {
  const heads = new Map(result.heads.map((head) => [head.hash, head]));
  const read = new Map<number, DueTask[]>();
  for (const task of [...result.claimed, ...result.locked, ...result.late]) {
    const tasks = read.get(task.hash);
    if (tasks === undefined) read.set(task.hash, [task]);
    else tasks.push(task);
  }
  for (const { group, maxTasks } of planned) {
    const next = heads.get(group.hash);
    group.expectsExclusive = next?.exclusive ?? false;
    const tasks = read.get(group.hash) ?? [];
    if (next !== undefined) groups.setHead(group.hash, { ...position(next), gapMs: next.gapMs }, next.paused);
    else groups.setHead(group.hash, tasks.length > maxTasks ? lastOf(tasks) : null, false);
  }
}

const position = ({ max, id }: DueTask): Head => ({ max, id: BigInt(id) });

function lastOf(tasks: readonly DueTask[]): Head | null {
  let last: Head | null = null;
  for (const task of tasks) {
    const head = position(task);
    if (last === null || headPrecedes(last, head)) last = head;
  }
  return last;
}
