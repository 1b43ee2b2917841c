/** SQL condition that a row of the table `t` is marked due. It uses the index of due tasks. */
export const isDueSql = "t.ready";

/**
 * The sort order of the index of due tasks, as SQL. With this order and a LIMIT, the planner reads no more rows from
 * the index than the LIMIT needs, however many rows it expects.
 */
export const dueOrderSql = "t.hash, greatest(t.max, 0) DESC, t.id";

/**
 * SQL condition that a row waits and is not marked due. IS FALSE makes the planner expect few rows, because `ready` is
 * null in most rows.
 */
export const isPlannedSql = "NOT t.ready AND t.ready IS FALSE";

/**
 * Returns the SQL of a time as ISO 8601 text with UTC offset, or as `infinity`. A timestamp without time zone is taken
 * to be in the session's time zone.
 */
export const isoTimeSql = (expression: string): string => `pg_catalog.to_json((${expression})::timestamptz) #>> '{}'`;

/** Returns the SQL of an interval in milliseconds. */
export const millisecondsSql = (expression: string): string =>
  `round((pg_catalog.date_part('epoch', ${expression}) * 1000)::numeric, 3)::float8`;
