import type { Entry } from "../../../shared/config/types.js";
import type { Client } from "../../../shared/postgres/client.js";
import { PgTaskError } from "../../../shared/errors.js";
import { lockClasses } from "../../../shared/postgres/advisoryLocks.js";
import type { Log } from "../../../shared/log.js";
import { applyColumnDefaults } from "../columnDefaults.js";
import { appliedVersion, recordAdoption } from "../migrations.js";
import { addLabels } from "../stateType.js";
import type { TaskTable } from "../taskTable.js";
import { addColumns, missingColumns } from "./addColumns.js";
import { ensureFillFunction, fillCondition } from "./fillFunction.js";
import { ensureIndexes } from "./indexes.js";
import { readLayout, type Layout } from "./layout.js";
import { refuseObstacles } from "./obstacles.js";
import { offerWaiting, settleTaken } from "./markWaitingRows.js";
import { refuseConflictingColumns } from "./conflictingColumns.js";
import { makeFunctions, missingTriggers, replaceExtensionsTrigger } from "./triggers.js";

/**
 * Brings a table that pg-task did not make to where the first migration leaves its own. Columns and
 * triggers come in one short transaction, after which new rows are right by themselves; the rows
 * that are there follow in batches. Cut off anywhere, it begins again and finds what is done.
 *
 * @param lockTimeoutMs how long the table may be waited for while producers wait behind.
 * @throws PgTaskError SCHEMA_INCOMPATIBLE, with the statements that make the table fit, or
 * SCHEMA_MISSING where nothing is to be created; and what the server says.
 */
export async function adopt(
  client: Client,
  table: TaskTable,
  entry: Entry,
  options: { readonly lockTimeoutMs: number; readonly log: Log },
): Promise<void> {
  const lock = [lockClasses.migration, table.schema];
  await client.query("SELECT pg_advisory_lock($1, hashtext($2))", lock);
  try {
    if ((await appliedVersion(client, table)) > 0) return;
    const layout = await readLayout(client, table);
    await refuseObstacles(client, table, layout);
    if (!entry.create) throw missing(table, layout);
    await addLabels(client, layout.columns.get("state"));
    await prepare(client, table, entry, layout, options.lockTimeoutMs);
    await ensureIndexes(client, table, layout);
    const { running, waiting } = await settleTaken(client, table);
    const offered = await offerWaiting(client, table);
    await recordAdoption(client, table, true);
    options.log.info(
      { table: table.qualified, waiting: offered + waiting, running },
      "table adopted",
    );
  } finally {
    await client.query("SELECT pg_advisory_unlock($1, hashtext($2))", lock).catch(() => {});
  }
}

async function prepare(
  client: Client,
  table: TaskTable,
  entry: Entry,
  layout: Layout,
  lockTimeoutMs: number,
): Promise<void> {
  await client.query("BEGIN");
  try {
    await client.query(`SET LOCAL lock_timeout = ${lockTimeoutMs}`);
    await refuseConflictingColumns(client, table);
    await addColumns(client, table, layout, entry.parameters);
    await makeFunctions(client, table, layout);
    const complete = await readLayout(client, table);
    const condition = fillCondition(complete, entry.parameters);
    if (condition !== null) await ensureFillFunction(client, table, complete, entry.parameters);
    await replaceExtensionsTrigger(client, table);
    for (const { relation, trigger } of await missingTriggers(client, table, complete, condition)) {
      await client.query(trigger.statement(relation));
    }
    // At once: those of the extension fail for every producer where it is not loaded.
    await applyColumnDefaults(client, table, entry.parameters, ["keep"]);
    await recordAdoption(client, table, false);
    await client.query("COMMIT");
  } catch (error) {
    await client.query("ROLLBACK").catch(() => {});
    throw error;
  }
}

function missing(table: TaskTable, layout: Layout): PgTaskError {
  const columns = missingColumns(layout).map(({ name }) => name);
  const lacks = columns.length === 0 ? "" : `the columns ${columns.join(", ")}, `;
  return new PgTaskError(
    "SCHEMA_MISSING",
    `table ${table.qualified} was not made by pg-task and lacks ${lacks}its triggers and indexes, and its entry says "create": false`,
  );
}
