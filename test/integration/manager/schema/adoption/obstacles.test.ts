import assert from "node:assert/strict";
import { describe } from "node:test";
import { createDatabase } from "../../../../support/database.js";
import {
  extensionTable,
  extensionTableWithUserColumn,
  firstVersionTable,
  type MakeTable,
} from "../../../../support/foreignTables.js";
import { test } from "../../../../support/limitedTest.js";
import { refusedAdoption, schemaContents } from "../../../../support/refusedAdoption.js";
import { ensureTaskTable } from "../../../../support/taskTables.js";

const database = await createDatabase("empty");
const { target } = database;
const client = await database.connect();

async function refusal(schema: string, make: MakeTable): Promise<string> {
  await client.query(make(schema));
  return await refusedAdoption(client, target, schema);
}

describe("refuses a table with the statements that make it fit, if", () => {
  test("it has the layout of the extension's first version", async () => {
    const what = await refusal(
      "first",
      (schema) => `${firstVersionTable(schema)};
      INSERT INTO first.task (request, max) VALUES ('SELECT 1', 2);
      INSERT INTO first.task (request, response, state) VALUES ('SELECT 1', '1', 'DONE')`,
    );
    assert.match(what, /has the layout of pg_task's first version/);
    const { rows } = await client.query("SELECT input, output, state, ready FROM first.task ORDER BY id");
    assert.deepEqual(rows, [
      { input: "SELECT 1", output: null, state: "PLAN", ready: true },
      { input: "SELECT 1", output: "1", state: "DONE", ready: null },
    ]);
  });

  test("its tasks run as the roles that inserted them", async () => {
    const what = await refusal("roles", extensionTableWithUserColumn);
    assert.match(what, /each task run as the role in its column user/);
    assert.match(what, /forbids the step from PLAN to WORK/);
  });

  test("it lacks required columns", async () => {
    const what = await refusal("bare", (schema) => `CREATE SCHEMA ${schema}; CREATE TABLE ${schema}.task (mine int)`);
    assert.match(what, /no column id; it has no column plan; it has no column state; it has no column input/);
  });

  for (const [schema, change, words] of [
    ["type1", "ALTER COLUMN timeout DROP DEFAULT, ALTER COLUMN timeout TYPE text", "timeout is text, not interval"],
    ["type2", "ALTER COLUMN output TYPE varchar(10)", "output is character varying\\(10\\), not text"],
    ["type3", "ADD COLUMN hash bigint", "hash is bigint, not integer"],
    [
      "type4",
      "ADD COLUMN hash int GENERATED ALWAYS AS (max % 7) STORED",
      "hash is integer generated from \\(max % 7\\), not integer",
    ],
    ["type5", "ADD COLUMN ready text", "ready is text, not boolean"],
  ] as const) {
    test(`its column ${words.replaceAll("\\", "")}`, async () => {
      const what = await refusal(schema, (name) =>
        `${extensionTable(name)}; ALTER TABLE ${name}.task ${change}`.replace(
          "ALTER COLUMN timeout DROP DEFAULT",
          `DROP CONSTRAINT task_timeout_check, ALTER COLUMN timeout DROP DEFAULT`,
        ),
      );
      assert.match(what, new RegExp(words));
    });
  }

  for (const column of ["owner text", "ready boolean"]) {
    const [name = "", type = ""] = column.split(" ");
    test(`its column ${name} is the user's and has values`, async () => {
      const schema = `taken_${name}`;
      const what = await refusal(
        schema,
        (made) => `CREATE SCHEMA ${made};
        CREATE TABLE ${made}.task (id int PRIMARY KEY, plan timestamptz, state text, input text, ${column});
        INSERT INTO ${made}.task VALUES (1, now(), 'DONE', '', 'true'::${type})`,
      );
      assert.match(what, new RegExp(`its column ${name} holds values that pg-task did not write`));
      const { rows } = await client.query(`SELECT ${name}_before::text AS before FROM ${schema}.task`);
      assert.deepEqual(rows, [{ before: "true" }]);
    });
  }
});

test("refuses ids that are not unique", async () => {
  await client.query(`CREATE SCHEMA twins;
    CREATE TABLE twins.task (id int, plan timestamptz, state text, input text);
    INSERT INTO twins.task VALUES (1, now(), 'DONE', ''), (1, now(), 'DONE', '')`);
  await assert.rejects(ensureTaskTable(target, { schema: "twins" }), {
    code: "SCHEMA_INCOMPATIBLE",
    message: /expected unique ids in "twins"."task"/,
  });
});

test('with "create": false says what is missing and adds nothing', async () => {
  await client.query(extensionTable("waits"));
  const before = await schemaContents(client, "waits");
  await assert.rejects(ensureTaskTable(target, { schema: "waits", create: false }), {
    code: "SCHEMA_MISSING",
    message:
      'table "waits"."task" was not created by pg-task and lacks the columns take, hash, crash, ready, atomic, owner, keep, its triggers and indexes, and its entry says "create": false',
  });
  assert.deepEqual(await schemaContents(client, "waits"), before);
});

test("creates no enum for a state of text, and leaves an object of its name alone", async () => {
  for (const [schema, make] of [
    ["no_enum", ""],
    ["states", "CREATE TABLE states.state (name text);"],
  ] as const) {
    await client.query(`CREATE SCHEMA ${schema}; ${make}
      CREATE TABLE ${schema}.task (id int PRIMARY KEY, plan timestamptz, state text, input text)`);
    await ensureTaskTable(target, { schema });
    const { rows } = await client.query(
      "SELECT typtype AS kind FROM pg_type WHERE typnamespace = $1::regnamespace AND typname = 'state'",
      [schema],
    );
    assert.deepEqual(rows, make === "" ? [] : [{ kind: "c" }]);
  }
});
