import { readFileSync } from "node:fs";
import { recordVersion, render } from "../../src/manager/schema/migrations.js";
import { applyColumnDefaults } from "../../src/manager/schema/columnDefaults.js";
import { ensureStateType } from "../../src/manager/schema/stateType.js";
import { taskTable, type TaskTable } from "../../src/manager/schema/taskTable.js";
import { defaultParameters } from "../../src/shared/config/parameters.js";
import type { Client } from "../../src/shared/postgres/client.js";
import { identifier } from "../../src/shared/postgres/quoting.js";
import { projectPath } from "./project.js";

/** Creates a task table as one of the first versions of pg-task would have created it. */
export async function createFormerVersion(
  client: Client,
  schema: string,
  version: 1 | 2 | 3,
  name = "task",
): Promise<TaskTable> {
  const table = taskTable(schema, name);
  await client.query(`CREATE SCHEMA IF NOT EXISTS ${identifier(schema)}`);
  await ensureStateType(client, table);
  for (let each = 1; each <= version; each++) {
    const text = readFileSync(projectPath(`test/support/formerVersions/${each}.sql`), "utf8");
    await client.query(render(text, table));
    if (each === 1) await applyColumnDefaults(client, table, defaultParameters(), true);
  }
  if (version > 1) await applyColumnDefaults(client, table, defaultParameters());
  await recordVersion(client, table, version);
  return table;
}

/** Creates a task table as the first version of pg-task would have created it. */
export const createVersionOne = async (client: Client, schema: string, name = "task"): Promise<TaskTable> =>
  await createFormerVersion(client, schema, 1, name);
