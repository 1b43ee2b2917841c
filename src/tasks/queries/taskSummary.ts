import type { Feature } from "../../manager/schema/features.js";
import { readFeatures } from "../../manager/schema/ownColumns.js";
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

const finite = (time: string): string => `isfinite(${time}::timestamptz)`;

/** Returns the SQL of a summary's columns for the table `t`. `substr` reads only the needed part of a stored value. */
const columns = (characters: number, features: ReadonlySet<Feature>): string => `
  t.id::text AS id, t.parent::text AS parent, t.state::text AS state, t."group"::text AS "group",
  ${isoTimeSql("t.plan")} AS plan, ${isoTimeSql("t.start")} AS start, ${isoTimeSql("t.stop")} AS stop,
  ${millisecondsSql(
    `CASE WHEN NOT ${finite("t.start")} THEN NULL WHEN t.owner IS NOT NULL THEN clock_timestamp() - t.start::timestamptz
      WHEN ${finite("t.stop")} THEN t.stop::timestamptz - t.start::timestamptz END`,
  )} AS "tookMs",
  t.ready, t.owner IS NOT NULL AS claimed, t.pid::float8 AS pid, t.max::float8 AS max,
  CASE WHEN t.repeat > interval '0' THEN t.repeat::text END AS repeat, t.remote::text AS remote,
  ${features.has("schedules") ? "t.rule" : "NULL"} AS rule, ${features.has("keys") ? "t.key" : "NULL"} AS key,
  ${features.has("retries") ? "t.retry, t.attempt" : "NULL AS retry, NULL AS attempt"},
  ${features.has("order") ? `(${isHeldSql}) IS TRUE` : "false"} AS held,
  substr(t.input::text, 1, ${characters}) AS input, substr(t.error::text, 1, ${characters}) AS error,
  CASE WHEN octet_length(t.output::text) <= ${maxReadOutputBytes} THEN substr(t.output::text, 1, ${characters}) END AS output,
  octet_length(t.output::text)::float8 AS "outputBytes"`;

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
    `SELECT ${columns(characters, await readFeatures(client, table))} FROM ${table.qualified} AS t WHERE t.id = ANY ($1::bigint[])`,
    [ids],
  );
  const found = new Map(rows.map((row) => [row.id, masked(row)]));
  return ids.flatMap((id) => found.get(id) ?? []);
}

const masked = (row: TaskSummary): TaskSummary =>
  row.remote === null ? row : { ...row, remote: maskConnectionString(row.remote) };
