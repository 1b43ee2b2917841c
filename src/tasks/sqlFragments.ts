import type { StartupSettings } from "../shared/postgres/startupOptions.js";

/** The row `t` is marked due. The index of due tasks supports it. */
export const isDueSql = "t.ready";

/** With this order, that of the index of due tasks, the server reads no more rows than a LIMIT needs. */
export const dueOrderSql = "t.hash, greatest(t.max, 0) DESC, t.id";

/**
 * The row `t` waits and is not marked due. `NOT t.ready` is the condition of the index; from IS FALSE, the planner
 * knows that these are few rows, because `ready` is null in most.
 */
export const isPlannedSql = "NOT t.ready AND t.ready IS FALSE";

/** ISO 8601 text with UTC offset, or `infinity`. A timestamp without time zone is taken to be in the session's. */
export const isoTimeSql = (expression: string): string =>
  `pg_catalog.to_json((${expression})::pg_catalog.timestamptz) OPERATOR(pg_catalog.#>>) '{}'`;

export const millisecondsSql = (expression: string): string =>
  `pg_catalog.round((pg_catalog.date_part('epoch', ${expression}) OPERATOR(pg_catalog.*) 1000)::numeric, 3)::pg_catalog.float8`;

/** The row `t` waits for the end of others. */
export const isHeldSql =
  "t.wait OPERATOR(pg_catalog.>=) 0 AND t.state::pg_catalog.text OPERATOR(pg_catalog.=) 'PLAN' AND t.owner IS NULL";

/** The row `t` waits for the end of others, which the manager has not looked up yet. An index has it. */
export const isToLookUpSql = `t.wait OPERATOR(pg_catalog.>) 0 AND t.ready IS NOT NULL AND ${isHeldSql}`;

/** The row `t` has not ended. */
export const isActiveSql =
  "(t.owner IS NOT NULL OR t.state::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY['PLAN', 'TAKE', 'WORK']))";

/** By default, the planner assumes a spinning disk, and would scan a large table to read a few rows of it. */
export const indexScanSettings: StartupSettings = { random_page_cost: 1.1 };

/** The share (`shareOf`) of a row of the task table, if the parameter holds `pg_task.share`, which is not empty. */
export const shareSql = (alias: string, parameter: string): string =>
  `pg_catalog.split_part(${alias}."group"::pg_catalog.text, ${parameter}::pg_catalog.text, 1)`;
