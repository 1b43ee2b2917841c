import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { addedColumns } from "../../../../src/manager/schema/columns.js";
import { latestVersion, readRecord } from "../../../../src/manager/schema/migrations.js";
import { createDatabase } from "../../../support/database.js";
import { extensionTable, partitionedByPlan } from "../../../support/foreignTables.js";
import { ensureTaskTable } from "../../../support/taskTables.js";
import { createVersionOne } from "../../../support/versionOne.js";

const database = await createDatabase("empty");
const { target } = database;
const client = await database.connect();

const rename = (schema: string, column: string): string =>
  `ALTER TABLE "${schema}"."task" RENAME COLUMN ${column} TO ${column}_before`;

async function refused(schema: string): Promise<string[]> {
  let message = "";
  await assert.rejects(ensureTaskTable(target, { schema }), (error: Error & { code?: string }) => {
    assert.equal(error.code, "SCHEMA_INCOMPATIBLE");
    ({ message } = error);
    return true;
  });
  assert.match(message, /: its column \w+ has the name of one of pg-task's columns/);
  return message.split("\n").flatMap((line) => /^(.*);$/.exec(line)?.[1] ?? []);
}

async function columnsOf(relation: string): Promise<Map<string, string>> {
  const { rows } = await client.query<{ name: string; type: string }>(
    `SELECT attname AS name, format_type(atttypid, atttypmod) AS type FROM pg_attribute
     WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped`,
    [relation],
  );
  return new Map(rows.map(({ name, type }) => [name, type]));
}

describe("a user's column with the name of one of pg-task's", () => {
  test("stops the migration with the RENAME after which it succeeds, and keeps its values", async () => {
    const { qualified } = await createVersionOne(client, "mine");
    for (const name of addedColumns)
      await client.query(`ALTER TABLE ${qualified} ADD COLUMN ${name} varchar(9) DEFAULT 'x'`);
    await client.query(`INSERT INTO ${qualified} (input, key) VALUES ('', 'mine')`);
    const statements = await refused("mine");
    assert.deepEqual(
      statements,
      addedColumns.map((name) => rename("mine", name)),
    );
    assert.equal((await columnsOf(qualified)).get("key"), "character varying(9)");
    for (const statement of statements) await client.query(statement);
    await ensureTaskTable(target, { schema: "mine" });
    const columns = await columnsOf(qualified);
    for (const name of addedColumns) {
      assert.equal(columns.get(`${name}_before`), "character varying(9)", name);
      assert.notEqual(columns.get(name), "character varying(9)", name);
    }
    const { rows } = await client.query(`SELECT key, key_before FROM ${qualified}`);
    assert.deepEqual(rows, [{ key: null, key_before: "mine" }]);
  });

  test("is recognized even if it has the type of pg-task's column", async () => {
    await createVersionOne(client, "same");
    await client.query("ALTER TABLE same.task ADD COLUMN key text");
    assert.deepEqual(await refused("same"), [rename("same", "key")]);
  });

  for (const [schema, make] of [
    ["extension", extensionTable],
    ["parts", partitionedByPlan],
  ] as const) {
    test(`stops the adoption, and nothing is changed: ${schema}`, async () => {
      await client.query(make(schema));
      await client.query(`ALTER TABLE ${schema}.task ADD COLUMN args integer`);
      const before = await columnsOf(`${schema}.task`);
      const statements = await refused(schema);
      assert.deepEqual(statements, [rename(schema, "args")]);
      assert.deepEqual(await columnsOf(`${schema}.task`), before);
      await client.query(statements.join(";"));
      await ensureTaskTable(target, { schema });
      assert.equal((await columnsOf(`${schema}.task`)).get("args"), "jsonb");
    });
  }

  test("that an unreleased version has recorded stops the start, until it is renamed or dropped", async () => {
    const table = await ensureTaskTable(target, { schema: "recorded" });
    await client.query("INSERT INTO recorded.task (input, zone) SELECT 'SELECT 1', NULL FROM generate_series(1, 3)");
    for (const name of ["gap", "created", "due"]) {
      await client.query(`ALTER TABLE recorded.task DROP COLUMN ${name} CASCADE`);
      await client.query(`ALTER TABLE recorded.task ADD COLUMN ${name} text`);
    }
    await client.query("ALTER TABLE recorded.task DROP COLUMN due");
    await client.query(
      "COMMENT ON FUNCTION recorded.task_wake_up() IS 'pg-task wake-up, own columns: gap created due'",
    );
    assert.deepEqual(await refused("recorded"), [rename("recorded", "gap"), rename("recorded", "created")]);
    await client.query(`${rename("recorded", "gap")}; ALTER TABLE recorded.task DROP COLUMN created`);
    await ensureTaskTable(target, { schema: "recorded" });
    const columns = await columnsOf("recorded.task");
    assert.deepEqual(
      ["gap", "created", "due", "gap_before"].map((name) => columns.get(name)),
      ["interval", "timestamp with time zone", "timestamp with time zone", "text"],
    );
    assert.deepEqual(await readRecord(client, table), { version: latestVersion, formerColumns: [] });
    const { rows } = await client.query("SELECT count(*)::integer FROM recorded.task");
    assert.deepEqual(rows, [{ count: 3 }]);
  });
});
