import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { connectManager } from "../../../../src/manager/loop/connectManager.js";
import { addedColumns } from "../../../../src/manager/schema/columns.js";
import { boundsCheckName } from "../../../../src/manager/schema/boundsCheck.js";
import { recordVersion } from "../../../../src/manager/schema/migrations.js";
import type { TaskTable } from "../../../../src/manager/schema/taskTable.js";
import { identifier } from "../../../../src/shared/postgres/quoting.js";
import { createDatabase } from "../../../support/database.js";
import { extensionTable, partitionedByPlan } from "../../../support/foreignTables.js";
import { ensureTaskTable, makeEntry } from "../../../support/taskTables.js";
import { createVersionOne } from "../../../support/versionOne.js";

const database = await createDatabase("empty");
const { target } = database;
const client = await database.connect();

async function typesOf(relation: string): Promise<Record<string, string>> {
  const { rows } = await client.query<{ name: string; type: string }>(
    `SELECT attname AS name, format_type(atttypid, atttypmod) AS type FROM pg_attribute
     WHERE attrelid = $1::regclass AND attname = ANY ($2::text[]) AND NOT attisdropped`,
    [relation, addedColumns],
  );
  return Object.fromEntries(rows.map(({ name, type }) => [name, type]));
}

async function checksOf({ qualified }: TaskTable): Promise<Record<string, string>> {
  const { rows } = await client.query<{ name: string; definition: string }>(
    `SELECT conname AS name, pg_get_constraintdef(oid) AS definition FROM pg_constraint
     WHERE conrelid = $1::regclass AND contype = 'c'`,
    [qualified],
  );
  return Object.fromEntries(rows.map(({ name, definition }) => [name, definition]));
}

await ensureTaskTable(target, { schema: "fresh" });
const types = await typesOf("fresh.task");

describe("a table of the first version", () => {
  test("gets the columns, and its rows neither move nor change", async () => {
    const { qualified } = await createVersionOne(client, "rows");
    await client.query(
      `INSERT INTO ${qualified} (input, data) SELECT 'SELECT 1', repeat('x', n) FROM generate_series(1, 100) AS n`,
    );
    const stored = `SELECT ctid, xmin, to_jsonb(t) - $1::text[] AS row FROM ${qualified} AS t ORDER BY id`;
    const { rows: before } = await client.query(stored, [addedColumns]);
    await ensureTaskTable(target, { schema: "rows" });
    assert.deepEqual(await typesOf(qualified), types);
    const { rows: after } = await client.query(stored, [addedColumns]);
    assert.deepEqual(after, before);
    const { rows } = await client.query(
      `SELECT DISTINCT jsonb_strip_nulls(to_jsonb(t) - ARRAY(SELECT jsonb_object_keys($1::jsonb))) AS added FROM ${qualified} AS t`,
      [before[0]?.row],
    );
    assert.deepEqual(rows, [{ added: {} }]);
    const { rows: inserted } = await client.query(
      `INSERT INTO ${qualified} (input) VALUES ('') RETURNING created = statement_timestamp() AS now, plain`,
    );
    assert.deepEqual(inserted, [{ now: true, plain: true }]);
  });

  test("gets one check instead of nine without a scan", async () => {
    const table = await createVersionOne(client, "checked");
    assert.equal(Object.keys(await checksOf(table)).length, 9);
    await client.query(`INSERT INTO checked.task (input) VALUES ('')`);
    await ensureTaskTable(target, { schema: "checked" });
    const checks = await checksOf(table);
    assert.deepEqual(Object.keys(checks), [boundsCheckName]);
    assert.match(checks[boundsCheckName] ?? "", / NOT VALID$/);
  });

  test("keeps the user's checks, also one with the name of the new check", async () => {
    const table = await createVersionOne(client, "mine");
    await client.query(`ALTER TABLE mine.task ADD CONSTRAINT task_check CHECK (max < 100), ADD CHECK (count < 50)`);
    await ensureTaskTable(target, { schema: "mine" });
    const checks = await checksOf(table);
    assert.deepEqual(Object.keys(checks).toSorted(), [boundsCheckName, "task_check", "task_count_check1"]);
    assert.equal(checks["task_check"], "CHECK ((max < 100))");
  });

  test("gets a check whose name says what the bounds are, unless this name is taken", async () => {
    const table = await ensureTaskTable(target, { schema: "named" });
    assert.deepEqual(Object.keys(await checksOf(table)), [boundsCheckName]);
    const taken = await createVersionOne(client, "taken");
    await client.query(`ALTER TABLE taken.task ADD CONSTRAINT ${identifier(boundsCheckName)} CHECK (max < 100)`);
    await ensureTaskTable(target, { schema: "taken" });
    assert.deepEqual(Object.keys(await checksOf(taken)).toSorted(), [boundsCheckName, "task_check"]);
  });

  test("and one of version 6, whose check had another name, get the present name", async () => {
    const table = await ensureTaskTable(target, { schema: "six" });
    const former = "active_live_repeat_timeout_keep_count_delimiter_escape_quote";
    await client.query(`ALTER TABLE six.task RENAME CONSTRAINT ${identifier(boundsCheckName)} TO ${former}`);
    await recordVersion(client, table, 6);
    await ensureTaskTable(target, { schema: "six" });
    assert.deepEqual(Object.keys(await checksOf(table)), [boundsCheckName]);
  });

  test("keeps its nine checks if one of them was changed", async () => {
    const table = await createVersionOne(client, "loosened");
    await client.query("ALTER TABLE loosened.task DROP CONSTRAINT task_count_check, ADD CHECK (count >= -5)");
    const before = await checksOf(table);
    await ensureTaskTable(target, { schema: "loosened" });
    assert.deepEqual(await checksOf(table), before);
  });

  test("is migrated despite the settings of the database", async () => {
    const other = await createDatabase("empty");
    const there = await other.connect();
    await there.query(`ALTER DATABASE ${other.target.database} SET intervalstyle = 'iso_8601'`);
    const table = await createVersionOne(there, "styled");
    await ensureTaskTable(other.target, { schema: "styled" });
    const { rowCount } = await there.query(
      "SELECT FROM pg_constraint WHERE conrelid = $1::regclass AND contype = 'c'",
      [table.qualified],
    );
    assert.equal(rowCount, 1);
  });

  test("is not migrated if its entry says create: false", async () => {
    await createVersionOne(client, "uncreated");
    await assert.rejects(ensureTaskTable(target, { schema: "uncreated", create: false }), {
      code: "SCHEMA_MISSING",
      message: /is at version 1, not \d+, and its entry says "create": false/,
    });
  });

  test("is migrated once by two managers at a time", async () => {
    const { qualified } = await createVersionOne(client, "twice");
    await Promise.all([ensureTaskTable(target, { schema: "twice" }), ensureTaskTable(target, { schema: "twice" })]);
    assert.deepEqual(await typesOf(qualified), types);
  });

  test("is migrated while producers insert, and no insert fails", async () => {
    const { qualified } = await createVersionOne(client, "flood");
    const done = new AbortController();
    const produce = async (): Promise<number> => {
      const producer = await database.connect();
      let count = 0;
      for (; !done.signal.aborted; count++)
        await producer.query(`INSERT INTO ${qualified} (input) VALUES ('SELECT 1')`);
      return count;
    };
    const producers = [produce(), produce(), produce()];
    await ensureTaskTable(target, { schema: "flood" });
    done.abort();
    const inserted = (await Promise.all(producers)).reduce((sum, count) => sum + count, 0);
    const { rows } = await client.query(`SELECT count(*)::integer FROM ${qualified}`);
    assert.deepEqual(rows, [{ count: inserted }]);
  });
});

describe("an adopted table", () => {
  test("of the extension gets the columns, and keeps its checks", async () => {
    await client.query(extensionTable("extension"));
    const table = await ensureTaskTable(target, { schema: "extension" });
    assert.deepEqual(await typesOf("extension.task"), types);
    const checks = await checksOf(table);
    assert.ok(checks["task_active_check"]);
    assert.ok(!("task_check" in checks));
  });

  test("with partitions gets the columns on each of them", async () => {
    await client.query(partitionedByPlan("parts"));
    await ensureTaskTable(target, { schema: "parts" });
    for (const relation of ["task", "before", '"Later on"', "later_0", "later_1"])
      assert.deepEqual(await typesOf(`parts.${relation}`), types, relation);
    await client.query(
      "INSERT INTO parts.task (input, plan, rule) VALUES ('', '2000-01-01Z', '0 0 1 1 *'), ('', '2040-01-01', NULL)",
    );
    await assert.rejects(client.query("INSERT INTO parts.task (input, plan, key) VALUES ('', '2040-01-01', 'k')"), {
      message: "key cannot be used: a unique index of a partitioned table cannot be on key alone",
    });
  });
});

test("a column of pg-task that was renamed is reported as missing", async () => {
  await ensureTaskTable(target, { schema: "renamed" });
  await client.query("ALTER TABLE renamed.task RENAME COLUMN gap TO gap_mine");
  await assert.rejects(ensureTaskTable(target, { schema: "renamed" }), {
    code: "SCHEMA_INCOMPATIBLE",
    message: `cannot use "renamed"."task": it no longer has the column gap`,
  });
  await client.query("ALTER TABLE renamed.task RENAME COLUMN gap_mine TO gap");
  await ensureTaskTable(target, { schema: "renamed" });
});

test("pg-task recognizes its columns even if the record of the version is lost", async () => {
  const table = await ensureTaskTable(target, { schema: "lost" });
  const manager = await connectManager(makeEntry(target));
  await recordVersion(manager, table, 1);
  await manager.end();
  const before = await typesOf("lost.task");
  await ensureTaskTable(target, { schema: "lost" });
  assert.deepEqual(await typesOf("lost.task"), before);
});
