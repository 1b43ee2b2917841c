import { lockClasses } from "../../shared/postgres/advisoryLocks.js";
import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import type { GroupScanner } from "../groups/groupScanner.js";
import type { Statistics } from "../telemetry/statistics.js";
import { changeRows, RejectedRows } from "../sql/rejectedRows.js";
import { readColumnSet } from "../schema/columnSet.js";
import type { TaskTable } from "../schema/taskTable.js";
import { lookUpPredecessors, readToLookUp, restartLookUp, type Judged } from "./lookUp.sql.js";
import {
  deleteAwaited,
  readEndedDependencies,
  releaseDependents,
  removeRead,
  type EndedDependency,
} from "./release.sql.js";

const batch = 1000;

/** Minimum time between two checks of all dependencies, in ms. After a long check, it is `checkRestFactor` times as long. */
const minCheckIntervalMs = 1000;
const checkRestFactor = 20;

/** All dependencies are checked at this interval, in ms, in case that an end went unnoticed. */
const maxCheckIntervalMs = 30_000;

/** If a step has changed nothing, for example because rows are locked, the next one waits this long, in ms. */
const lockedPauseMs = 100;

interface DependencyComponents {
  readonly table: TaskTable;
  readonly groupScanner: GroupScanner;
  readonly statistics: Statistics;
  readonly log: Log;
}

/**
 * Lets tasks wait for the end of others (the column `after`).
 *
 *   inserted, wait > 0 ──look up──▶ wait = 0, dependencies stored ──release──▶ wait is null, planned
 *            │                          │
 *            └──────────────────────────┴──▶ GONE
 *
 * Predecessors that this manager ends are reported by `ended`. For those that others end, for example by a STOP or
 * DELETE, all dependencies are checked after a change of the table.
 *
 * Two managers may serve the table for a moment, while one hands over to the other. An advisory lock lets only one of
 * them change dependencies at a time, so that each sees what the other has changed.
 */
export class Dependencies {
  readonly #components: DependencyComponents;
  readonly #rejected: RejectedRows;
  /** Ended predecessors whose dependents have to be released. */
  readonly #ended = new Set<string>();
  #hasDependencies = true;
  /** Whether rows are kept until the tasks that may read their outputs have ended. */
  #hasUnread = true;
  #hasTableChanged = true;
  #mayCheckAt = 0;
  #mustCheckAt = 0;
  #mayRemoveAt = 0;
  #pausedUntil = 0;
  /** When tasks without dependencies are searched for again, on the process's clock. */
  #mustSearchAt = 0;

  constructor(components: DependencyComponents) {
    this.#components = components;
    this.#rejected = new RejectedRows(components.log);
  }

  ended(ids: Iterable<string>): void {
    for (const id of ids) this.#ended.add(id);
  }

  tableChanged(): void {
    this.#hasTableChanged = true;
  }

  /** Results have been written. */
  resultsWritten(): void {
    this.#hasTableChanged ||= this.#hasUnread;
  }

  /** On a new connection it is not known what has happened in the meantime. */
  restart(): void {
    this.#hasDependencies = true;
    this.#hasUnread = true;
    this.#hasTableChanged = true;
    this.#mayCheckAt = 0;
    this.#mustSearchAt = 0;
  }

  /** Whether tasks wait for others, or rows are kept for them, as far as is known. */
  get hasAny(): boolean {
    return this.#hasDependencies || this.#ended.size > 0;
  }

  /** The last manager has seen none. */
  settle(): void {
    this.#hasDependencies = false;
    this.#hasUnread = false;
  }

  get pauseMs(): number {
    const now = performance.now();
    if (this.#ended.size > 0) return Math.max(1, this.#pausedUntil - now);
    // Such tasks are left over only if rows are locked or rejected.
    if (this.#components.groupScanner.hasTasksToLookUp) return minCheckIntervalMs;
    if (!this.#hasDependencies) return Infinity;
    return Math.max(1, this.#mayCheckAt - now, this.#hasTableChanged ? 0 : this.#rejected.nextRetryMs);
  }

  /** Looks up predecessors and releases dependents, one batch of each. Returns whether tasks have changed. */
  async step(client: Client): Promise<boolean> {
    if (performance.now() < this.#pausedUntil) return false;
    if (!this.#components.groupScanner.hasTasksToLookUp && this.#ended.size === 0 && !this.#mustCheckAll) return false;
    if (!(await this.#lock(client))) {
      this.#pausedUntil = performance.now() + lockedPauseMs;
      return false;
    }
    let changed: number;
    try {
      changed = (await this.#lookUp(client)) + (await this.#removeRead(client)) + (await this.#release(client));
    } finally {
      await this.#unlock(client);
    }
    if (changed === 0) {
      this.#pausedUntil = performance.now() + lockedPauseMs;
      return false;
    }
    this.#components.groupScanner.markChanged();
    return true;
  }

  get #mustCheckAll(): boolean {
    const now = performance.now();
    if (!this.#hasDependencies || now < this.#mayCheckAt) return false;
    return this.#hasTableChanged || now >= this.#mustCheckAt || this.#rejected.nextRetryMs === 0;
  }

  async #lock(client: Client): Promise<boolean> {
    const { rows } = await client.query<{ locked: boolean }>({
      name: "lock dependencies",
      text: "SELECT pg_try_advisory_lock($1, $2::regclass::oid::bigint::bit(32)::integer) AS locked",
      values: [lockClasses.change, this.#components.table.qualified],
    });
    return rows[0]?.locked === true;
  }

  async #unlock(client: Client): Promise<void> {
    await client.query({
      name: "unlock dependencies",
      text: "SELECT pg_advisory_unlock($1, $2::regclass::oid::bigint::bit(32)::integer)",
      values: [lockClasses.change, this.#components.table.qualified],
    });
  }

  async #lookUp(client: Client): Promise<number> {
    if (!this.#components.groupScanner.hasTasksToLookUp) return 0;
    const ids = await readToLookUp(client, this.#components.table, batch, this.#rejected.delayedIds);
    if (ids.length === 0) return 0;
    const columns = await readColumnSet(client, this.#components.table);
    const judged: Judged[] = [];
    await changeRows(
      client,
      ids,
      async (some) => {
        const lookedUp = await lookUpPredecessors(client, this.#components.table, columns, some);
        if (lookedUp.some(({ unread }) => unread)) this.#keepUnread();
        judged.push(...lookedUp);
      },
      (id, error) => void this.#rejected.add(id, error, "lookup of predecessors rejected by the server, retrying"),
    );
    const held = judged.filter(({ verdict }) => verdict === "wait").length;
    this.#hasDependencies ||= held > 0;
    this.#components.statistics.count("held", held);
    await this.#settle(client, judged, []);
    return judged.length;
  }

  async #release(client: Client): Promise<number> {
    const checksAll = this.#ended.size === 0 && this.#mustCheckAll;
    if (!checksAll && this.#ended.size === 0) return 0;
    const since = performance.now();
    if (checksAll) this.#hasTableChanged = false;
    const predecessors = checksAll ? null : [...this.#ended].slice(0, batch);
    const found = await readEndedDependencies(client, this.#components.table, {
      predecessors,
      except: this.#rejected.delayedIds,
      limit: batch,
    });
    const changed = checksAll ? await this.#checked(client, since, found.length) : 0;
    if (found.some(({ state, unread }) => unread || state !== "DONE")) this.#keepUnread();
    const judged: Judged[] = [];
    const columns = found.length === 0 ? null : await readColumnSet(client, this.#components.table);
    if (columns !== null) {
      await changeRows(
        client,
        found,
        async (some) => {
          judged.push(...(await releaseDependents(client, this.#components.table, columns, some)));
        },
        ({ task }, error) => {
          this.#rejected.add(task, error, "release of a waiting task rejected by the server, retrying");
        },
      );
    }
    this.#components.statistics.count("released", judged.filter(({ verdict }) => verdict === "start").length);
    if (predecessors !== null && found.length < batch) for (const id of predecessors) this.#ended.delete(id);
    // Dependents whose rows are locked or rejected are found again when all dependencies are checked.
    const settled = new Set(judged.map(({ id }) => id));
    if (found.some(({ task }) => !settled.has(task))) this.#hasTableChanged = true;
    await this.#settle(client, judged, found.length < batch ? (predecessors ?? idsOf(found)) : []);
    return judged.length + changed;
  }

  async #checked(client: Client, since: number, found: number): Promise<number> {
    const now = performance.now();
    this.#mayCheckAt = found === batch ? 0 : restAfter(since);
    this.#mustCheckAt = now + maxCheckIntervalMs;
    if (found === batch) this.#hasTableChanged = true;
    if (found > 0) return 0;
    const { table } = this.#components;
    const { rows } = await client.query<{ some: boolean; unread: boolean }>({
      name: "has dependencies",
      text: `SELECT EXISTS (SELECT FROM ${table.qualifiedDependencies}) AS some,
        EXISTS (SELECT FROM ${table.qualifiedDependencies} WHERE failed IS NOT FALSE) AS unread`,
    });
    this.#hasDependencies = rows[0]?.some === true;
    this.#hasUnread = rows[0]?.unread === true;
    return this.#hasDependencies && now < this.#mustSearchAt ? 0 : await this.#restartLost(client, now);
  }

  /** Lets rows be pruned whose outputs have been read. */
  async #removeRead(client: Client): Promise<number> {
    const since = performance.now();
    if (!this.#hasUnread || (since < this.#mayRemoveAt && !this.#mustCheckAll)) return 0;
    const removed = await removeRead(client, this.#components.table);
    this.#mayRemoveAt = restAfter(since);
    return removed;
  }

  #keepUnread(): void {
    this.#hasDependencies = true;
    this.#hasUnread = true;
  }

  /** If rows of the dependency table were deleted by hand, the tasks that wait by them are looked up again. */
  async #restartLost(client: Client, now: number): Promise<number> {
    const tasks = await restartLookUp(client, this.#components.table, batch);
    this.#mustSearchAt = now + maxCheckIntervalMs;
    if (tasks > 0) this.#components.log.warn({ tasks }, "dependencies of waiting tasks were deleted, looking up again");
    return tasks;
  }

  /** A task that is GONE because of its predecessors has ended, so those that wait for it follow. */
  async #settle(client: Client, judged: readonly Judged[], ended: readonly string[]): Promise<void> {
    for (const { id } of judged) this.#rejected.delete(id);
    const gone = judged.flatMap(({ id, verdict }) => (verdict === "refuse" || verdict === "omit" ? id : []));
    this.ended(gone);
    this.#components.statistics.count("gone", gone.length);
    const omitted = judged.flatMap(({ id, verdict }) => (verdict === "omit" ? id : []));
    const deletable = [...ended, ...omitted];
    if (deletable.length > 0) await deleteAwaited(client, this.#components.table, deletable);
  }
}

/** When to look at all dependencies again, after a look that has begun at `since`. */
function restAfter(since: number): number {
  const now = performance.now();
  return now + Math.max(minCheckIntervalMs, (now - since) * checkRestFactor);
}

const idsOf = (dependencies: readonly EndedDependency[]): string[] => [
  ...new Set(dependencies.map(({ predecessor }) => predecessor)),
];
