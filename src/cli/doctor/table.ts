import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { rights, roleSettings, rowSecurity } from "./access.js";
import type { Check } from "./check.js";
import { manager, orphaned, overdue, pauses } from "./operation.js";
import { columns, indexes, migration, triggers, views } from "./structure.js";
import { bloat, oldSnapshots } from "./upkeep.js";

/** What is looked at of a table, by its entry's own user. */
export async function checkTable(client: Client, table: TaskTable): Promise<Check[]> {
  const version = await migration(client, table);
  const whole = version.level === "ok" ? [await columns(client, table)] : [];
  // What follows reads them.
  if (whole.some(({ level }) => level === "fail")) return [version, ...whole];
  return [
    version,
    ...whole,
    await rights(client, table),
    await rowSecurity(client, table),
    await triggers(client, table),
    await indexes(client, table),
    await views(client, table),
    await bloat(client, table),
    await oldSnapshots(client),
    ...(await roleSettings(client)),
    await manager(client, table),
    await overdue(client, table),
    await pauses(client, table),
    await orphaned(client, table),
  ];
}
