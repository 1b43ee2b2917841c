import { sqlState, type Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import { ClaimPlanner, type ClaimPlan } from "./claimPlanner.js";
import { comesBefore, type ActiveGroup, type ActiveGroups, type Head } from "../groups/groups.js";
import type { LedgerRotation } from "../upkeep/ledgerRotation.js";
import type { PendingResults } from "../results/pendingResults.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import type { RunTimes } from "../sessions/runTimes.js";
import type { AssignedRun } from "../sessions/session.js";
import { RejectedClaims } from "./rejectedClaims.js";
import { isRowError, type RejectedRows } from "../rejectedRows.js";
import type { SettingsAge } from "../sessions/settingsAge.js";
import type { SessionPool } from "../sessions/sessionPool.js";
import { claimFull, type ClaimResult, type ClaimRequest, type DueTask } from "./claimFull.sql.js";
import type { ClaimedTask } from "./claimedTask.sql.js";
import { claimQueued, isQueuedClaim } from "./claimQueued.sql.js";
import { claimSingle } from "./claimSingle.sql.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { Tracing } from "../telemetry/tracing.js";

/** How long one turn may look for tasks that are refused beyond those of its claims, in ms. */
const searchMs = 200;

export interface ClaimOutcome {
  /** How many tasks were given to sessions. */
  readonly claimed: number;
  /** How many more could start had they a session, as far as it was looked. */
  readonly more: number;
  /** Groups with tasks that are not worth running any more. */
  readonly gone: readonly number[];
  /** How many were passed over since somebody has their row locked, and groups for what is refused. */
  readonly locked: number;
  /** Whether it met only groups of which nothing is due any more, and there are others. */
  readonly again: boolean;
}

/** How many claims of one turn may find nothing. */
const mostVain = 10;

/**
 * Gives due tasks to sessions. Free sessions first: those get the best tasks, one each. When none is
 * free and runs are short, more tasks wait in the sessions behind what runs, so that these need not
 * wait for the manager: those of a group that is at its limit in the sessions that have it already.
 */
export class Claimer {
  readonly #table: TaskTable;
  readonly #sessions: SessionPool;
  readonly #groups: ActiveGroups;
  readonly #outbox: PendingResults;
  readonly #ledgers: LedgerRotation;
  readonly #plans: ClaimPlanner;
  readonly #tracing: Tracing | null;
  readonly #log: Log;
  /** Due tasks whose row somebody has locked: not looked at until they are found free. */
  #locked: string[] = [];
  readonly #refused: RejectedClaims;
  /** Groups that are left out until the next turn, since a claim of their tasks was refused. */
  #suspects: ActiveGroup[] = [];
  readonly #settingsAge: SettingsAge;
  /** Whether the last claim met what only the claim that does everything knows how to treat. */
  #oddMet = false;
  #started = 0;

  constructor(options: {
    readonly table: TaskTable;
    readonly sessions: SessionPool;
    readonly groups: ActiveGroups;
    readonly outbox: PendingResults;
    readonly ledgers: LedgerRotation;
    readonly runTimes: RunTimes;
    readonly settingsAge: SettingsAge;
    readonly tracing?: Tracing | null;
    readonly log: Log;
  }) {
    this.#table = options.table;
    this.#sessions = options.sessions;
    this.#groups = options.groups;
    this.#outbox = options.outbox;
    this.#ledgers = options.ledgers;
    this.#plans = new ClaimPlanner(options);
    this.#tracing = options.tracing ?? null;
    this.#log = options.log;
    this.#refused = new RejectedClaims(options.table, options.log);
    this.#settingsAge = options.settingsAge;
  }

  /** Ids of due tasks that are not looked at, for whatever reason. */
  get passedOver(): readonly string[] {
    return [...this.#locked, ...this.refusals.ids];
  }

  /** Due tasks that the server refuses to change. */
  get refusals(): RejectedRows {
    return this.#refused.refusals;
  }

  /** Tries refused ones again, as far as it is time. */
  async retry(client: Client): Promise<void> {
    await this.#refused.retry(client);
  }

  /** Those of them that the server refuses to start. */
  get refused(): readonly string[] {
    return this.refusals.ids;
  }

  /** How many tasks it has given to sessions so far. */
  get started(): number {
    return this.#started;
  }

  /** What it goes by. */
  get state(): Readonly<Record<string, number | boolean>> {
    const { careful } = this.#refused;
    const { ids } = this.refusals;
    const { reserved } = this.#plans;
    return {
      locked: this.#locked.length,
      refused: ids.length,
      careful,
      reserved,
      odd: this.#oddMet,
    };
  }

  /** Those of them that somebody has locked. */
  get locked(): readonly string[] {
    return this.#locked;
  }

  set locked(ids: readonly string[]) {
    this.#locked = [...ids];
  }

  /**
   * Claims as long as there are places and tasks for them.
   *
   * @param room.start how many more sessions may have something to do.
   * @param room.lookAhead how many tasks beyond those that find a session are counted.
   * @param room.fetch most tasks of one statement.
   * @param room.limit most tasks in all.
   */
  async fill(
    client: Client,
    room: {
      readonly start: number;
      readonly lookAhead: number;
      readonly fetch: number;
      readonly limit: number;
    },
  ): Promise<ClaimOutcome> {
    try {
      const claimed = await this.#fill(client, room);
      // Only now, since what was claimed has to get to its sessions whatever the look came to.
      this.#settingsAge.check();
      return claimed;
    } finally {
      for (const group of this.#suspects.splice(0)) this.#groups.release(group);
    }
  }

  async #fill(
    client: Client,
    room: {
      readonly start: number;
      readonly lookAhead: number;
      readonly fetch: number;
      readonly limit: number;
    },
  ): Promise<ClaimOutcome> {
    const gone = new Set<number>();
    let [claimed, more, locked, start] = [0, 0, 0, room.start];
    let moreOf: ReadonlySet<number> = new Set();
    const searchUntil = performance.now() + searchMs;
    let vain = 0;
    // What is to start first may be on its way back, or a pause be due: the next turn sees to it.
    while (!this.#outbox.holdsUpAny) {
      const most = Math.min(room.fetch, room.limit - claimed);
      const startable = this.#groups.startable;
      const plan = this.#refused.careful
        ? this.#plans.nextOne(start)
        : this.#plans.next(most, start, room.lookAhead, vain > 0 ? most : 0);
      if (plan === null) break;
      const busy = this.#sessions.busy;
      const suspects = this.#suspects.length;
      const outcome = await this.#send(client, plan, performance.now() < searchUntil);
      for (const { hash } of outcome.gone) gone.add(hash);
      claimed += outcome.claimed.length;
      locked += outcome.locked.length;
      start -= Math.max(0, this.#sessions.busy - busy);
      ({ more, moreOf } = outcome);
      // Those of other groups need not wait for the next turn.
      if (this.#suspects.length > suspects && claimed < room.limit) continue;
      // Sessions that were filled up have little room again by now: not worth another statement.
      const filled = plan.offered.length === 0 && outcome.claimed.length < most;
      if (outcome.claimed.length === 0) {
        // Somebody stopped or deleted what was known to be next: others may be next behind it.
        if (outcome.locked.length > 0 || this.#groups.startable >= startable) break;
        vain += 1;
        if (vain === mostVain) break;
      } else if (filled || claimed >= room.limit) break;
    }
    locked += this.#suspects.length;
    // Groups it has looked at and those that it has not, of which one task each is known.
    const counted = [...moreOf].filter((hash) => this.#groups.mayStart(hash)).length;
    more += this.#groups.startable - counted;
    if (more < room.lookAhead) more += this.#sessions.countMovable(room.lookAhead - more);
    more = Math.min(room.lookAhead, more);
    return { claimed, more, gone: [...gone], locked, again: vain === mostVain };
  }

  /**
   * Starts the task that is due if there is but one, as long as nothing runs and nothing is known to be due.
   *
   * @returns how many were started.
   */
  async startSole(client: Client, room: { readonly start: number }): Promise<number> {
    const wanted = room.start > 0 && this.#groups.total === 0 && this.#groups.startable === 0;
    if (!wanted || this.#groups.withholds) return 0;
    if (this.#outbox.holdsUpAny || this.#refused.careful) return 0;
    const offered = this.#sessions.offer(1);
    const [session] = offered;
    try {
      if (session === undefined || session.kept !== null) return 0;
      const traced = this.#tracing !== null;
      const since = this.#tracing?.now() ?? 0;
      const [task] = await Promise.all([
        claimSingle(client, this.#table, { session, except: this.passedOver, traced }),
        this.#settingsAge.look(client, true),
      ]);
      if (task === null) return 0;
      this.#tracing?.claimed([task], since);
      this.#assign([task]);
      return 1;
    } catch (error) {
      // What the server refuses is found out, and left out, by a claim that knows what it asks for.
      if (!isRowError(error) && (sqlState(error) === null || isTransient(error))) throw error;
      return 0;
    } finally {
      this.#sessions.withdraw(offered);
    }
  }

  /** @param search whether to look beyond the tasks of the claim for such as are refused. */
  async #send(client: Client, plan: ClaimPlan, search: boolean): Promise<ClaimResult> {
    try {
      return await this.#sendWhole(client, plan);
    } catch (error) {
      if (!isRowError(error)) throw error;
      const hashes = await this.#refused.find(client, plan, error, {
        except: this.passedOver,
        search,
        traced: this.#tracing !== null,
      });
      return await this.#sendWithout(client, plan, hashes);
    } finally {
      for (const { group } of plan.chosen)
        if (!this.#suspects.includes(group)) this.#groups.release(group);
      this.#sessions.withdraw(plan.offered);
    }
  }

  async #sendWhole(client: Client, plan: ClaimPlan): Promise<ClaimResult> {
    const since = this.#tracing?.now() ?? 0;
    const request = { ...plan, except: this.passedOver, traced: this.#tracing !== null };
    const [outcome] = await Promise.all([
      this.#claim(client, request),
      this.#settingsAge.look(client, plan.offered.length > 0),
    ]);
    this.#tracing?.claimed(outcome.claimed, since);
    this.#settle(plan, outcome);
    this.#refused.passed(outcome.claimed);
    return outcome;
  }

  /** For a claim that was refused: what is not of these groups, which come with the next turn. */
  async #sendWithout(
    client: Client,
    plan: ClaimPlan,
    hashes: ReadonlySet<number>,
  ): Promise<ClaimResult> {
    for (const { group } of plan.chosen) if (hashes.has(group.hash)) this.#suspects.push(group);
    const rest = withoutGroups(plan, hashes);
    if (rest.groups.length === 0) return nothing;
    try {
      return await this.#sendWhole(client, rest);
    } catch (error) {
      if (!isRowError(error)) throw error;
      return await this.#sendWithout(client, rest, new Set(rest.groups.map(({ hash }) => hash)));
    }
  }

  async #claim(client: Client, request: ClaimRequest): Promise<ClaimResult> {
    if (!this.#oddMet && isQueuedClaim(request)) {
      try {
        const { odd, claimed, heads } = await claimQueued(client, this.#table, request);
        this.#oddMet = odd;
        return { ...nothing, claimed, heads: heads.map((head) => ({ ...head, paused: false })) };
      } catch (error) {
        if (!isTransient(error)) throw error;
        this.#log.debug({ err: error }, "tasks are claimed one step at a time");
      }
    }
    const outcome = await claimFull(client, this.#table, request);
    const { gone, locked, alone, claimed, heads } = outcome;
    this.#oddMet =
      gone.length + locked.length + alone > 0 ||
      claimed.some((task) => task.alone) ||
      heads.some(({ paused }) => paused);
    return outcome;
  }

  #settle(plan: ClaimPlan, outcome: ClaimResult): void {
    this.#locked.push(...outcome.locked.map(({ id }) => id));
    this.#plans.reserved = outcome.alone;
    this.#settleHeads(plan, outcome);
    this.#assign(outcome.claimed);
    this.#sessions.settle(plan.offered);
  }

  #assign(claimed: readonly ClaimedTask[]): void {
    const runs: AssignedRun[] = [];
    /** Claimed while something came that has to be written before they start. */
    const early: DueTask[] = [];
    const owners = new Map<string, string>();
    // What starts at once is the first that its session gets.
    const fronts = claimed.filter(({ front }) => front);
    const others = claimed.filter(({ front }) => !front);
    for (const task of [...fronts, ...others]) {
      const { owner } = task;
      this.#log.debug({ id: task.id, group: task.group }, "task starts");
      owners.set(task.id, owner);
      if (this.#outbox.holdsUp(task.hash)) early.push(task);
      else {
        const session = this.#sessions.numberOf(owner);
        runs.push({ task, session, shown: task.front, ledger: this.#ledgers.next() });
      }
    }
    const missed = this.#sessions.assign(runs).map(({ task }) => task);
    this.#started += runs.length - missed.length;
    for (const { id, hash, max } of [...early, ...missed]) {
      this.#outbox.putBack([], [{ id, owner: owners.get(id) ?? "", due: { hash, max } }]);
    }
  }

  /** What comes next in the groups it looked at; one of which it has seen all has nothing due. */
  #settleHeads({ chosen }: ClaimPlan, outcome: ClaimResult): void {
    const heads = new Map(outcome.heads.map((head) => [head.hash, head]));
    const seen = new Map<number, DueTask[]>();
    for (const task of [...outcome.claimed, ...outcome.locked, ...outcome.gone]) {
      const tasks = seen.get(task.hash);
      if (tasks === undefined) seen.set(task.hash, [task]);
      else tasks.push(task);
    }
    for (const { group, most } of chosen) {
      const next = heads.get(group.hash);
      const past = seen.get(group.hash) ?? [];
      if (next !== undefined) this.#groups.see(group.hash, position(next), next.paused);
      else this.#groups.see(group.hash, past.length > most ? last(past) : null, false);
    }
  }
}

const nothing: ClaimResult = {
  claimed: [],
  gone: [],
  locked: [],
  heads: [],
  more: 0,
  moreOf: new Set(),
  alone: 0,
};

function withoutGroups(plan: ClaimPlan, hashes: ReadonlySet<number>): ClaimPlan {
  return {
    ...plan,
    groups: plan.groups.filter(({ hash }) => !hashes.has(hash)),
    chosen: plan.chosen.filter(({ group }) => !hashes.has(group.hash)),
    kept: plan.kept.filter(({ hash }) => !hashes.has(hash)),
    // Sessions that stay with such a group are not to end.
    offered: plan.offered.filter(({ kept }) => kept === null || !hashes.has(kept.hash)),
  };
}

const position = ({ max, id }: DueTask): Head => ({ max, id: BigInt(id) });

function last(tasks: readonly DueTask[]): Head | null {
  let latest: Head | null = null;
  for (const task of tasks) {
    const at = position(task);
    if (latest === null || comesBefore(latest, at)) latest = at;
  }
  return latest;
}
