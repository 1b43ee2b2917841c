import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import type { Stall } from "../../shared/stall.js";
import type { Claimer } from "../claim/claimer.js";
import { noLoad, type ActiveGroups } from "../groups/groups.js";
import type { GroupScanner } from "../groups/groupScanner.js";
import type { OrphanRescuer } from "../recovery/orphanRescuer.js";
import type { PendingResults } from "../results/pendingResults.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import type { ManagerLoop } from "../loop/managerLoop.js";
import type { SessionPool, SessionPoolLoad } from "../sessions/sessionPool.js";
import { connectionRoom } from "../sessions/connectionRoom.sql.js";
import { idleFor } from "../sessions/idleFor.sql.js";
import { scanGroups } from "../groups/scanGroups.sql.js";
import { unmarked, overdueTasks, type OverdueTask } from "./overdueTasks.sql.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { PoolScaler } from "../sessions/poolScaler.js";

/** How often it looks, and for how long a task has to wait while it does, in ms. */
const lookMs = 2_500;
const stalledMs = 10_000;
/** A session that has had nothing to do for so long could have taken a task, in ms. */
const idleMs = 1_000;
/** How many groups one look visits, and how many tasks it looks at more closely. */
const mostGroups = 250;
const mostTasks = 10;
/** Before all hashes. */
const beginning = -2_147_483_649;

/** A group's first due task, or one that is not marked as due, as long as it stays that. */
interface Suspect {
  readonly id: string;
  /** On the process's clock, in ms. */
  readonly since: number;
}

/** A key of its own for each task that is not marked as due; groups have their hashes. */
const unmarkedKey = (id: string): string => `unmarked ${id}`;

/**
 * Looks seldom, beside the turns, whether something due that nothing keeps from starting is not taken though
 * sessions are free, which is a bug in pg-task, a wake-up that never came, or a row that a trigger of the user's keeps back. It goes by the rows, what
 * sessions have in their queues and what the server says, not by what is counted of these. It says what it
 * has found, and only then has everything read and counted anew.
 */
export class StallMonitor {
  readonly #parts: StallMonitorOptions;
  readonly #times: { readonly stalledMs: number; readonly idleMs: number };
  readonly #now: () => number;
  /** By the groups' hashes, or the keys of those that are not marked. */
  readonly #suspects = new Map<number | string, Suspect>();
  /** Tasks that somebody has locked: what comes behind them may start. */
  #locked: string[] = [];
  #after = beginning;
  #lookedAt = 0;
  #started = 0;
  #stall: Stall | null = null;

  constructor(
    parts: StallMonitorOptions,
    options: {
      readonly times?: { readonly stalledMs: number; readonly idleMs: number };
      /** The process's clock, in ms. */
      readonly now?: () => number;
    } = {},
  ) {
    this.#parts = parts;
    this.#times = options.times ?? { stalledMs, idleMs };
    this.#now = options.now ?? (() => performance.now());
  }

  /**
   * Looks until `signal` is aborted.
   *
   * @param service null while it is not the table's.
   */
  async watch(
    client: Client,
    signal: AbortSignal,
    service: () => Pick<ManagerLoop, "state" | "wake"> | null,
  ): Promise<void> {
    this.#suspects.clear();
    for (;;) {
      await sleep(lookMs, undefined, { signal, ref: false }).catch(() => {});
      if (signal.aborted) return;
      const its = service();
      if (its !== null) await this.look(client, its);
    }
  }

  /** One look; to be called every few seconds. */
  async look(client: Client, service: Pick<ManagerLoop, "state" | "wake">): Promise<void> {
    const now = this.#now();
    // This process stood still: nobody could have taken anything.
    if (now - this.#lookedAt > 3 * lookMs) this.#suspects.clear();
    this.#lookedAt = now;
    try {
      await this.#settle(client);
      const found = await this.#find(client, now);
      if (found.length > 0) this.#say(found, service);
    } catch (error) {
      if (!isTransient(error)) throw error;
      this.#suspects.clear();
    }
  }

  /** Whether those that were found have been taken since. */
  async #settle(client: Client): Promise<void> {
    if (this.#stall === null) return;
    const { table, log, send } = this.#parts;
    const left = await overdueTasks(client, table, this.#stall.tasks);
    if (left.length > 0) return;
    const { since } = this.#stall;
    this.#stall = null;
    log.info({ since }, "due tasks are taken again");
    send({ type: "stalled", stall: null });
  }

  async #find(client: Client, now: number): Promise<OverdueTask[]> {
    const { sessions, claiming } = this.#parts;
    const load = sessions.load;
    const { started } = claiming;
    const idle = started === this.#started;
    this.#started = started;
    if (!this.#hasRoom(load, idle)) {
      this.#suspects.clear();
      return [];
    }
    const known = [...this.#suspects.values()].some(({ since }) => since < now);
    await this.#visit(client, load, now);
    if (known && !(await this.#isFree(client, load, idle))) this.#suspects.clear();
    return await this.#judge(client, now);
  }

  /** Whether a session could take a task, as far as that is known here. */
  #hasRoom({ busy, free, working }: SessionPoolLoad, idle: boolean): boolean {
    const { orphans, workforce, mostRuns } = this.#parts;
    if (busy + orphans.hashes.length >= mostRuns()) return false;
    // As long as those that are there start something, there may be as many as are worth having.
    return free.length > 0 || (idle && (working.length > 0 || workforce.mayGrow));
  }

  /** Whether the server says so as well: of one that is thought to be at work, too, unless its output is on the way. */
  async #isFree(
    client: Client,
    { free, working }: SessionPoolLoad,
    idle: boolean,
  ): Promise<boolean> {
    const { outbox, workforce } = this.#parts;
    const some = idle && outbox.large === 0 ? [...free, ...working] : free;
    if (some.length > 0 && (await idleFor(client, some, this.#times.idleMs)) > 0) return true;
    const mayGrow = free.length === 0 && idle && workforce.mayGrow;
    return mayGrow && (await connectionRoom(client)) > 0;
  }

  /** Remembers the first due tasks of the next groups, as far as nothing keeps them from starting. */
  async #visit(client: Client, load: SessionPoolLoad, now: number): Promise<void> {
    const { table, claiming, groups, lookout, orphans } = this.#parts;
    const elsewhere = orphans.hashes;
    const locked = await overdueTasks(client, table, this.#locked);
    this.#locked = locked.flatMap((task) => (task.locked ? task.id : []));
    const after = this.#after;
    const except = [...this.#locked, ...claiming.refused, ...lookout.refused];
    const [heads, late] = await Promise.all([
      scanGroups(client, table, { after, limit: mostGroups, except }),
      unmarked(client, table, { limit: mostTasks, except }),
    ]);
    const last = heads.length < mostGroups ? Infinity : (heads.at(-1)?.hash ?? Infinity);
    this.#after = last === Infinity ? beginning : last;
    const found = new Map<number | string, string>();
    for (const { hash, max, id, gone, paused } of heads) {
      const { sessions, least } = load.groups.get(hash) ?? noLoad;
      const running = sessions + elsewhere.filter((other) => other === hash).length;
      const allowed = !gone && !paused && !groups.isWithheld(hash);
      if (allowed && Math.min(max, least) >= running) found.set(hash, String(id));
    }
    for (const id of late) found.set(unmarkedKey(id), id);
    for (const key of this.#suspects.keys()) {
      const visited = typeof key === "string" || (key > after && key <= last);
      if (visited && !found.has(key)) this.#suspects.delete(key);
    }
    for (const [key, id] of found) {
      if (this.#suspects.get(key)?.id !== id) this.#suspects.set(key, { id, since: now });
    }
  }

  /** Those that have waited for too long, and that nobody has locked. */
  async #judge(client: Client, now: number): Promise<OverdueTask[]> {
    const ripe = [...this.#suspects.values()]
      .filter(({ since }) => now - since >= this.#times.stalledMs)
      .slice(0, mostTasks);
    if (ripe.length === 0) return [];
    const ids = ripe.map(({ id }) => id);
    const tasks = await overdueTasks(client, this.#parts.table, ids);
    const locked = tasks.flatMap((task) => (task.locked ? task.id : []));
    this.#locked.push(...locked);
    return tasks.filter((task) => !task.locked);
  }

  #say(found: readonly OverdueTask[], service: Pick<ManagerLoop, "state" | "wake">): void {
    const { log, send } = this.#parts;
    const tasks = found.map(({ id }) => id);
    const groups = found.map(({ group }) => group);
    const first = this.#stall === null;
    const since = this.#stall?.since ?? new Date(Date.now() - this.#times.stalledMs).toISOString();
    this.#stall = { since, tasks };
    if (first) {
      log.error(
        { tasks, groups, since, knows: { ...this.#knowledge(tasks), service: service.state } },
        "due tasks are not taken though sessions are free",
      );
    }
    send({ type: "stalled", stall: this.#stall });
    this.#heal();
    service.wake();
  }

  /** What is counted and believed, for whoever has to find out why. */
  #knowledge(tasks: readonly string[]): Readonly<Record<string, unknown>> {
    const { sessions, groups, orphans, outbox, claiming, workforce, lookout } = this.#parts;
    const { states, groups: held, busy } = sessions.load;
    const hashes = [...this.#suspects].flatMap(([key, { id }]) =>
      typeof key === "number" && tasks.includes(id) ? key : [],
    );
    return {
      groups: hashes.map((hash) => {
        const group = groups.get(hash);
        const { sessions: having } = held.get(hash) ?? noLoad;
        if (group === null) return { hash, having };
        const { head, running, waiting: behind, least, paused, chosen } = group;
        const first = head === null ? null : { max: head.max, id: String(head.id) };
        return { hash, having, head: first, running, waiting: behind, least, paused, chosen };
      }),
      startable: groups.startable,
      total: groups.total,
      busy,
      sessions: states,
      orphans: orphans.size,
      outbox: outbox.state,
      claiming: claiming.state,
      workforce: workforce.state,
      nearestMs: lookout.nearestMs,
    };
  }

  /** What it goes by is counted and read anew: rows under their locks decide all the same. */
  #heal(): void {
    const { sessions, groups, orphans, claiming, lookout } = this.#parts;
    const { busy, groups: held } = sessions.load;
    groups.recount({ busy, groups: held, orphans: orphans.hashes });
    claiming.locked = [];
    lookout.restart();
  }
}

export interface StallMonitorOptions {
  readonly table: TaskTable;
  readonly sessions: Pick<SessionPool, "load">;
  readonly groups: ActiveGroups;
  readonly orphans: Pick<OrphanRescuer, "size" | "hashes">;
  readonly outbox: Pick<PendingResults, "state" | "large">;
  readonly claiming: Pick<Claimer, "refused" | "started" | "state" | "locked">;
  readonly workforce: Pick<PoolScaler, "mayGrow" | "state">;
  readonly lookout: Pick<GroupScanner, "restart" | "nearestMs" | "refused">;
  /** `pg_task.run`. */
  readonly mostRuns: () => number;
  readonly send: (message: { readonly type: "stalled"; readonly stall: Stall | null }) => void;
  readonly log: Log;
}
