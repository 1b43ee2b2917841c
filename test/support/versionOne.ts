import { migrations, recordVersion, render } from "../../src/manager/schema/migrations.js";
import { applyColumnDefaults } from "../../src/manager/schema/columnDefaults.js";
import { ensureStateType } from "../../src/manager/schema/stateType.js";
import { taskTable, type TaskTable } from "../../src/manager/schema/taskTable.js";
import { defaultParameters } from "../../src/shared/config/parameterValues.js";
import type { Client } from "../../src/shared/postgres/client.js";
import { identifier } from "../../src/shared/postgres/quoting.js";

/** Creates a task table as the first version of pg-task would have created it. */
export async function createVersionOne(client: Client, schema: string, name = "task"): Promise<TaskTable> {
  const table = taskTable(schema, name);
  await client.query(`CREATE SCHEMA IF NOT EXISTS ${identifier(schema)}`);
  await ensureStateType(client, table);
  await client.query(render(migrations[0]?.text ?? "", table));
  await applyColumnDefaults(client, table, defaultParameters(), true);
  await recordVersion(client, table, 1);
  return table;
}
