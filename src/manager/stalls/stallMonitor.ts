import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import { stalledMs } from "../../shared/tuning.js";
import type { Stall } from "../../shared/statistics.js";
import type { Claimer } from "../claim/claimer.js";
import type { LockedTasks } from "../claim/lockedTasks.js";
import { noLoad } from "../groups/activeGroup.js";
import type { ActiveGroups } from "../groups/groups.js";
import type { GroupScanner } from "../groups/groupScanner.js";
import type { OrphanRescuer } from "../recovery/orphanRescuer.js";
import type { PendingResults } from "../results/pendingResults.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import type { SessionReserve } from "../sessions/sessionReserve.js";
import type { SessionPool } from "../sessions/sessionPool.js";
import type { SessionPoolLoad } from "../sessions/sessionPoolLoad.js";
import { availableConnections } from "../sessions/availableConnections.sql.js";
import {
  idleFor,
  readGroupHeads,
  readOverdueTasks,
  readUnmarkedTasks,
  type GroupHead,
  type OverdueTask,
} from "./stalls.sql.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { RejectedRows } from "../sql/rejectedRows.js";
import type { RoleLanes } from "../claim/roleLanes.js";
import type { PoolScaler } from "../sessions/poolScaler.js";
import { stallCheckMs } from "../model/tuning.js";

/** If a session's backend has been idle for this long, in ms, the session could have run a task. */
const idleMs = 1_000;
/** How many groups one check visits, and for how many tasks it reads the rows. */
const maxGroups = 250;
const maxTasks = 10;
/** A number below all group hashes. */
const beforeFirstHash = -2_147_483_649;

export interface MonitoredLoop {
  readonly isAsleep: boolean;
  readonly state: Readonly<Record<string, number | boolean | null>>;
  wake(): void;
}

/** The first due task of its group, or a task that is not marked as due although its planned time has come. */
interface Suspect {
  readonly id: string;
  readonly since: number;
}

/**
 * Checks for stalls every few seconds, and more rarely in deep sleep, in parallel with the cycles. In a stall, due tasks
 * do not start although sessions are free and nothing else prevents it, and no other task starts either. The cause is a
 * bug in pg-task, a wake-up that never arrived, or a user's trigger that suppresses changes of a row. The monitor
 * compares the rows with the sessions' queues and with what the server reports, since the manager's counters may be
 * wrong. In a stall, it corrects them, and has the first due task of every group read again.
 *
 *   suspect ──could start at every check for `stalledMs`, nothing started, row not locked──▶ stalled ──tasks started──▶ resolved
 */
export class StallMonitor {
  readonly #components: StallMonitorOptions;
  readonly #times: { readonly stalledMs: number; readonly idleMs: number };
  readonly #now: () => number;
  /** Suspects by the hash of the group, or by the key of a task that is not marked as due. */
  readonly #suspects = new Map<number | string, Suspect>();
  /** Ids of tasks with locked rows. Tasks behind them in the same group may start. */
  #locked: string[] = [];
  #after = beforeFirstHash;
  #checkedAt = 0;
  #claimedCount = 0;
  #stall: Stall | null = null;

  constructor(
    components: StallMonitorOptions,
    options: {
      readonly times?: { readonly stalledMs: number; readonly idleMs: number };
      /** Returns the time on the process's clock, in ms. */
      readonly now?: () => number;
    } = {},
  ) {
    this.#components = components;
    this.#times = options.times ?? { stalledMs, idleMs };
    this.#now = options.now ?? (() => performance.now());
  }

  /** @param currentLoop returns the manager's loop, or null while the manager claims no tasks */
  async watch(client: Client, signal: AbortSignal, currentLoop: () => MonitoredLoop | null): Promise<void> {
    this.#suspects.clear();
    for (;;) {
      await sleep(this.pauseMs(currentLoop()), undefined, { signal, ref: false }).catch(() => {});
      if (signal.aborted) return;
      const loop = currentLoop();
      if (loop !== null) await this.check(client, loop);
    }
  }

  pauseMs(loop: Pick<MonitoredLoop, "isAsleep"> | null): number {
    const mayRest = loop?.isAsleep === true && this.#suspects.size === 0 && this.#stall === null;
    return mayRest ? stallCheckMs.asleep : stallCheckMs.awake;
  }

  async check(client: Client, loop: Pick<MonitoredLoop, "state" | "wake">): Promise<void> {
    const now = this.#now();
    // If the last check was so long ago, this process was probably suspended, so no task could start.
    if (now - this.#checkedAt > 3 * stallCheckMs.awake) this.#suspects.clear();
    this.#checkedAt = now;
    try {
      await this.#checkResolved(client);
      const found = await this.#find(client, now);
      if (found.length > 0) this.#report(found, loop);
    } catch (error) {
      if (!isTransient(error)) throw error;
      this.#suspects.clear();
    }
  }

  async #checkResolved(client: Client): Promise<void> {
    if (this.#stall === null) return;
    const { table, log, send } = this.#components;
    const overdue = await readOverdueTasks(client, table, this.#stall.tasks);
    if (overdue.length > 0) return;
    const { since } = this.#stall;
    this.#stall = null;
    log.info({ since }, "due tasks start again");
    send({ type: "stalled", stall: null });
  }

  async #find(client: Client, now: number): Promise<OverdueTask[]> {
    const load = this.#components.sessions.load;
    // While others start, a task may have to wait although sessions are free: tasks that come first get the sessions
    // that the pool uses, and leave the rest free.
    if (this.#hasStarted() || !this.#hasFreeSession(load)) {
      this.#suspects.clear();
      return [];
    }
    const hadSuspects = this.#suspects.size > 0;
    await this.#updateSuspects(client, load, now);
    if (hadSuspects && !(await this.#serverConfirmsFree(client, load))) this.#suspects.clear();
    const stalled = await this.#readStalled(client, now);
    if (!this.#hasStarted()) return stalled;
    this.#suspects.clear();
    return [];
  }

  #hasStarted(): boolean {
    const { started } = this.#components.claimer;
    const has = started !== this.#claimedCount;
    this.#claimedCount = started;
    return has;
  }

  #hasFreeSession({ busy, free, working }: SessionPoolLoad): boolean {
    const { orphans, poolScaler, maxRuns } = this.#components;
    if (busy + orphans.hashes.length >= maxRuns) return false;
    return free.length > 0 || working.length > 0 || poolScaler.canGrow;
  }

  /** Busy sessions are checked as well, unless a large output waits to be written: the pool may be wrong about them. */
  async #serverConfirmsFree(client: Client, { free, working }: SessionPoolLoad): Promise<boolean> {
    const { pendingResults, poolScaler } = this.#components;
    const pids = pendingResults.largeCount === 0 ? [...free, ...working] : free;
    if (pids.length > 0 && (await idleFor(client, pids, this.#times.idleMs)) > 0) return true;
    const mayGrow = free.length === 0 && poolScaler.canGrow;
    return mayGrow && (await availableConnections(client)) > 0;
  }

  /** Visits the next groups. Tasks that could start become or stay suspects; all others are removed. */
  async #updateSuspects(client: Client, load: SessionPoolLoad, now: number): Promise<void> {
    const { table, claimer, groupScanner, orphans } = this.#components;
    const rows = await readOverdueTasks(client, table, this.#locked);
    this.#locked = lockedIds(rows);
    const after = this.#after;
    const except = [...this.#locked, ...claimer.rejected.rows.ids, ...groupScanner.rejectedIds];
    const running = this.#countRunning(load);
    const [heads, unmarked] = await Promise.all([
      readGroupHeads(client, table, {
        after,
        limit: maxGroups,
        except,
        running,
        keys: [...load.keys, ...orphans.keys],
      }),
      readUnmarkedTasks(client, table, { limit: maxTasks, except }),
    ]);
    const last = heads.length < maxGroups ? Infinity : (heads.at(-1)?.hash ?? Infinity);
    this.#after = last === Infinity ? beforeFirstHash : last;
    const found = new Map<number | string, string>();
    for (const head of heads) {
      if (this.#canStart(head, running.get(head.hash) ?? 0, load)) found.set(head.hash, head.id);
    }
    for (const id of unmarked) found.set(`unmarked ${id}`, id);
    const wasVisited = (hash: number): boolean => hash > after && hash <= last;
    for (const key of this.#suspects.keys()) {
      if ((typeof key === "string" || wasVisited(key)) && !found.has(key)) {
        this.#suspects.delete(key);
      }
    }
    for (const [key, id] of found) {
      if (this.#suspects.get(key)?.id !== id) this.#suspects.set(key, { id, since: now });
    }
  }

  #countRunning({ groups }: SessionPoolLoad): ReadonlyMap<number, number> {
    const running = new Map([...groups].map(([hash, { sessions }]) => [hash, sessions]));
    for (const hash of this.#components.orphans.hashes) running.set(hash, (running.get(hash) ?? 0) + 1);
    return running;
  }

  #canStart({ hash, gap_ms: gapMs, blockers }: GroupHead, running: number, load: SessionPoolLoad): boolean {
    const { groups, lanes } = this.#components;
    if (lanes?.isHeldUp(hash) === true) return false;
    if (blockers.length > 0 || groups.isWithheld(hash)) return false;
    const groupLoad = load.groups.get(hash) ?? noLoad;
    const group = groups.get(hash);
    if (group !== null && groups.gaps.isWithin({ ...groupLoad, startedAt: group.startedAt }, gapMs)) return false;
    return groupLoad.minQueuedMax >= running && !(groups.runsAnything(hash, running) && this.#areOthersReserved(load));
  }

  /** Whether all sessions that could take a task are reserved for groups or shares that run nothing. */
  #areOthersReserved({ busy, free }: SessionPoolLoad): boolean {
    const { orphans, maxRuns, reserve } = this.#components;
    if (busy + orphans.hashes.length + reserve.size >= maxRuns) return true;
    return free.length > 0 && free.length <= reserve.size;
  }

  /** Reads the tasks that have been able to start for too long, except those with locked rows. */
  async #readStalled(client: Client, now: number): Promise<OverdueTask[]> {
    const ids = [...this.#suspects.values()]
      .filter(({ since }) => now - since >= this.#times.stalledMs)
      .slice(0, maxTasks)
      .map(({ id }) => id);
    if (ids.length === 0) return [];
    const tasks = await readOverdueTasks(client, this.#components.table, ids);
    this.#locked.push(...lockedIds(tasks));
    return tasks.filter((task) => !task.locked);
  }

  #report(found: readonly OverdueTask[], loop: Pick<MonitoredLoop, "state" | "wake">): void {
    const { log, send } = this.#components;
    const tasks = found.map(({ id }) => id);
    const groups = found.map(({ group }) => group);
    const isNew = this.#stall === null;
    const since = this.#stall?.since ?? new Date(Date.now() - this.#times.stalledMs).toISOString();
    this.#stall = { since, tasks };
    if (isNew) {
      log.error(
        { tasks, groups, since, state: { ...this.#describe(tasks), loop: loop.state } },
        "due tasks do not start although sessions are free",
      );
    }
    send({ type: "stalled", stall: this.#stall });
    this.#recount();
    loop.wake();
  }

  #describe(tasks: readonly string[]): Readonly<Record<string, unknown>> {
    const { sessions, groups, orphans, pendingResults, claimer, poolScaler, groupScanner } = this.#components;
    const { states, groups: loads, busy } = sessions.load;
    const hashes = [...this.#suspects].flatMap(([key, { id }]) =>
      typeof key === "number" && tasks.includes(id) ? key : [],
    );
    return {
      groups: hashes.map((hash) => {
        const load = (loads.get(hash) ?? noLoad).sessions;
        const group = groups.get(hash);
        if (group === null) return { hash, sessions: load };
        const { head: first, running, queuedTasks, minQueuedMax, starting, paused, claiming } = group;
        const head = first === null ? null : { max: first.max, id: String(first.id) };
        return { hash, sessions: load, head, running, queuedTasks, minQueuedMax, starting, paused, claiming };
      }),
      startable: groups.startable.size,
      total: groups.totalRunning,
      busy,
      sessions: states,
      orphans: orphans.size,
      pendingResults: pendingResults.state,
      claimer: claimer.state,
      poolScaler: poolScaler.state,
      nearestMs: groupScanner.nextDueMs,
    };
  }

  /** This is safe, because a claim relies on the rows that it has locked, not on the counters. */
  #recount(): void {
    const { sessions, groups, orphans, claimer, groupScanner } = this.#components;
    const { busy, groups: loads, keys, current } = sessions.load;
    groups.recount({ busy, groups: loads, orphans: orphans.hashes, keys: [...keys, ...orphans.keys], current });
    claimer.locked.clear();
    groupScanner.restart();
  }
}

export interface StallMonitorOptions {
  readonly table: TaskTable;
  readonly sessions: Pick<SessionPool, "load">;
  readonly groups: ActiveGroups;
  readonly orphans: Pick<OrphanRescuer, "size" | "hashes" | "keys">;
  readonly pendingResults: Pick<PendingResults, "state" | "largeCount">;
  readonly claimer: Pick<Claimer, "started" | "state"> & {
    readonly rejected: { readonly rows: Pick<RejectedRows, "ids"> };
    readonly locked: Pick<LockedTasks, "clear">;
  };
  readonly poolScaler: Pick<PoolScaler, "canGrow" | "state">;
  readonly lanes?: Pick<RoleLanes, "isHeldUp">;
  readonly reserve: Pick<SessionReserve, "size">;
  readonly groupScanner: Pick<GroupScanner, "restart" | "nextDueMs" | "rejectedIds">;
  readonly maxRuns: number;
  readonly send: (message: { readonly type: "stalled"; readonly stall: Stall | null }) => void;
  readonly log: Log;
}

const lockedIds = (tasks: readonly OverdueTask[]): string[] => tasks.flatMap((task) => (task.locked ? task.id : []));
