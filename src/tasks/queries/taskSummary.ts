import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";
import type { TaskSummary } from "../types.js";
import { maskConnectionString } from "../../shared/postgres/connectionString/maskConnectionString.js";
import { isoTimeSql, millisecondsSql } from "../sqlFragments.js";
import { isHeldSql } from "./waitingTasks.js";

/**
 * Maximum size of an output that is read, in bytes. Longer outputs are not read at all, because some server versions
 * decompress the whole value to read its beginning.
 */
const maxReadOutputBytes = 1_000_000;

const finite = (time: string): string => `pg_catalog.isfinite(${time}::pg_catalog.timestamptz)`;

/** Returns the SQL of a summary's columns for the table `t`. `substr` reads only the needed part of a stored value. */
const columns = (characters: number): string => `
  t.id::pg_catalog.text AS id, t.parent::pg_catalog.text AS parent, t.state::pg_catalog.text AS state, t."group"::pg_catalog.text AS "group",
  ${isoTimeSql("t.plan")} AS plan, ${isoTimeSql("t.start")} AS start, ${isoTimeSql("t.stop")} AS stop,
  ${millisecondsSql(
    `CASE WHEN NOT ${finite("t.start")} THEN NULL WHEN t.owner IS NOT NULL THEN pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) t.start::pg_catalog.timestamptz
      WHEN ${finite("t.stop")} THEN t.stop::pg_catalog.timestamptz OPERATOR(pg_catalog.-) t.start::pg_catalog.timestamptz END`,
  )} AS "tookMs",
  t.ready, t.owner IS NOT NULL AS claimed, t.pid::pg_catalog.float8 AS pid, t.max::pg_catalog.float8 AS max,
  CASE WHEN t.repeat OPERATOR(pg_catalog.>) interval '0' THEN t.repeat::pg_catalog.text END AS repeat, t.remote::pg_catalog.text AS remote,
  t.rule, t.key, t.retry, t.attempt, (${isHeldSql}) IS TRUE AS held,
  pg_catalog.substr(t.input::pg_catalog.text, 1, ${characters}) AS input, pg_catalog.substr(t.error::pg_catalog.text, 1, ${characters}) AS error,
  CASE WHEN pg_catalog.octet_length(t.output::pg_catalog.text) OPERATOR(pg_catalog.<=) ${maxReadOutputBytes}
    THEN pg_catalog.substr(t.output::pg_catalog.text, 1, ${characters}) END AS output,
  pg_catalog.octet_length(t.output::pg_catalog.text)::pg_catalog.float8 AS "outputBytes"`;

/**
 * Returns summaries of tasks in the order of `ids`. Ids for which there is no task are skipped.
 *
 * @param characters maximum length of input, output and error, in characters
 */
export async function readSummaries(
  client: Queryable,
  table: TaskTable,
  ids: readonly string[],
  characters: number,
): Promise<TaskSummary[]> {
  if (ids.length === 0) return [];
  const { rows } = await client.query<TaskSummary>(
    `SELECT ${columns(characters)} FROM ${table.qualified} AS t WHERE t.id OPERATOR(pg_catalog.=) ANY ($1::bigint[])`,
    [ids],
  );
  const found = new Map(rows.map((row) => [row.id, masked(row)]));
  return ids.flatMap((id) => found.get(id) ?? []);
}

const masked = (row: TaskSummary): TaskSummary =>
  row.remote === null ? row : { ...row, remote: maskConnectionString(row.remote) };
