import assert from "node:assert/strict";
import { connectManager } from "../../../../src/manager/loop/connectManager.js";
import { ensureTable } from "../../../../src/manager/schema/ensureTable.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { stubClient } from "../../../support/stubClient.js";
import { ensureTaskTable, makeEntry, silentLog } from "../../../support/taskTables.js";

const database = await createDatabase("empty");
const { target } = database;
const client = await database.connect();
const producer = await database.connect();

const table = taskTable("large", "task");
await ensureTaskTable(target, { schema: "large" });
await client.query(`
  ALTER TABLE large.task DROP COLUMN keep;
  COMMENT ON FUNCTION large.task_ready() IS 'pg-task adopting';
  -- Autovacuum would lock the table for longer than adoption waits.
  ALTER TABLE large.task SET (autovacuum_enabled = off);
  INSERT INTO large.task (input, state) SELECT repeat('x', 1500), 'DONE' FROM generate_series(1, 30000)`);

/**
 * Adopts the table, and calls `before` ahead of each statement. Returns the debug messages about scans of the table.
 */
async function adopt(before: (text: string) => Promise<void>): Promise<{ statement: string; notice: string }[]> {
  const entry = makeEntry(target, { schema: "large" });
  const manager = await connectManager(entry);
  await manager.query("SET client_min_messages = debug1");
  const read: { statement: string; notice: string }[] = [];
  let statement = "";
  manager.on("notice", (notice) => read.push({ statement, notice: notice.message ?? "" }));
  const watched = stubClient(async (text, values) => {
    await before(text);
    statement = text;
    const { rows, rowCount } = await manager.query<object>(text, [...values]);
    return { rows, rowCount: rowCount ?? 0 };
  });
  try {
    await ensureTable(watched, table, entry, silentLog);
  } finally {
    await manager.end();
  }
  return read.filter(({ notice }) => /^(?:verifying|rewriting|building) .*"task"/.test(notice));
}

test("adoption scans a large table only without blocking writers, even after an interruption", async () => {
  const insert = async (): Promise<void> => {
    await producer.query("INSERT INTO large.task (input, plan) VALUES ('', 'infinity')");
  };
  const interrupted = adopt(async (text) => {
    if (!text.includes("INDEX CONCURRENTLY")) return;
    await insert();
    throw new Error("interrupted");
  });
  await assert.rejects(interrupted, /interrupted/);
  let inserted = 0;
  const read = await adopt(async (text) => {
    if (!/^(?:CREATE INDEX CONCURRENTLY|UPDATE) /.test(text)) return;
    inserted += 1;
    await insert();
  });
  assert.ok(inserted >= 2);
  assert.ok(read.length > 0, "the server reports reading the table");
  for (const { statement, notice } of read) {
    assert.match(statement, /^CREATE INDEX CONCURRENTLY/, notice);
  }
  const { rows } = await client.query(
    `SELECT count(*)::integer AS indexes FROM pg_index JOIN pg_class AS i ON i.oid = indexrelid
     WHERE indrelid = 'large.task'::regclass AND indisvalid AND i.relname = 'task_keep_idx'`,
  );
  assert.deepEqual(rows, [{ indexes: 1 }]);
  await assert.rejects(producer.query("INSERT INTO large.task (input, keep) VALUES ('', '-1 day')"), { code: "23514" });
});
