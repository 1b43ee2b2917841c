import type { TaskTable } from "../manager/schema/taskTable.js";
import type { StartupSettings } from "../shared/postgres/startupOptions.js";

/** SQL condition that is true if a row of the table `t` is marked due. The index of due tasks supports it. */
export const isDueSql = "t.ready";

/**
 * The sort order of the index of due tasks, as SQL. With this order and a LIMIT, the server reads no more rows from the
 * index than the LIMIT needs, however many rows the planner expects.
 */
export const dueOrderSql = "t.hash, greatest(t.max, 0) DESC, t.id";

/**
 * SQL condition that is true if a row of the table `t` waits and is not marked due. `NOT t.ready` is the condition of
 * the index of planned tasks. With IS FALSE in addition, the planner expects few rows, because it knows that `ready` is
 * null in most rows.
 */
export const isPlannedSql = "NOT t.ready AND t.ready IS FALSE";

/**
 * Returns the SQL of a time as ISO 8601 text with UTC offset, or as `infinity`. A timestamp without time zone is taken
 * to be in the session's time zone.
 */
export const isoTimeSql = (expression: string): string =>
  `pg_catalog.to_json((${expression})::pg_catalog.timestamptz) OPERATOR(pg_catalog.#>>) '{}'`;

/** Returns the SQL of an interval in milliseconds. */
export const millisecondsSql = (expression: string): string =>
  `pg_catalog.round((pg_catalog.date_part('epoch', ${expression}) OPERATOR(pg_catalog.*) 1000)::numeric, 3)::pg_catalog.float8`;

/** SQL of a query for the id of the task that waits with a key. Its condition is that of the index of keys. */
export const keyHolderQuery = ({ qualified }: TaskTable, key: string): string =>
  `SELECT w.id FROM ${qualified} AS w WHERE w.key OPERATOR(pg_catalog.=) ${key} AND w.key IS NOT NULL AND w.ready IS NOT NULL LIMIT 1`;

/** SQL condition: the row `t` waits for the end of others. */
export const isHeldSql =
  "t.wait OPERATOR(pg_catalog.>=) 0 AND t.state::pg_catalog.text OPERATOR(pg_catalog.=) 'PLAN' AND t.owner IS NULL";

/** SQL condition: the row `t` waits for the end of others, which the manager has not looked up yet. An index has it. */
export const isToLookUpSql = `t.wait OPERATOR(pg_catalog.>) 0 AND t.ready IS NOT NULL AND ${isHeldSql}`;

/** SQL condition: the row `t` has not ended. */
export const isActiveSql =
  "(t.owner IS NOT NULL OR t.state::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY['PLAN', 'TAKE', 'WORK']))";

/**
 * Settings for connections that read a few rows of a large table by index. By default, the planner assumes that a
 * random page read costs four times as much as a sequential one, as on a spinning disk. With this assumption, it would
 * scan the whole table rather than use the index.
 */
export const indexScanSettings: StartupSettings = { random_page_cost: 1.1 };
