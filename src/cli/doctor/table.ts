import { readTableState } from "../inspection/tableState.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { checkPrivileges, checkRoleSettings, checkRowSecurity, mayRead } from "./access.js";
import type { Check } from "../inspection/check.js";
import { checkManager, checkOrphans, checkBacklog, checkPauses, checkResults } from "./operation.js";
import { checkOrder } from "./order.js";
import { checkZone, type ConfiguredParameters } from "../inspection/zone.js";
import { checkSchedules } from "../inspection/schedules.js";
import { checkColumns, checkFeatures, checkIndexes, checkMigration, checkTriggers, checkViews } from "./structure.js";
import { checkBloat, checkTransactions } from "./upkeep.js";
import { checkHome } from "../inspection/home.js";
import { checkWriters } from "../inspection/writers.js";

/** Checks a table, connected as the user of the table's entry. */
export async function checkTable(client: Client, table: TaskTable, configured: ConfiguredParameters): Promise<Check[]> {
  const state = await readTableState(client, table);
  const version = checkMigration(table, state);
  // Until a start has replaced these functions, the other checks would call some that do not exist.
  if (state.isElsewhere) return [version];
  // The server would refuse the other checks.
  if (!(await mayRead(client, table))) return [version, await checkPrivileges(client, table)];
  const whole = version.level === "ok" ? [checkColumns(table, state, configured.parameters)] : [];
  // If columns are missing, the other checks are skipped, because they read these columns.
  if (whole.some(({ level }) => level === "fail")) return [version, ...whole];
  return [
    version,
    ...whole,
    ...(version.level === "ok" ? [await checkFeatures(client, table)] : []),
    await checkPrivileges(client, table),
    await checkWriters(client, table),
    await checkRowSecurity(client, table),
    await checkTriggers(client, table),
    await checkIndexes(client, table),
    await checkViews(client, table),
    await checkBloat(client, table),
    await checkTransactions(client),
    ...(await checkRoleSettings(client)),
    ...(await checkZone(client, table, configured)),
    await checkHome(client, table, configured),
    await checkManager(client, table),
    await checkBacklog(client, table),
    ...(await checkPauses(client, table)),
    ...(await checkSchedules(client, table)),
    ...((await canWait(client, table, version)) ? [await checkOrder(client, table)] : []),
    await checkResults(client, table),
    await checkOrphans(client, table),
  ];
}

/** Whether tasks of the table can wait for others. */
async function canWait(client: Client, table: TaskTable, { level }: Check): Promise<boolean> {
  if (level !== "ok") return false;
  const { rows } = await client.query<{ there: boolean }>(
    "SELECT has_table_privilege(to_regclass($1), 'SELECT') IS TRUE AS there",
    [table.qualifiedDependencies],
  );
  return rows[0]?.there === true;
}
