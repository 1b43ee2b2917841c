/**
 * SQL for the text that names a server process: its pid and its exact start. A pid alone comes back
 * sooner or later; compared for equality only, since clocks step.
 *
 * @param row name of a row of pg_stat_activity in the statement.
 */
export function ownerExpression(row: string): string {
  return `pg_catalog.concat(${row}.pid, ' ', pg_catalog.to_char(pg_catalog.timezone('UTC', ${row}.backend_start), 'YYYY-MM-DD"T"HH24:MI:SS.US'))`;
}
