import { mayRead, queryValue } from "./queryOne.js";
import { findDifference, readHomes, readPlace, readCopyReason, replaceHome } from "../manager/schema/home.js";
import { emptyOutbox } from "../manager/schema/webhooks.js";
import type { TaskTable } from "../manager/schema/taskTable.js";
import type { Entry } from "../shared/config/types.js";
import type { Queryable, Client } from "../shared/postgres/client.js";
import { batched } from "./batched.js";
import { hasSchedule } from "../manager/schema/schedulesView.sql.js";
import { PgTaskError } from "../shared/errors.js";

/**
 * Null if the table is at home here, if it is of an earlier version without a home table, or if the role may not read
 * that.
 */
export async function readCopy(
  client: Queryable,
  table: TaskTable,
  entry: Pick<Entry, "parameters">,
): Promise<string | null> {
  const reader = batched(client);
  const [homes, here] = await Promise.all([
    mayRead(reader, table.qualifiedHome).then(async (may) => (may === true ? await readHomes(reader, table) : [])),
    readPlace(reader, table),
  ]);
  return findDifference(homes, here, entry);
}

export type StoppedTasks = "none" | "schedules" | "all";

/**
 * In one transaction, so that nothing starts that should be stopped.
 *
 * @throws PgTaskError USAGE if tasks are to be stopped, but the table is no copy
 */
export async function acceptCopy(
  client: Client,
  table: TaskTable,
  entry: Pick<Entry, "parameters">,
  stop: StoppedTasks,
) {
  await client.query("BEGIN");
  try {
    const reason = (await exists(client, table.qualifiedHome)) ? await lockCopy(client, table, entry) : null;
    if (reason === null && stop !== "none")
      throw new PgTaskError("USAGE", `${table.qualified} is no copy, so no task of it was stopped`);
    const stopped = stop === "none" ? 0 : await stopTasks(client, table, stop);
    const running = reason === null ? 0 : await countRunning(client, table);
    if (reason !== null) {
      await replaceHome(client, table, entry);
      if (await exists(client, table.qualifiedOutbox)) await emptyOutbox(client, table);
    }
    await client.query("COMMIT");
    // Those that the original was running when it was copied are recovered now.
    return { reason, stopped, running };
  } catch (error) {
    await client.query("ROLLBACK").catch(() => {});
    throw error;
  }
}

/** Tables of earlier versions have neither. */
const exists = async (client: Client, relation: string): Promise<boolean> =>
  await queryValue(client, "SELECT pg_catalog.to_regclass($1) IS NOT NULL AS there", [relation]);

/** Keeps others from accepting the copy meanwhile. */
async function lockCopy(client: Client, table: TaskTable, entry: Pick<Entry, "parameters">): Promise<string | null> {
  await client.query(`LOCK TABLE ${table.qualifiedHome} IN SHARE ROW EXCLUSIVE MODE`);
  return await readCopyReason(client, table, entry);
}

async function stopTasks(client: Client, table: TaskTable, stop: "schedules" | "all"): Promise<number> {
  const which =
    stop === "all"
      ? "t.state::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY['PLAN', 'TAKE', 'WORK'])"
      : `t.state::pg_catalog.text OPERATOR(pg_catalog.=) 'PLAN' AND ${hasSchedule("t")}`;
  const { rowCount } = await client.query(`UPDATE ${table.qualified} AS t SET state = 'STOP' WHERE ${which}`);
  return rowCount ?? 0;
}

const countRunning = async (client: Client, { qualified }: TaskTable): Promise<number> =>
  await queryValue(
    client,
    `SELECT pg_catalog.count(*)::pg_catalog.int4 AS count FROM ${qualified} AS t
     WHERE t.state::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY['TAKE', 'WORK'])`,
  );
