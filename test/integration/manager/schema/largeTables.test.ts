import assert from "node:assert/strict";
import { applyColumnDefaults } from "../../../../src/manager/schema/columnDefaults.js";
import { connectManager } from "../../../../src/manager/connection.js";
import {
  firstMigration,
  recordAdoption,
  render,
} from "../../../../src/manager/schema/migrations.js";
import { ensureTable } from "../../../../src/manager/schema/ensureTable.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { defaultParameters } from "../../../../src/shared/config/parameterValues.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { stubClient } from "../../../support/stubClient.js";
import { makeEntry, silentLog } from "../../../support/taskTables.js";

const database = await createDatabase("empty");
const { target } = database;
const client = await database.connect();
const producer = await database.connect();

const table = taskTable("large", "task");
await client.query(
  `CREATE SCHEMA large; CREATE TYPE large.state AS ENUM ('PLAN', 'TAKE', 'WORK', 'DONE', 'FAIL', 'GONE', 'STOP')`,
);
for (const statement of firstMigration) await client.query(render(statement, table));
await recordAdoption(client, table, true);
await applyColumnDefaults(client, table, defaultParameters(), ["keep"]);
// It locks the table for longer than is waited here: whoever makes it then tries again.
await client.query("ALTER TABLE large.task SET (autovacuum_enabled = off)");
await client.query(
  "INSERT INTO large.task (input, state) SELECT repeat('x', 1500), 'DONE' FROM generate_series(1, 30000)",
);

/** Brings the table up to date, with something done before each statement that is sent. */
async function bringUp(
  before: (text: string) => Promise<void>,
): Promise<{ statement: string; notice: string }[]> {
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

test("a large table of an earlier pg-task is read only beside those who write, also when it is cut off", async () => {
  const read: { statement: string; notice: string }[] = [];
  const insert = async (): Promise<void> => {
    await producer.query("INSERT INTO large.task (input, plan) VALUES ('', 'infinity')");
  };
  await assert.rejects(
    bringUp(async (text) => {
      if (text.includes("VALIDATE")) {
        await insert();
        throw new Error("cut off");
      }
    }),
    /cut off/,
  );
  const unvalidated = await client.query(
    "SELECT FROM pg_constraint WHERE conrelid = 'large.task'::regclass AND NOT convalidated",
  );
  assert.equal(unvalidated.rowCount, 1);
  let inserted = 0;
  read.push(
    ...(await bringUp(async (text) => {
      if (!/VALIDATE|CREATE INDEX "/.test(text)) return;
      inserted += 1;
      await insert();
    })),
  );
  assert.ok(inserted >= 1);
  assert.ok(read.length > 0, "the server says when it reads the table");
  for (const { statement, notice } of read) {
    assert.match(statement, /^CREATE INDEX CONCURRENTLY|VALIDATE CONSTRAINT/, notice);
  }
  const { rows } = await client.query<{ valid: boolean; indexes: number }>(
    `SELECT bool_and(convalidated) AS valid,
       (SELECT count(*)::integer FROM pg_index JOIN pg_class AS i ON i.oid = indexrelid
        WHERE indrelid = 'large.task'::regclass AND indisvalid AND i.relname = 'task_keep_idx') AS indexes
     FROM pg_constraint WHERE conrelid = 'large.task'::regclass`,
  );
  assert.deepEqual(rows, [{ valid: true, indexes: 1 }]);
  await assert.rejects(
    producer.query("INSERT INTO large.task (input, keep) VALUES ('', '-1 day')"),
    { code: "23514" },
  );
});
