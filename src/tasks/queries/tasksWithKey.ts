import { hasSchedule } from "../../manager/schema/schedulesView.sql.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import { type Client, sqlState, type Queryable } from "../../shared/postgres/client.js";
import type { Change } from "../commands/changeTasks.js";
import { filterSql } from "../taskFilter.js";
import type { TaskState } from "../../shared/taskState.js";
import type { TaskFilter } from "../types.js";
import { isActiveSql } from "../sqlFragments.js";
import { PgTaskError } from "../../shared/errors.js";
import { quotedLine } from "../../shared/printable.js";
import { hasUsers } from "../hasUsers.js";

/** The changes that can be made to the tasks with a key. */
export type KeyedChange = Exclude<Change, "retry-without-waiting" | "run-without-waiting">;

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
 * With users, each role has keys of its own, and the tasks of one role are meant.
 *
 * @throws PgTaskError USAGE if tasks of this table cannot have keys, or if those of several roles match
 */
export async function readIdsWithKey(
  client: Client,
  table: TaskTable,
  change: KeyedChange,
  filter: KeyFilter,
): Promise<string[]> {
  const values: unknown[] = [];
  const matches = filterSql(filter, values);
  const role = await roleOf(client, table);
  const read = async (query: string): Promise<string[]> => {
    const { rows } = await client.query<Owned<{ id: string }>>(
      `SELECT f.id::pg_catalog.text AS id, f.role FROM (${query}) AS f ORDER BY f.id`,
      values,
    );
    requireOneRole(rows, filter.key);
    return rows.map(({ id }) => id);
  };
  const from = `t.id, ${role} AS role FROM ${table.qualified} AS t WHERE ${matches}`;
  const all = `SELECT ${from}`;
  const ofEachRole = `SELECT DISTINCT ON (role) ${from}`;
  switch (change) {
    case "stop":
      return await read(`${all} AND ${isActiveSql}`);
    case "run-now": {
      // These conditions are those of the index.
      const waiting = await read(`${all} AND t.key IS NOT NULL AND t.ready IS NOT NULL`);
      return waiting.length > 0 ? waiting : await read(`${all} AND ${isActiveSql}`);
    }
    case "retry":
      return await read(`${ofEachRole} ORDER BY role, t.id DESC`);
    case "pause":
    case "resume": {
      const carries = hasSchedule("t");
      return await read(
        `${ofEachRole} AND ${isActiveSql} ORDER BY role, ${carries} DESC, t.state::pg_catalog.text OPERATOR(pg_catalog.=) 'PLAN' DESC, t.id DESC`,
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

type Owned<T> = T & { readonly role: string | null };

/** Without users, whoever calls needs no privilege on the column. */
const roleOf = async (client: Queryable, table: TaskTable): Promise<string> =>
  (await hasUsers(client, table)) ? "t.role::pg_catalog.text" : "NULL::pg_catalog.text";

function requireOneRole(tasks: readonly Owned<unknown>[], key: string): void {
  const roles = [...new Set(tasks.map(({ role }) => role))];
  if (roles.length < 2) return;
  const names = roles.map((role) => role ?? "none").toSorted();
  throw new PgTaskError(
    "USAGE",
    `tasks of several roles have the key ${quotedLine(key)}: ${names.join(", ")}; say which with --role`,
  );
}

/**
 * The one that waits, else the one that runs, else the newest.
 *
 * @throws PgTaskError USAGE if tasks of several roles match
 */
export async function readTaskWithKey(
  client: Client,
  table: TaskTable,
  { key, role }: Pick<KeyFilter, "key" | "role">,
): Promise<KeyedTask | null> {
  const values: unknown[] = [];
  const matches = filterSql({ key, role }, values);
  const { rows } = await client.query<Owned<KeyedTask>>(
    `SELECT DISTINCT ON (role) t.id::pg_catalog.text AS id, t.state::pg_catalog.text AS state, ${await roleOf(client, table)} AS role
     FROM ${table.qualified} AS t WHERE ${matches}
     ORDER BY role, (t.ready IS NOT NULL) DESC, (${isActiveSql}) DESC, t.id DESC`,
    values,
  );
  requireOneRole(rows, key);
  return rows[0] ?? null;
}

/**
 * Null if there is none, or if the current user may not read it.
 *
 * @param role whose key is meant if the table has users. By default, that of the current user
 */
export async function readKeyHolder(
  client: Queryable,
  table: TaskTable,
  key: string,
  role: string | null,
): Promise<string | null> {
  try {
    const ofRole = (await hasUsers(client, table))
      ? " AND w.role OPERATOR(pg_catalog.=) coalesce($2::pg_catalog.name, current_user)"
      : " AND $2::pg_catalog.name IS NULL";
    const { rows } = await client.query<{ id: string }>(
      `SELECT w.id::pg_catalog.text AS id FROM ${table.qualified} AS w
       WHERE w.key OPERATOR(pg_catalog.=) $1::pg_catalog.text${ofRole} AND w.key IS NOT NULL AND w.ready IS NOT NULL LIMIT 1`,
      [key, role],
    );
    return rows[0]?.id ?? null;
  } catch (error) {
    if (sqlState(error) === null) throw error;
    return null;
  }
}
