/**
 * SQL expression for the text that names a server process for good: `PID BACKEND_START`, the start in
 * UTC with microseconds. Null where `backend_start` may not be read. The manager and the sessions
 * compare these texts, so both must use this expression.
 *
 * @param alias what pg_catalog.pg_stat_activity is called in the query, as SQL
 */
export function ownerSql(alias: string): string {
  const start =
    `pg_catalog.to_char(pg_catalog.timezone('UTC', ${alias}.backend_start), ` +
    `'YYYY-MM-DD"T"HH24:MI:SS.US')`;
  return `${alias}.pid::pg_catalog.text OPERATOR(pg_catalog.||) ' ' OPERATOR(pg_catalog.||) ${start}`;
}
