import { hasSchedule } from "../../manager/schema/schedulesView.sql.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import { type Client, sqlState, type Queryable } from "../../shared/postgres/client.js";
import type { Change } from "../commands/changeTasks.js";
import { filterSql } from "../taskFilter.js";
import type { TaskState } from "../../shared/taskState.js";
import type { TaskFilter } from "../types.js";
import { isActiveSql, keyHolderQuery } from "../sqlFragments.js";

export type KeyFilter = TaskFilter & { readonly key: string };

/**
 * Returns the ids of the tasks that a change of the tasks with a key is meant for, in ascending order:
 *
 * - `stop`: the task that waits and the one that runs.
 * - `run-now`: the task that waits. If none does, the one that runs, so that the result can say so.
 * - `retry`: the newest one that matches, because only one task can wait with a key.
 * - `pause` and `resume`: the one that carries the schedule. If none does, one that waits or runs, so that the result can
 *   say so.
 * - `delete`: all.
 *
 * The index of keys has only the task that waits. All others are found by scanning the table.
 *
 * @throws PgTaskError USAGE if tasks of this table cannot have keys
 */
export async function readIdsWithKey(
  client: Client,
  table: TaskTable,
  change: Change,
  filter: KeyFilter,
): Promise<string[]> {
  const values: unknown[] = [];
  const matches = filterSql(filter, values);
  const read = async (query: string): Promise<string[]> => {
    const { rows } = await client.query<{ id: string }>(
      `SELECT f.id::pg_catalog.text AS id FROM (${query}) AS f ORDER BY f.id`,
      values,
    );
    return rows.map(({ id }) => id);
  };
  const all = `SELECT t.id FROM ${table.qualified} AS t WHERE ${matches}`;
  switch (change) {
    case "stop":
      return await read(`${all} AND ${isActiveSql}`);
    case "run-now": {
      // These conditions are those of the index.
      const waiting = await read(`${all} AND t.key IS NOT NULL AND t.ready IS NOT NULL`);
      return waiting.length > 0 ? waiting : await read(`${all} AND ${isActiveSql}`);
    }
    case "retry":
      return await read(`${all} ORDER BY t.id DESC LIMIT 1`);
    case "pause":
    case "resume": {
      const carries = hasSchedule("t");
      return await read(
        `${all} AND ${isActiveSql} ORDER BY ${carries} DESC, t.state::pg_catalog.text OPERATOR(pg_catalog.=) 'PLAN' DESC, t.id DESC LIMIT 1`,
      );
    }
    case "delete":
    case "delete even running":
      return await read(all);
    default:
      return change satisfies never;
  }
}

export interface KeyedTask {
  readonly id: string;
  readonly state: TaskState;
}

/** The one that waits, else the one that runs, else the newest. */
export async function readTaskWithKey(client: Client, table: TaskTable, key: string): Promise<KeyedTask | null> {
  const { rows } = await client.query<KeyedTask>(
    `SELECT t.id::pg_catalog.text AS id, t.state::pg_catalog.text AS state FROM ${table.qualified} AS t WHERE t.key OPERATOR(pg_catalog.=) $1::pg_catalog.text
     ORDER BY (t.ready IS NOT NULL) DESC, (${isActiveSql}) DESC, t.id DESC LIMIT 1`,
    [key],
  );
  return rows[0] ?? null;
}

/** Null if there is none, or if the current user may not read it. */
export async function readKeyHolder(client: Queryable, table: TaskTable, key: string): Promise<string | null> {
  try {
    const { rows } = await client.query<{ id: string }>(
      `SELECT id::pg_catalog.text FROM (${keyHolderQuery(table, "$1::pg_catalog.text")}) AS holder`,
      [key],
    );
    return rows[0]?.id ?? null;
  } catch (error) {
    if (sqlState(error) === null) throw error;
    return null;
  }
}
