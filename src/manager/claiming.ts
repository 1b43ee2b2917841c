import { sqlState, type Client } from "../shared/database.js";
import type { Log } from "../shared/log.js";
import { comesBefore, precedes, type Group, type Groups, type Head } from "./groups.js";
import type { Ledgers } from "./ledgers.js";
import type { Outbox } from "./outbox.js";
import { isPassing } from "./passing.js";
import { Places } from "./places.js";
import type { RunTimes } from "./runTimes.js";
import type { AssignedRun, OfferedSession } from "./session.js";
import { Refusals } from "./refusals.js";
import type { Sessions } from "./sessions.js";
import {
  claim,
  type Claim,
  type ClaimedGroup,
  type ClaimRequest,
  type DueTask,
  type Place,
} from "./sql/claim.js";
import type { ClaimedTask } from "./sql/claimedTask.js";
import { claimSole } from "./sql/claimSole.js";
import type { TaskTable } from "./table.js";
import type { Tracing } from "./tracing.js";

/** Before every task of a group. */
const top: Head = { max: 2_147_483_647, id: -(2n ** 63n) };

export interface Claimed {
  /** How many tasks were given to sessions. */
  readonly claimed: number;
  /** How many more could start had they a session, as far as it was looked. */
  readonly more: number;
  /** Groups with tasks that are not worth running any more. */
  readonly gone: readonly number[];
  /** How many were passed over since somebody has their row locked. */
  readonly locked: number;
}

/** A claim that is to be sent, and what it is made from. */
interface Plan extends ClaimRequest {
  readonly offered: readonly OfferedSession[];
  readonly chosen: readonly {
    readonly group: Group;
    readonly head: Head | null;
    readonly most: number;
  }[];
}

/**
 * Gives due tasks to sessions. Free sessions first: those get the best tasks, one each. When none is
 * free and runs are short, more tasks wait in the sessions behind what runs, so that these need not
 * wait for the manager: those of a group that is at its limit in the sessions that have it already.
 */
export class Claiming {
  readonly #table: TaskTable;
  readonly #sessions: Sessions;
  readonly #groups: Groups;
  readonly #outbox: Outbox;
  readonly #ledgers: Ledgers;
  readonly #runTimes: RunTimes;
  readonly #tracing: Tracing | null;
  readonly #log: Log;
  /** Due tasks whose row somebody has locked: not looked at until they are found free. */
  #locked: string[] = [];
  /** How many sessions are left to run dry, for tasks that must be alone in theirs. */
  #reserved = 0;
  readonly #refusals: Refusals;

  constructor(options: {
    readonly table: TaskTable;
    readonly sessions: Sessions;
    readonly groups: Groups;
    readonly outbox: Outbox;
    readonly ledgers: Ledgers;
    readonly runTimes: RunTimes;
    readonly tracing?: Tracing | null;
    readonly log: Log;
  }) {
    this.#table = options.table;
    this.#sessions = options.sessions;
    this.#groups = options.groups;
    this.#outbox = options.outbox;
    this.#ledgers = options.ledgers;
    this.#runTimes = options.runTimes;
    this.#tracing = options.tracing ?? null;
    this.#log = options.log;
    this.#refusals = new Refusals(options.log);
  }

  /** Ids of due tasks that are not looked at, for whatever reason. */
  get passedOver(): readonly string[] {
    return [...this.#locked, ...this.#refusals.ids];
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
  ): Promise<Claimed> {
    const gone = new Set<number>();
    let [claimed, more, locked, start] = [0, 0, 0, room.start];
    let moreOf: ReadonlySet<number> = new Set();
    // What is to start first may be on its way back, or a pause be due: the next turn sees to it.
    while (!this.#outbox.holdsUpAny) {
      const most = Math.min(room.fetch, room.limit - claimed);
      const plan = this.#refusals.careful
        ? this.#planOne(start)
        : this.#plan(most, start, room.lookAhead);
      if (plan === null) break;
      const busy = this.#sessions.busy;
      const outcome = await this.#send(client, plan);
      for (const { hash } of outcome.gone) gone.add(hash);
      claimed += outcome.claimed.length;
      locked += outcome.locked.length;
      start -= Math.max(0, this.#sessions.busy - busy);
      ({ more, moreOf } = outcome);
      // Sessions that were filled up have little room again by now: not worth another statement.
      const filled = plan.offered.length === 0 && outcome.claimed.length < most;
      if (filled || outcome.claimed.length === 0 || claimed >= room.limit) break;
    }
    // Groups it has looked at and those that it has not, of which one task each is known.
    const counted = [...moreOf].filter((hash) => this.#groups.mayStart(hash)).length;
    more = Math.min(room.lookAhead, more + this.#groups.startable - counted);
    return { claimed, more, gone: [...gone], locked };
  }

  /**
   * Starts the task that is due if there is but one, as long as nothing runs and nothing is known to be due.
   *
   * @returns how many were started.
   */
  async startSole(client: Client, room: { readonly start: number }): Promise<number> {
    const wanted = room.start > 0 && this.#groups.total === 0 && this.#groups.startable === 0;
    if (!wanted || this.#outbox.holdsUpAny || this.#refusals.careful) return 0;
    const offered = this.#sessions.offer(1);
    const [session] = offered;
    try {
      if (session === undefined || session.kept !== null) return 0;
      const traced = this.#tracing !== null;
      const since = this.#tracing?.now() ?? 0;
      const task = await claimSole(client, this.#table, {
        session,
        except: this.passedOver,
        traced,
      });
      if (task === null) return 0;
      this.#tracing?.claimed([task], since);
      this.#assign([task]);
      return 1;
    } catch (error) {
      // What the server refuses is found out, and left out, by a claim that knows what it asks for.
      if (sqlState(error) === null || isPassing(error)) throw error;
      return 0;
    } finally {
      this.#sessions.withdraw(offered);
    }
  }

  #plan(most: number, start: number, lookAhead: number): Plan | null {
    const offered = this.#sessions.offer(Math.min(most, start));
    if (offered.length > 0) {
      const plan = this.#planStarts(offered, lookAhead, most);
      if (plan !== null) return plan;
      this.#sessions.withdraw(offered);
    }
    const behind = most > 0 ? this.#planBehind(most) : null;
    if (behind !== null || lookAhead === 0 || offered.length > 0) return behind;
    return this.#planStarts([], lookAhead, most);
  }

  /** A single task, so that it is known which one the server refuses. */
  #planOne(start: number): Plan | null {
    const offered = this.#sessions.offer(Math.min(1, start));
    const plan = offered.length > 0 ? this.#planStarts(offered, 0, 1) : null;
    if (plan === null) this.#sessions.withdraw(offered);
    return plan;
  }

  /** One task for each free session, and more behind it when all are of one group and expected to be short. */
  #planStarts(offered: readonly OfferedSession[], lookAhead: number, most: number): Plan | null {
    const kept = offered.flatMap((session) => session.kept ?? []);
    const chosen = new Set<Group>();
    for (const { hash } of kept) {
      const group = this.#groups.choose(hash);
      if (group !== null) chosen.add(group);
    }
    const ranked: Group[] = [];
    while (ranked.length < offered.length + lookAhead) {
      const group = this.#groups.next();
      if (group === null) break;
      chosen.add(group);
      ranked.push(group);
      // Those that are left are counted without a look.
      if (ranked.length >= Math.max(1, offered.length) && this.#groups.startable >= lookAhead)
        break;
    }
    if (chosen.size === 0) return null;
    const fronts = offered.flatMap(({ owner, pid, kept: stays }) =>
      stays === null ? { owner, pid, front: true } : [],
    );
    const behind = kept.length > 0 ? [] : this.#behindFronts(offered, ranked, most - fronts.length);
    const places = [...fronts, ...behind];
    const look = offered.length + behind.length + lookAhead;
    const mosts = mostOfEach([...chosen], look);
    return this.#request(offered, places, kept, look, mosts, null);
  }

  /** Places behind tasks that start now, where a single group has any. */
  #behindFronts(
    offered: readonly OfferedSession[],
    ranked: readonly Group[],
    most: number,
  ): Place[] {
    const [group] = ranked;
    const sessions = offered.map((session) => ({ ...session, aheadMs: 0, groups: [] }));
    const places = new Places(sessions, this.#runTimes);
    if (group === undefined || ranked.length > 1) return [];
    if (!places.suits(group) || this.#runTimes.known(group.hash) === 0) return [];
    const behind: Place[] = [];
    for (let taken = 0; behind.length < most; taken += 1) {
      const place = places.behindAny(group.hash);
      if (place === null) break;
      // The first of each session is its front.
      if (taken >= offered.length) behind.push(place);
    }
    return behind;
  }

  /**
   * More tasks for busy sessions, best first. One that is expected to be long, or of which nothing is
   * known, is not put behind others: a session is left to run dry for it, and nothing worse is put
   * where it could have gone.
   */
  #planBehind(most: number): Plan | null {
    const places = new Places(this.#sessions.roomy(), this.#runTimes);
    places.reserve(this.#reserved);
    if (places.none) return null;
    const own = this.#waitingBehindOwn(places);
    const mosts = new Map<Group, number>();
    const ownPlaces = new Map<Group, readonly Place[]>();
    const shared: Place[] = [];
    const ranked: Group[] = [];
    const passed: Group[] = [];
    let left = most;
    while (left > 0 && !places.none) {
      const best = this.#groups.best;
      const mine = own[0];
      if (mine !== undefined && (best === null || mine === best || ownPrecedes(mine, best))) {
        own.shift();
        const behind = places.behindOwn(mine.hash, left);
        if (behind.length === 0) continue;
        this.#groups.choose(mine.hash);
        mosts.set(mine, behind.length);
        ownPlaces.set(mine, behind);
        left -= behind.length;
        continue;
      }
      const group = this.#groups.next();
      if (group === null) break;
      if (!places.suits(group)) {
        passed.push(group);
        places.reserve(1);
        continue;
      }
      const place = places.behindAny(group.hash);
      if (place === null) {
        passed.push(group);
        break;
      }
      shared.push(place);
      ranked.push(group);
      left -= 1;
    }
    for (const group of passed) this.#groups.release(group);
    for (const [group, count] of mostOfEach(ranked, shared.length)) mosts.set(group, count);
    if (mosts.size === 0) return null;
    return this.#request([], shared, [], shared.length, mosts, ownPlaces);
  }

  /** Whether it could have more sessions, and has not shown yet whether that is worth it. */
  #isNew({ hash, head, running }: Group): boolean {
    return head !== null && head.max >= running && this.#runTimes.known(hash) === 0;
  }

  /** Groups of which more may wait in the sessions that have some, best first. */
  #waitingBehindOwn(places: Places): Group[] {
    const groups = places.groups.flatMap((hash) => {
      const group = this.#groups.get(hash);
      return group !== null && mayWait(group) && !this.#isNew(group) ? group : [];
    });
    return groups.toSorted((a, b) => (precedes(a, b, 0) ? -1 : 1));
  }

  #request(
    offered: readonly OfferedSession[],
    places: ClaimRequest["places"],
    kept: ClaimRequest["kept"],
    look: number,
    mosts: ReadonlyMap<Group, number>,
    own: ReadonlyMap<Group, ClaimRequest["places"]> | null,
  ): Plan {
    const chosen = [...mosts].map(([group, most]) => ({ group, head: group.head, most }));
    const groups = chosen.map(({ group, head, most }): ClaimedGroup => {
      const { max, id } = head ?? top;
      const { hash, running } = group;
      return { hash, running, max, id, most, places: own?.get(group) ?? null };
    });
    return {
      offered,
      chosen,
      groups,
      places,
      kept,
      look,
      except: this.passedOver,
      traced: this.#tracing !== null,
    };
  }

  async #send(client: Client, plan: Plan): Promise<Claim> {
    const since = this.#tracing?.now() ?? 0;
    try {
      const outcome = await claim(client, this.#table, plan);
      this.#tracing?.claimed(outcome.claimed, since);
      this.#settle(plan, outcome);
      this.#refusals.passed(outcome.claimed);
      return outcome;
    } catch (error) {
      const locked = this.#refusals.take(error, plan.chosen);
      if (locked === null) throw error;
      return { claimed: [], gone: [], locked, heads: [], more: 0, moreOf: new Set(), alone: 0 };
    } finally {
      for (const { group } of plan.chosen) this.#groups.release(group);
      this.#sessions.withdraw(plan.offered);
    }
  }

  #settle(plan: Plan, outcome: Claim): void {
    this.#locked.push(...outcome.locked.map(({ id }) => id));
    this.#reserved = outcome.alone;
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
    for (const { id, hash, max } of [...early, ...missed]) {
      this.#outbox.putBack([], [{ id, owner: owners.get(id) ?? "", due: { hash, max } }]);
    }
  }

  /** What comes next in the groups it looked at; one of which it has seen all has nothing due. */
  #settleHeads({ chosen }: Plan, outcome: Claim): void {
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

const position = ({ max, id }: DueTask): Head => ({ max, id: BigInt(id) });

function last(tasks: readonly DueTask[]): Head | null {
  let latest: Head | null = null;
  for (const task of tasks) {
    const at = position(task);
    if (latest === null || comesBefore(latest, at)) latest = at;
  }
  return latest;
}

/** A task behind one of its own group starts when that has ended, so that one less runs by then. */
const ownPrecedes = (own: Group, other: Group): boolean => precedes(own, other, 1);

/** Whether more of its tasks may wait in the sessions that have some. */
function mayWait({ head, running, paused, chosen }: Group): boolean {
  return head !== null && !paused && !chosen && head.max >= running - 1;
}

/**
 * How many of each group may be among the best `count` tasks, given that of each one only the first
 * is known: others come before its k-th one for certain where their first has a larger max minus
 * running than it can have.
 */
function mostOfEach(groups: readonly Group[], count: number): Map<Group, number> {
  const priorities = groups.map(({ head, running }) => (head?.max ?? top.max) - running);
  const sorted = priorities.toSorted((a, b) => b - a);
  const mosts = new Map<Group, number>();
  for (const [index, group] of groups.entries()) {
    const priority = priorities[index] ?? 0;
    const allowed = Math.min(priority, group.least - group.running) + 1;
    let most = 1;
    let before = 0;
    while (most < allowed) {
      while (before < sorted.length && (sorted[before] ?? 0) > priority - most) before += 1;
      // The group's own first is among those before.
      if (most + Math.max(0, before - 1) >= count) break;
      most += 1;
    }
    mosts.set(group, most);
  }
  return mosts;
}
