import { Backoff } from "../../shared/backoff.js";
import type { Client } from "../../shared/postgres/client.js";
import type { DueTask } from "../model/tasks.js";
import type { TaskTable } from "../schema/taskTable.js";
import { lockedRecheckMs } from "../model/tuning.js";
import { recheckLocked } from "./recheckLocked.sql.js";

/**
 * Due tasks whose rows were locked when a claim wanted to take them. Claims skip them until a recheck finds them free.
 * Rechecks follow at growing intervals, which start again when other rows are found locked.
 *
 *     locked ──recheck: free──▶ freed ──claimed──▶ forgotten
 *        │                      │   ▲
 *        │      claim: locked again │ recheck: free
 *        │                      ▼   │
 *        └─recheck: changed──▶ contended ──claimed, or timeout──▶ forgotten
 *
 * Other sessions keep changing a contended row in short transactions. A claim that only tries to lock such a row might
 * never find it free, so the next full claim waits for it. A row that one transaction holds for long does not become
 * contended, because its version stays the same.
 */
export class LockedTasks {
  readonly #table: TaskTable;
  /** The ids of locked rows, each with the row's version at the last recheck. Null before the first recheck. */
  #locked = new Map<string, string | null>();
  /** Ids of the rows that the last recheck has found free, and that have not been claimed since. */
  #freed = new Set<string>();
  #contended = new Set<string>();
  readonly #backoff = new Backoff({ firstMs: lockedRecheckMs.first, maxMs: lockedRecheckMs.max });
  #recheckAt = 0;
  /** A notification does not lead to a recheck before this time. */
  #restsUntil = 0;

  constructor(table: TaskTable) {
    this.#table = table;
  }

  get ids(): readonly string[] {
    return [...this.#locked.keys()];
  }

  get contendedIds(): readonly string[] {
    return [...this.#contended];
  }

  get size(): number {
    return this.#locked.size + this.#contended.size;
  }

  get recheckMs(): number {
    return this.size === 0 ? Infinity : Math.max(0, this.#recheckAt - performance.now());
  }

  /** Rechecks soon, because a transaction that has changed the table may have held the locks. */
  notified(): void {
    this.#recheckAt = Math.min(this.#recheckAt, Math.max(this.#restsUntil, performance.now()));
  }

  add(ids: readonly string[]): void {
    const isNew = ids.some((id) => !this.#locked.has(id) && !this.#freed.has(id) && !this.#contended.has(id));
    const isFirst = this.size === 0;
    for (const id of ids) {
      this.forget(id);
      this.#locked.set(id, null);
    }
    if (!isNew && !isFirst) return;
    if (isNew) this.#backoff.reset();
    const next = performance.now() + this.#backoff.next();
    this.#recheckAt = isFirst ? next : Math.min(this.#recheckAt, next);
  }

  /** A claim has not got the rows of these tasks. Returns the contended ones, which the next claim need not skip. */
  addUnclaimed(tasks: readonly DueTask[]): readonly DueTask[] {
    const contended = tasks.filter(({ id }) => this.#freed.has(id) || this.#contended.has(id));
    const others = tasks.filter(({ id }) => !this.#freed.has(id) && !this.#contended.has(id));
    if (others.length > 0) this.add(others.map(({ id }) => id));
    if (contended.length > 0 && this.size === 0) this.#recheckAt = performance.now() + this.#backoff.next();
    for (const { id } of contended) {
      this.#freed.delete(id);
      this.#contended.add(id);
    }
    return contended;
  }

  /** Forgets a task, because it was claimed, or because waiting for its row took too long. */
  forget(id: string): void {
    this.#locked.delete(id);
    this.#freed.delete(id);
    this.#contended.delete(id);
  }

  clear(): void {
    this.#locked = new Map();
    this.#freed = new Set();
    this.#contended = new Set();
  }

  /** Reads the rows again. Returns the due tasks that claims no longer skip, because their rows are free or contended. */
  async recheck(client: Client): Promise<readonly DueTask[]> {
    if (this.size === 0) return [];
    const since = performance.now();
    this.#recheckAt = since + this.#backoff.next();
    const rows = await recheckLocked(client, this.#table, [...this.#locked.keys(), ...this.#contended]);
    // If many rows are locked, the rechecks must not keep the manager from its other work.
    const now = performance.now();
    this.#restsUntil = now + Math.max((now - since) * lockedRecheckMs.restFactor, lockedRecheckMs.first);
    this.#recheckAt = Math.max(this.#recheckAt, this.#restsUntil);
    const [seen, contended] = [this.#locked, this.#contended];
    this.clear();
    for (const { id, locked, version } of rows) {
      const last = seen.get(id) ?? null;
      if (!locked) this.#freed.add(id);
      else if (contended.has(id) || (last !== null && last !== version)) this.#contended.add(id);
      else this.#locked.set(id, version);
    }
    return rows.filter(({ id }) => !this.#locked.has(id));
  }
}
