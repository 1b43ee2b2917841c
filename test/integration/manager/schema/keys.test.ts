import assert from "node:assert/strict";
import { checkFeatures } from "../../../../src/cli/doctor/structure.js";
import type { TaskTable } from "../../../../src/manager/schema/taskTable.js";
import { createLog } from "../../../../src/shared/log.js";
import { changeTasks } from "../../../../src/tasks/commands/changeTasks.js";
import { describeChange, webRemedies } from "../../../../src/tasks/commands/describeChange.js";
import { readSituation } from "../../../../src/tasks/explain/taskSituation.js";
import { createDatabase } from "../../../support/database.js";
import { partitionedByPlan } from "../../../support/foreignTables.js";
import { test } from "../../../support/limitedTest.js";
import { only } from "../../../support/tasks.js";
import { ensureTaskTable } from "../../../support/taskTables.js";

const database = await createDatabase("empty");
const client = await database.connect();

interface Line {
  readonly msg: string;
  readonly reason?: string;
  readonly remedy?: string;
}

/** Starts a manager's work on a table. Returns whether keys are on, and what the log says if they are not. */
async function start(
  schema: string,
  { create = true, name = "task" }: { readonly create?: boolean; readonly name?: string } = {},
): Promise<{ table: TaskTable; on: boolean; line: Line | undefined }> {
  const lines: Line[] = [];
  const log = createLog({ level: "info", name: "test", write: (line) => void lines.push(JSON.parse(line)) });
  const table = await ensureTaskTable(database.target, { schema, create, table: name }, { log });
  return { table, on: table.hasKeys, line: lines.find(({ msg }) => msg === "keys off") };
}

async function indexes(schema: string): Promise<string[]> {
  const { rows } = await client.query<{ definition: string }>(
    `SELECT pg_get_indexdef(indexrelid) AS definition FROM pg_index
     WHERE indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = $1::regnamespace)
       AND pg_get_indexdef(indexrelid) LIKE '%(key)%' AND indisvalid`,
    [schema],
  );
  return rows.map(({ definition }) => definition);
}

const insert = (schema: string): string =>
  `INSERT INTO ${schema}.task (input, key, plan) VALUES ('SELECT 1', 'k', 'infinity')`;

test("the first start creates the index, and later starts leave it", async () => {
  assert.equal((await start("plain")).on, true);
  const { rows } = await client.query("SELECT oid FROM pg_class WHERE relname = 'task_key_idx'");
  assert.match(
    only(await indexes("plain")),
    /UNIQUE INDEX task_key_idx .*WHERE \(\(key IS NOT NULL\) AND \(ready IS NOT NULL\)\)/,
  );
  assert.equal((await start("plain")).on, true);
  assert.deepEqual((await client.query("SELECT oid FROM pg_class WHERE relname = 'task_key_idx'")).rows, rows);
});

test("the index of a table with a long name has a name of its own", async () => {
  const name = "t".repeat(63);
  const { table, on } = await start("long", { name });
  assert.equal(on, true);
  assert.equal(Buffer.byteLength(table.keyIndex), 63);
  assert.match(only(await indexes("long")), new RegExp(`UNIQUE INDEX ${table.keyIndex} `));
});

test("if several tasks wait with one key, keys are off and refused until that has been settled", async () => {
  await start("twice");
  await client.query(`DROP INDEX twice.task_key_idx; ${insert("twice")}; ${insert("twice")}`);
  const { on, line } = await start("twice");
  assert.deepEqual([on, line?.reason], [false, "several waiting tasks have the same key"]);
  await assert.rejects(client.query(insert("twice")), {
    code: "0A000",
    message: "key cannot be used: several waiting tasks have the same key",
  });
  await client.query("INSERT INTO twice.task (input) VALUES ('SELECT 1')");
  const { rows } = await client.query((line?.remedy ?? "").replace(/^[^:]*: /, ""));
  assert.deepEqual(rows, [{ key: "k", array_agg: ["1", "2"] }]);
  await client.query("UPDATE twice.task SET state = 'STOP' WHERE id = 1");
  assert.equal((await start("twice")).on, true);
  await assert.rejects(client.query(insert("twice")), { code: "23505" });
});

test("without the right to create, keys are off if the index is missing", async () => {
  await start("given");
  await client.query("DROP INDEX given.task_key_idx");
  const { on, line } = await start("given", { create: false });
  assert.deepEqual([on, line?.reason], [false, "the index of keys is missing"]);
  await assert.rejects(client.query(insert("given")), { code: "0A000" });
});

test("a large table gets the index by CREATE INDEX CONCURRENTLY, also after an attempt that has failed", async () => {
  await start("large");
  await client.query(`
    ALTER TABLE large.task SET (autovacuum_enabled = off);
    DROP INDEX large.task_key_idx;
    INSERT INTO large.task (input, state) SELECT repeat('x', 1500), 'DONE' FROM generate_series(1, 30000);
    ${insert("large")}; ${insert("large")}`);
  const { on, line } = await start("large");
  assert.deepEqual([on, line?.reason], [false, "several waiting tasks have the same key"]);
  // Only CREATE INDEX CONCURRENTLY leaves an invalid index when it fails.
  const { rows } = await client.query(
    "SELECT indisvalid AS valid FROM pg_index WHERE indexrelid = 'large.task_key_idx'::regclass",
  );
  assert.deepEqual(rows, [{ valid: false }]);
  await client.query("UPDATE large.task SET state = 'STOP' WHERE key = 'k' AND id = (SELECT max(id) FROM large.task)");
  assert.equal((await start("large")).on, true);
  assert.equal((await indexes("large")).length, 1);
});

test("a partitioned table refuses keys", async () => {
  await client.query(partitionedByPlan("parts"));
  const { on, line } = await start("parts");
  assert.deepEqual([on, line], [false, undefined]);
  await assert.rejects(client.query(insert("parts")), {
    code: "0A000",
    message: "key cannot be used: a unique index of a partitioned table cannot be on key alone",
  });
  await client.query("INSERT INTO parts.task (input) VALUES ('SELECT 1')");
});

test("retrying a task whose key waits is refused, and the others of the same command are retried", async () => {
  const { table } = await start("commands");
  await client.query(`
    INSERT INTO commands.task (input, state, key) VALUES ('SELECT 1', 'DONE', 'k'), ('SELECT 1', 'DONE', 'other');
    ${insert("commands")}`);
  const [first, second] = await changeTasks(client, table, "retry", ["1", "2"]);
  assert.ok(first !== undefined && second !== undefined);
  assert.equal(
    describeChange("retry", first),
    "another task with the same key waits: pg-task run-now 3 runs the waiting task with the same key",
  );
  assert.equal(
    describeChange("retry", first, webRemedies),
    "another task with the same key waits: run the waiting task 3 with the same key now",
  );
  assert.deepEqual([first.outcome, second.outcome, second.keyWaitsIn], ["refused", "changed", null]);
  const [ended] = await changeTasks(client, table, "run-now", ["1"]);
  assert.ok(ended !== undefined);
  assert.equal(describeChange("run-now", ended), "is DONE: pg-task run-now 3 runs the waiting task with the same key");
});

test("of the tasks with one key that one command retries, the first runs", async () => {
  const { table } = await start("several");
  await client.query(
    `INSERT INTO several.task (input, state, key) SELECT 'SELECT 1', 'DONE', 'k' FROM generate_series(1, 3)`,
  );
  const results = await changeTasks(client, table, "retry", ["1", "2", "3"]);
  assert.deepEqual(
    results.map(({ outcome }) => outcome),
    ["changed", "refused", "refused"],
  );
  assert.deepEqual(
    results.slice(1).map((each) => describeChange("retry", each)),
    [
      "another task with the same key waits: pg-task run-now 1 runs the waiting task with the same key",
      "another task with the same key waits: pg-task run-now 1 runs the waiting task with the same key",
    ],
  );
});

test("a task that waits for the key of a running one can be explained", async () => {
  const { table } = await start("explained");
  await client.query(`
    INSERT INTO explained.task (input, state, owner, key) VALUES ('SELECT 1', 'WORK', '1 x', 'k');
    ${insert("explained")}`);
  assert.equal((await readSituation(client, table, "2"))?.keyRunsIn, "1");
  assert.equal((await readSituation(client, table, "1"))?.keyRunsIn, null);
});

test("doctor names the missing index", async () => {
  const { table } = await start("examined");
  assert.deepEqual((await checkFeatures(client, table)).text, "all on");
  await client.query("DROP INDEX examined.task_key_idx");
  assert.match((await checkFeatures(client, table)).text, /^off: keys: .* has no valid index "task_key_idx"$/);
});
