import { columnsVersion } from "../../manager/schema/addedColumns.js";
import { readRecord } from "../../manager/schema/migrations.js";
import { featuresWithout } from "../../manager/schema/ownColumns.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";

/** Returns whether the tasks of the table can have gaps. An older table has no column `gap`, or one of the user. */
export async function readHasGaps(client: Client, table: TaskTable): Promise<boolean> {
  const { version, ownColumns } = await readRecord(client, table);
  return version >= columnsVersion && featuresWithout(ownColumns).has("gaps");
}
