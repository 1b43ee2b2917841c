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
