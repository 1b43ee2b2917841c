import type { TaskTable } from "../../manager/schema/taskTable.js";
import { sqlState, type Client } from "../../shared/postgres/client.js";

/** For how long rows are looked through, in ms: no index knows what runs. */
const mostMs = 5_000;
/** Most ids that are told. */
const mostIds = 5;

/**
 * Ids of tasks in TAKE or WORK that no session has, or one whose server process is gone; at most five. Of remote
 * ones only the former: their own server decides. Null when the table is too large to look through in five seconds.
 */
export async function readOrphaned(
  client: Client,
  { qualified }: TaskTable,
): Promise<readonly string[] | null> {
  await client.query("BEGIN");
  try {
    await client.query(`SET LOCAL statement_timeout = ${mostMs}`);
    const { rows } = await client.query<{ id: string }>(
      `SELECT t.id::text AS id FROM ${qualified} AS t
       WHERE t.state::text IN ('TAKE', 'WORK') AND CASE WHEN t.owner IS NULL THEN true ELSE t.remote IS NULL
         AND split_part(t.owner::text, ' ', 1) <> ALL (ARRAY(SELECT pid::text FROM pg_catalog.pg_stat_activity)) END
       LIMIT ${mostIds}`,
    );
    return rows.map(({ id }) => id);
  } catch (error) {
    if (sqlState(error) === "57014") return null;
    throw error;
  } finally {
    await client.query("ROLLBACK");
  }
}
