import { queryOne } from "../queryOne.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { isFinalState, isTaskState, type TaskState } from "../../shared/taskState.js";
import { filterSql } from "../taskFilter.js";
import type { TaskChange, TaskFilter } from "../types.js";
import { isActiveSql } from "../sqlFragments.js";

interface SeenRow {
  readonly id: string;
  readonly state: string;
  readonly claimed: boolean;
  readonly fits: boolean;
}

const batchRows = 5_000;
/** How many ids below a new one can belong to rows that are committed later, and are therefore looked up again. */
const maxGap = 1_000;
const maxGaps = 10_000;

/**
 * Finds changes of the states of tasks: of given tasks, or of those that are unfinished at the start or are added later.
 *
 * The table has no index by the time of a change. The follower therefore remembers the state of each unfinished task,
 * and reads it again. New tasks are found by their ids. A task whose transaction commits late can appear below ids that
 * have been seen. Such gaps are looked up until every transaction that was running when the gap appeared has ended.
 */
export class ChangeFollower {
  readonly #table: TaskTable;
  readonly #ids: readonly string[] | null;
  readonly #filter: TaskFilter;
  /** The tasks that have not ended, with the state last seen. Null for a task that has not been seen. */
  readonly #followed = new Map<string, TaskState | null>();
  /** Changes that have not been returned, because reading was interrupted by an error after they were found. */
  readonly #found: TaskChange[] = [];
  #last: bigint | null = null;
  /** Ids below `last` that no row had, with the first transaction id not yet assigned then; null if not yet read. */
  readonly #gaps = new Map<bigint, bigint | null>();

  constructor(table: TaskTable, { ids, ...filter }: TaskFilter & { readonly ids?: readonly string[] | undefined }) {
    this.#table = table;
    this.#ids = ids ?? null;
    this.#filter = filter;
    for (const id of ids ?? []) this.#followed.set(id, null);
  }

  /** Whether all given tasks have ended. */
  get isDone(): boolean {
    return this.#ids !== null && this.#followed.size === 0;
  }

  /**
   * The first call returns changes of given tasks only. A call that fails can be repeated, on another connection.
   *
   * @throws PgTaskError USAGE for a filter with `key` if tasks of this table cannot have keys
   */
  async read(client: Queryable): Promise<TaskChange[]> {
    if (this.#ids === null && this.#last === null) {
      await this.#start(client);
      return [];
    }
    await this.#readFollowed(client);
    if (this.#last !== null) await this.#readNew(client, this.#last);
    return this.#found.splice(0);
  }

  async #start(client: Queryable): Promise<void> {
    const { qualified } = this.#table;
    const { last, gaps } = await queryOne<{ last: string; gaps: string[] }>(
      client,
      `SELECT m.last::pg_catalog.text AS last, ARRAY(
         SELECT g::pg_catalog.text FROM pg_catalog.generate_series(greatest(m.last OPERATOR(pg_catalog.-) ${maxGap}, 1), m.last) AS g
         WHERE NOT EXISTS (SELECT FROM ${qualified} AS t WHERE t.id OPERATOR(pg_catalog.=) g)) AS gaps
       FROM (SELECT coalesce(pg_catalog.max(id), 0) AS last FROM ${qualified}) AS m`,
    );
    const values: unknown[] = [last];
    const { rows } = await client.query<SeenRow>(
      `SELECT t.id::pg_catalog.text AS id, t.state::pg_catalog.text AS state FROM ${qualified} AS t
       WHERE t.id OPERATOR(pg_catalog.<=) $1::bigint AND ${isActiveSql}
         AND ${filterSql(this.#filter, values)}`,
      values,
    );
    for (const { id, state } of rows) this.#followed.set(id, stateOf(state));
    for (const gap of gaps) this.#gaps.set(BigInt(gap), null);
    this.#last = BigInt(last);
  }

  async #readFollowed(client: Queryable): Promise<void> {
    const ids = [...this.#followed.keys()];
    for (let from = 0; from < ids.length; from += batchRows) {
      const batch = ids.slice(from, from + batchRows);
      const { rows } = await client.query<SeenRow>(
        `SELECT t.id::pg_catalog.text AS id, t.state::pg_catalog.text AS state, t.owner IS NOT NULL AS claimed
         FROM ${this.#table.qualified} AS t WHERE t.id OPERATOR(pg_catalog.=) ANY ($1::bigint[])`,
        [batch],
      );
      const found = new Map(rows.map((row) => [row.id, row]));
      for (const id of batch) this.#note(id, found.get(id));
    }
  }

  async #readNew(client: Queryable, last: bigint): Promise<void> {
    const settled = await this.#readSettledGaps(client);
    const values: unknown[] = [String(last), [...this.#gaps.keys()].map(String)];
    const fits = filterSql(this.#filter, values);
    const columns = `t.id, t.state::pg_catalog.text AS state, t.owner IS NOT NULL AS claimed, (${fits}) IS TRUE AS fits`;
    const { qualified } = this.#table;
    const { rows } = await client.query<SeenRow>(
      `SELECT n.id::pg_catalog.text AS id, n.state, n.claimed, n.fits FROM (
         SELECT ${columns} FROM ${qualified} AS t WHERE t.id OPERATOR(pg_catalog.=) ANY ($2::bigint[])
         UNION ALL (SELECT ${columns} FROM ${qualified} AS t WHERE t.id OPERATOR(pg_catalog.>) $1::bigint ORDER BY t.id LIMIT ${batchRows})
       ) AS n ORDER BY n.id`,
      values,
    );
    for (const row of rows) {
      this.#advance(BigInt(row.id));
      if (!row.fits) continue;
      this.#followed.set(row.id, null);
      this.#note(row.id, row);
    }
    for (const gap of settled) this.#gaps.delete(gap);
  }

  async #readSettledGaps(client: Queryable): Promise<bigint[]> {
    if (this.#gaps.size === 0) return [];
    const { oldest, next } = await queryOne<{ oldest: string; next: string }>(
      client,
      `SELECT pg_catalog.txid_snapshot_xmin(s)::pg_catalog.text AS oldest, pg_catalog.txid_snapshot_xmax(s)::pg_catalog.text AS next
       FROM pg_catalog.txid_current_snapshot() AS s`,
    );
    const settled: bigint[] = [];
    for (const [gap, boundary] of this.#gaps) {
      if (boundary === null) this.#gaps.set(gap, BigInt(next));
      else if (boundary <= BigInt(oldest)) settled.push(gap);
    }
    return settled;
  }

  #advance(id: bigint): void {
    this.#gaps.delete(id);
    const last = this.#last ?? 0n;
    if (id <= last) return;
    const first = id - last > maxGap ? id - BigInt(maxGap) : last + 1n;
    for (let gap = first; gap < id; gap += 1n) this.#gaps.set(gap, null);
    for (const gap of this.#gaps.keys()) {
      if (this.#gaps.size <= maxGaps) break;
      this.#gaps.delete(gap);
    }
    this.#last = id;
  }

  #note(id: string, row: Pick<SeenRow, "state" | "claimed"> | undefined): void {
    const previous = this.#followed.get(id) ?? null;
    const state = row === undefined ? null : stateOf(row.state);
    if (row === undefined || (!row.claimed && isFinalState(row.state))) this.#followed.delete(id);
    else this.#followed.set(id, state);
    if (state !== previous || row === undefined) this.#found.push({ id, previous, state });
  }
}

/** Returns the state, or null for a text that is none, which only a user's own type of the column can hold. */
const stateOf = (text: string): TaskState | null => (isTaskState(text) ? text : null);
