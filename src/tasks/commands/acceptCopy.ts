import { readCopyReason, replaceHome } from "../../manager/schema/home.js";
import { hasSchedule } from "../../manager/schema/schedulesView.sql.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Entry } from "../../shared/config/types.js";
import { PgTaskError } from "../../shared/errors.js";
import type { Client } from "../../shared/postgres/client.js";

/** Which tasks are stopped before a copy is accepted. */
export type StoppedTasks = "none" | "schedules" | "all";

export interface AcceptedCopy {
  /** Why the table was a copy. Null if it was none, and nothing was changed. */
  readonly reason: string | null;
  /** How many tasks were stopped. */
  readonly stopped: number;
  /** How many tasks the original was running when it was copied, and are recovered now. */
  readonly running: number;
}

/**
 * Makes a copy of a table be at home here, so that its manager serves it. All of it happens in one transaction, so that
 * nothing starts that should be stopped.
 *
 * @throws PgTaskError USAGE if tasks are to be stopped, but the table is no copy
 */
export async function acceptCopy(
  client: Client,
  table: TaskTable,
  entry: Pick<Entry, "parameters">,
  stop: StoppedTasks,
): Promise<AcceptedCopy> {
  await client.query("BEGIN");
  try {
    const reason = (await hasHome(client, table)) ? await lockCopy(client, table, entry) : null;
    if (reason === null && stop !== "none")
      throw new PgTaskError("USAGE", `${table.qualified} is no copy, so no task of it was stopped`);
    const stopped = stop === "none" ? 0 : await stopTasks(client, table, stop);
    const running = reason === null ? 0 : await countRunning(client, table);
    if (reason !== null) await replaceHome(client, table, entry);
    await client.query("COMMIT");
    return { reason, stopped, running };
  } catch (error) {
    await client.query("ROLLBACK").catch(() => {});
    throw error;
  }
}

/** Whether the table has a home table. Those of earlier versions have none. */
async function hasHome(client: Client, { qualifiedHome }: TaskTable): Promise<boolean> {
  const { rows } = await client.query<{ there: boolean }>("SELECT pg_catalog.to_regclass($1) IS NOT NULL AS there", [
    qualifiedHome,
  ]);
  return rows[0]?.there === true;
}

/** Returns why the table is a copy, and keeps others from accepting it meanwhile. */
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

async function countRunning(client: Client, { qualified }: TaskTable): Promise<number> {
  const { rows } = await client.query<{ count: number }>(
    `SELECT pg_catalog.count(*)::pg_catalog.int4 AS count FROM ${qualified} AS t
     WHERE t.state::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY['TAKE', 'WORK'])`,
  );
  return rows[0]?.count ?? 0;
}
