import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { connectManager } from "../../../../src/manager/loop/connection.js";
import { readColumnSet } from "../../../../src/manager/schema/columnSet.js";
import { ensureTable } from "../../../../src/manager/schema/ensureTable.js";
import { allFeatures, featureColumns, type Feature } from "../../../../src/manager/schema/features.js";
import { taskTable, type TaskTable } from "../../../../src/manager/schema/taskTable.js";
import { createLog } from "../../../../src/shared/log.js";
import { createDatabase } from "../../../support/database.js";
import { extensionTable, partitionedByPlan } from "../../../support/foreignTables.js";
import { makeEntry } from "../../../support/taskTables.js";
import { createVersionOne } from "../../../support/versionOne.js";

const database = await createDatabase("empty");
const { target } = database;
const client = await database.connect();

interface Line {
  readonly level: string;
  readonly msg: string;
  readonly columns?: readonly string[];
  readonly features?: readonly string[];
  readonly remedy?: string;
}

/** Starts a manager's work on the table, and returns the table and the log lines about features. */
async function start(schema: string, create = true): Promise<{ table: TaskTable; lines: Line[] }> {
  const entry = makeEntry(target, { schema, create });
  const table = taskTable(schema, "task");
  const lines: Line[] = [];
  const write = (line: string): void => void lines.push(JSON.parse(line));
  const manager = await connectManager(entry);
  try {
    await ensureTable(manager, table, entry, createLog({ level: "info", name: "test", write }));
  } finally {
    await manager.end();
  }
  return { table, lines: lines.filter(({ msg }) => msg.startsWith("features ")) };
}

async function record(schema: string): Promise<string> {
  const { rows } = await client.query<{ comment: string }>(
    "SELECT obj_description(to_regprocedure($1), 'pg_proc') AS comment",
    [`${schema}.task_wake_up()`],
  );
  return rows[0]?.comment ?? "";
}

async function typeOf(schema: string, column: string): Promise<string | undefined> {
  const { rows } = await client.query<{ type: string }>(
    `SELECT format_type(atttypid, atttypmod) AS type FROM pg_attribute WHERE attrelid = $1::regclass AND attname = $2`,
    [`${schema}.task`, column],
  );
  return rows[0]?.type;
}

const without = (off: readonly Feature[]): Feature[] => [...allFeatures].filter((each) => !off.includes(each));

const needing = (column: string): Feature[] =>
  [...allFeatures].filter((feature) => featureColumns[feature].includes(column));

describe("a column that the table had before the migration", () => {
  for (const column of new Set(Object.values(featureColumns).flat())) {
    test(`turns off the features that need it, until it is renamed: ${column}`, async () => {
      const schema = `had_${column}`;
      await createVersionOne(client, schema);
      await client.query(`ALTER TABLE ${schema}.task ADD COLUMN "${column}" varchar(9) DEFAULT 'mine'`);
      await client.query(`INSERT INTO ${schema}.task (input, "${column}") VALUES ('', 'x'), ('', 'x')`);
      const off = needing(column);
      const remedy = `ALTER TABLE "${schema}"."task" RENAME COLUMN "${column}" TO "${column}_before"`;
      const warning = [{ level: "warn", columns: [column], features: off, remedy }];
      for (const { table, lines } of [await start(schema), await start(schema)]) {
        assert.deepEqual([...table.features], without(off));
        assert.deepEqual([...table.ownColumns], [column]);
        assert.deepEqual(
          lines.map(({ level, columns, features, remedy: said }) => ({ level, columns, features, remedy: said })),
          warning,
        );
      }
      assert.equal(await record(schema), `pg-task wake-up, own columns: ${column}`);
      assert.equal(await typeOf(schema, column), "character varying(9)");
      const { rows } = await client.query(
        `INSERT INTO ${schema}.task (input) VALUES ('') RETURNING "${column}" AS value`,
      );
      assert.deepEqual(rows, [{ value: "mine" }]);

      await client.query(remedy);
      const { table, lines } = await start(schema);
      assert.deepEqual([...table.features], [...allFeatures]);
      assert.deepEqual(
        lines.map(({ level, msg, columns, features }) => ({ level, msg, columns, features })),
        [{ level: "info", msg: "features turned on", columns: [column], features: off }],
      );
      assert.equal(await record(schema), "pg-task wake-up");
      assert.notEqual(await typeOf(schema, column), "character varying(9)");
      assert.equal(await typeOf(schema, `${column}_before`), "character varying(9)");
      assert.deepEqual((await start(schema)).lines, []);
    });
  }

  test("turns nothing off if no feature needs it", async () => {
    await createVersionOne(client, "made");
    await client.query("ALTER TABLE made.task ADD COLUMN created date DEFAULT '2000-01-01'");
    const { table, lines } = await start("made");
    assert.deepEqual([...table.features], [...allFeatures]);
    assert.deepEqual(lines, []);
    assert.deepEqual([...table.ownColumns], ["created"]);
    const { rows } = await client.query("INSERT INTO made.task (input) VALUES ('') RETURNING created::text");
    assert.deepEqual(rows, [{ created: "2000-01-01" }]);
  });

  test("is recognized even if its type is that of pg-task's column", async () => {
    await createVersionOne(client, "same");
    await client.query("ALTER TABLE same.task ADD COLUMN key text, ADD COLUMN role name");
    const { table } = await start("same");
    assert.deepEqual([...table.features], without(["keys", "roles"]));
    assert.equal(await record("same"), `pg-task wake-up, own columns: key role`);
    await client.query("ALTER TABLE same.task DROP COLUMN role");
    const { table: later, lines } = await start("same");
    assert.deepEqual([...later.features], without(["keys"]));
    assert.deepEqual(
      lines.map(({ msg, features }) => [msg, features]),
      [
        ["features turned on", ["roles"]],
        ["features off, the table has its own columns", ["keys"]],
      ],
    );
  });

  test("also turns features off in tables of the extension and in partitioned tables", async () => {
    for (const [schema, make, off] of [
      ["extension", extensionTable, ["arguments"]],
      ["parts", partitionedByPlan, ["keys", "arguments"]],
    ] as const) {
      await client.query(make(schema));
      await client.query(`ALTER TABLE ${schema}.task ADD COLUMN args integer`);
      const { table } = await start(schema);
      assert.deepEqual([...table.features], without(off), schema);
      assert.equal(await typeOf(schema, "args"), "integer");
    }
  });

  test("keeps the feature off after a RENAME, if the entry says create: false", async () => {
    await createVersionOne(client, "uncreated");
    await client.query("ALTER TABLE uncreated.task ADD COLUMN gap text");
    await start("uncreated");
    await client.query("ALTER TABLE uncreated.task RENAME COLUMN gap TO gap_before");
    const { table } = await start("uncreated", false);
    assert.deepEqual([...table.features], without(["gaps"]));
    assert.equal(await typeOf("uncreated", "gap"), undefined);
    assert.deepEqual([...(await start("uncreated")).table.features], [...allFeatures]);
  });
});

test("a successor inherits a user's own column, but not pg-task's column of the same name", async () => {
  await createVersionOne(client, "kept");
  await client.query("ALTER TABLE kept.task ADD COLUMN due date, ADD COLUMN after text");
  const { table } = await start("kept");
  const { kept } = await readColumnSet(client, table);
  for (const name of ["due", "after", "rule", "zone", "retry", "key", "args", "gap", "role"])
    assert.ok(kept.includes(`"${name}"`), name);
  for (const name of ["attempt", "upon", "created", "wait", "plain"]) assert.ok(!kept.includes(`"${name}"`), name);
});

test("the features of a new table are all on", async () => {
  const { table, lines } = await start("fresh");
  assert.deepEqual([...table.features], [...allFeatures]);
  assert.deepEqual(lines, []);
});
