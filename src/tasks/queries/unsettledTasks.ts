import { queryValue } from "../queryOne.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import { type Client, sqlState } from "../../shared/postgres/client.js";
import { lockClasses, maxRejectedResultLocks } from "../../shared/postgres/advisoryLocks.js";
import { shownKeysSql } from "./clusterProcesses.js";
import { mayServeSql } from "../../shared/postgres/ownerBackends.js";
import { queryCanceled } from "../../shared/postgres/sqlStates.js";

/** The lower halves of the ids (shownLocks.sql.ts). */
const rejectedKeysSql = (table: TaskTable): string => shownKeysSql(table, lockClasses.rejectedResult);

export const isRejectedSql = (table: TaskTable, row: string): string =>
  `${row}.owner IS NOT NULL AND (${row}.id::bigint & 4294967295) IN (${rejectedKeysSql(table)})`;

/** The manager shows as many rejected results as it can, so there may be others. */
export const areMoreRejectedSql = (table: TaskTable): string =>
  `(SELECT count(*) FROM (${rejectedKeysSql(table)}) AS r) >= ${maxRejectedResultLocks}`;

export async function readRejectedResults(client: Client, table: TaskTable) {
  const { rows } = await client.query(rejectedKeysSql(table));
  const ids = rows.length === 0 ? [] : await scanForIds(client, table, isRejectedSql(table, "t"));
  const others = ids?.length === maxIds ? rows.length - maxIds : 0;
  // The manager shows no more than so many. Without ids, scanning took too long.
  return { ids, others, more: rows.length >= maxRejectedResultLocks };
}

export const areMoreRejected = async (client: Client, table: TaskTable): Promise<boolean> =>
  await queryValue(client, `SELECT ${areMoreRejectedSql(table)} AS more`);

/**
 * Tasks in TAKE or WORK without a living owner. Without remote ones that have an owner, because only their remote
 * server can tell whether they run, and those with rejected results, which are not rescued.
 *
 * @returns null if scanning the table takes more than five seconds
 */
export async function readOrphans(client: Client, table: TaskTable) {
  const ids = await scanForIds(
    client,
    table,
    `t.state::text IN ('TAKE', 'WORK') AND CASE WHEN t.owner IS NULL THEN true ELSE t.remote IS NULL
       AND split_part(t.owner::text, ' ', 1) <> ALL (ARRAY(SELECT a.pid::text FROM pg_catalog.pg_stat_activity AS a WHERE ${mayServeSql("a", table)})) END
     AND (${isRejectedSql(table, "t")}) IS NOT TRUE`,
  );
  if (ids === null) return null;
  const { rows } = await client.query<{ id: string }>(
    `SELECT t.id::text AS id FROM ${table.qualified} AS t
     WHERE t.id = ANY ($1::bigint[]) AND t.owner IS NULL AND t.state::text IN ('TAKE', 'WORK')`,
    [ids],
  );
  // Managers release only those that a session has owned.
  return ids.map((id) => ({ id, owned: !rows.some((row) => row.id === id) }));
}

/** No index covers claimed tasks, so the table is scanned. */
const timeoutMs = 5_000;
const maxIds = 5;

/** @returns null if scanning the table takes more than five seconds */
async function scanForIds(
  client: Client,
  { qualified }: TaskTable,
  condition: string,
): Promise<readonly string[] | null> {
  await client.query("BEGIN");
  try {
    await client.query(`SET LOCAL statement_timeout = ${timeoutMs}`);
    const { rows } = await client.query<{ id: string }>(
      `SELECT t.id::text AS id FROM ${qualified} AS t WHERE ${condition} LIMIT ${maxIds}`,
    );
    return rows.map(({ id }) => id);
  } catch (error) {
    if (sqlState(error) === queryCanceled) return null;
    throw error;
  } finally {
    await client.query("ROLLBACK");
  }
}
