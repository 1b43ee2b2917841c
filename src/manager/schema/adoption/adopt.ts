import type { Entry } from "../../../shared/config/types.js";
import type { Client } from "../../../shared/postgres/client.js";
import { PgTaskError } from "../../../shared/errors.js";
import { lockClasses } from "../../../shared/postgres/advisoryLocks.js";
import type { Log } from "../../../shared/log.js";
import { applyColumnDefaults } from "../columnDefaults.js";
import { appliedVersion, createObjectsBeside, noRecord, recordVersion } from "../migrations.js";
import { readRelations, revokeDefaultGrants } from "../grants.js";
import { addMissingStates } from "../stateType.js";
import type { TaskTable } from "../taskTable.js";
import { inTransaction } from "../transaction.js";
import { addColumns, missingColumns } from "./addColumns.js";
import { ensureFillFunction, fillCondition } from "./fillFunction.js";
import { ensureIndexes } from "./indexes.js";
import { readLayout, type Layout } from "./layout.js";
import { refuseObstacles } from "./obstacles.js";
import { queueWaitingRows, settleTakenRows } from "./existingRows.js";
import { dropExtensionTriggers, dropFormerTriggers, missingTriggers } from "./triggers.js";

/**
 * Brings a table that pg-task did not create to the columns of the first version: in one short transaction, after which
 * new rows need no treatment, and then existing rows in batches. The next call continues an interrupted adoption.
 *
 * @throws PgTaskError SCHEMA_INCOMPATIBLE with the statements that would make the table fit, or SCHEMA_MISSING if the
 *   entry says `"create": false`.
 */
export async function adopt(client: Client, table: TaskTable, entry: Entry, log: Log): Promise<void> {
  const lock = [lockClasses.change, table.schema];
  await client.query("SELECT pg_advisory_lock($1, hashtext($2))", lock);
  try {
    if ((await appliedVersion(client, table)) > 0) return;
    await refuseObstacles(client, table, noRecord);
    const layout = await readLayout(client, table);
    if (!entry.create) throw notCreated(table, layout);
    await addMissingStates(client, layout.columns.get("state"));
    await inTransaction(client, () => changeTable(client, table, entry, layout));
    await ensureIndexes(client, table, layout);
    const { running, waiting } = await settleTakenRows(client, table);
    const queued = await queueWaitingRows(client, table);
    await recordVersion(client, table, 1);
    log.info({ table: table.logName, waiting: queued + waiting, running }, "table adopted");
  } finally {
    await client.query("SELECT pg_advisory_unlock($1, hashtext($2))", lock).catch(() => {});
  }
}

async function changeTable(client: Client, table: TaskTable, entry: Entry, layout: Layout): Promise<void> {
  await addColumns(client, table, layout, entry.parameters);
  const before = await readRelations(client, table);
  await createObjectsBeside(client, table);
  await revokeDefaultGrants(client, table, before);
  const complete = await readLayout(client, table);
  const condition = fillCondition(complete, entry.parameters);
  if (condition !== null) await ensureFillFunction(client, table, complete, entry.parameters);
  await dropFormerTriggers(client, table);
  await dropExtensionTriggers(client, table);
  for (const { relation, trigger } of await missingTriggers(client, table, complete, condition)) {
    await client.query(trigger.statement(relation));
  }
  // The defaults are set in the same transaction, because the defaults of the pg_task extension make every INSERT
  // fail while the extension is not loaded.
  await applyColumnDefaults(client, table, entry.parameters, true);
  await recordVersion(client, table, null);
}

function notCreated(table: TaskTable, layout: Layout): PgTaskError {
  const columns = missingColumns(layout).map(({ name }) => name);
  const lacks = columns.length === 0 ? "" : `the columns ${columns.join(", ")}, `;
  return new PgTaskError(
    "SCHEMA_MISSING",
    `table ${table.qualified} was not created by pg-task and lacks ${lacks}its triggers and indexes, and its entry says "create": false`,
  );
}
