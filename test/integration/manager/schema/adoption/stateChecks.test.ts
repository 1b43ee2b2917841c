import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe } from "node:test";
import { cli } from "../../../../support/cli.js";
import { createDatabase, serverMajor } from "../../../../support/database.js";
import { test } from "../../../../support/limitedTest.js";
import { refusedAdoption, schemaContents } from "../../../../support/refusedAdoption.js";
import { ensureTaskTable } from "../../../../support/taskTables.js";
import { temporaryFolder } from "../../../../support/temporaryFolder.js";

const database = await createDatabase("empty");
const { target } = database;
const client = await database.connect();
const major = await serverMajor();

let schemaCount = 0;

async function createUserTable(state: string, before = "", after = ""): Promise<string> {
  const schema = `own${(schemaCount += 1)}`;
  const named = (text: string): string => text.replaceAll("SCHEMA", schema);
  await client.query(`CREATE SCHEMA ${schema}; ${named(before)};
    CREATE TABLE ${schema}.task (id int PRIMARY KEY, plan timestamptz NOT NULL, input text NOT NULL, note text,
      state ${named(state)}) ${named(after)};
    INSERT INTO ${schema}.task (id, plan, input) VALUES (1, now(), 'SELECT 1')`);
  return schema;
}

async function refusal(schema: string): Promise<string> {
  const what = await refusedAdoption(client, target, schema);
  for (const state of ["TAKE", "WORK", "DONE", "FAIL", "GONE", "STOP", "PLAN"]) {
    await client.query(`UPDATE ${schema}.task SET state = $1`, [state]);
  }
  return what;
}

const some = "('PLAN', 'WORK', 'DONE', 'FAIL')";
const forbidsThree = "forbids the states TAKE, GONE, STOP:";

describe("refuses a table with a check that rejects every task in some state", () => {
  const cases: readonly (readonly [name: string, state: string, words: string, before?: string, after?: string])[] = [
    [
      "a text with a list of states",
      `text NOT NULL DEFAULT 'PLAN' CHECK (state IN ${some})`,
      `its constraint task_state_check ${forbidsThree}`,
    ],
    [
      "a char(n), padded with blanks",
      `char(8) DEFAULT 'PLAN' CHECK (state IN ${some})`,
      `its constraint task_state_check ${forbidsThree}`,
    ],
    [
      "a varchar with a pattern",
      "varchar(10) DEFAULT 'PLAN' CONSTRAINT \"Pattern\" CHECK (state ~ '^(PLAN|WORK|DONE|FAIL|STOP|GONE)$')",
      "its constraint Pattern forbids the state TAKE:",
    ],
    [
      "an enum that has them all",
      `SCHEMA.mood DEFAULT 'PLAN' CHECK (state <> 'STOP')`,
      "its constraint task_state_check forbids the state STOP:",
      "CREATE TYPE SCHEMA.mood AS ENUM ('PLAN', 'TAKE', 'WORK', 'DONE', 'FAIL', 'GONE', 'STOP')",
    ],
    [
      "a domain",
      "SCHEMA.mood DEFAULT 'PLAN'",
      `its column state has the domain SCHEMA.mood, whose constraint known ${forbidsThree}`,
      `CREATE DOMAIN SCHEMA.mood AS text CONSTRAINT known CHECK (VALUE IN ${some})`,
    ],
    [
      "a domain over a domain",
      "SCHEMA.mood DEFAULT 'PLAN'",
      `its column state has the domain SCHEMA.word, whose constraint known ${forbidsThree}`,
      `CREATE DOMAIN SCHEMA.word AS varchar(9) CONSTRAINT known CHECK (VALUE IN ${some});
       CREATE DOMAIN SCHEMA.mood AS SCHEMA.word CHECK (VALUE <> '')`,
    ],
    [
      "a check that is not valid for the rows that are there",
      "text DEFAULT 'PLAN'",
      `its constraint from_now_on ${forbidsThree}`,
      "",
      `; INSERT INTO SCHEMA.task VALUES (2, now(), '', NULL, 'mine');
         ALTER TABLE SCHEMA.task ADD CONSTRAINT from_now_on CHECK (state IN ${some}) NOT VALID`,
    ],
    [
      "a function of the user's own",
      "text DEFAULT 'PLAN' CHECK (SCHEMA.known(state))",
      `its constraint task_state_check ${forbidsThree}`,
      `CREATE FUNCTION SCHEMA.known(state text) RETURNS boolean LANGUAGE plpgsql AS
         $$ BEGIN RETURN state IN ${some}; END $$`,
    ],
    [
      "a list of states, and what other columns hold",
      `text DEFAULT 'PLAN', CONSTRAINT pair CHECK (state IN ${some} AND length(note) < 9)`,
      `its constraint pair ${forbidsThree}`,
    ],
    [
      "states of which each asks for something of other columns",
      `text DEFAULT 'PLAN', CONSTRAINT each CHECK (state = 'PLAN' AND note IS NULL OR state = 'DONE' AND input <> '' OR state IN ('WORK', 'FAIL'))`,
      `its constraint each ${forbidsThree}`,
    ],
    [
      "two checks, each of which forbids some",
      "text DEFAULT 'PLAN' CONSTRAINT one CHECK (state <> 'TAKE') CONSTRAINT two CHECK (state <> 'GONE' AND state <> 'STOP')",
      "its constraint one forbids the state TAKE; its constraint two forbids the states GONE, STOP:",
    ],
  ];
  for (const [name, state, words, before, after] of cases) {
    test(`if state is ${name}`, async () => {
      const schema = await createUserTable(state, before, after);
      const what = await refusal(schema);
      assert.ok(what.includes(words.replaceAll("SCHEMA", schema)), what);
    });
  }

  test("if it is partitioned", async () => {
    await client.query(`CREATE SCHEMA parts;
      CREATE TABLE parts.task (id int, plan timestamptz NOT NULL, input text NOT NULL,
        state text DEFAULT 'PLAN' CHECK (state IN ${some}), note text,
        CONSTRAINT pair CHECK (state <> 'FAIL' AND note IS NULL), PRIMARY KEY (id, plan)) PARTITION BY RANGE (plan);
      CREATE TABLE parts.all_times PARTITION OF parts.task DEFAULT;
      INSERT INTO parts.task VALUES (1, now(), 'SELECT 1')`);
    const what = await refusal("parts");
    assert.ok(
      what.includes(`its constraint pair forbids the state FAIL; its constraint task_state_check ${forbidsThree}`),
      what,
    );
  });

  test("and its statements keep the check's other conditions", async () => {
    const schema = await createUserTable(`text DEFAULT 'PLAN' CHECK (state IN ${some})`);
    await refusal(schema);
    await assert.rejects(client.query(`UPDATE ${schema}.task SET state = 'mine'`), {
      code: "23514",
      constraint: "task_state_check",
    });
  });

  test("and pg-task check reports it", async () => {
    const schema = await createUserTable(`text DEFAULT 'PLAN' CHECK (state IN ${some})`);
    const before = await schemaContents(client, schema);
    const cwd = await temporaryFolder();
    await writeFile(join(cwd, "pg_task.json"), JSON.stringify({ "pg_task.schema": schema }));
    const { code, stdout } = await cli(["check"], { cwd, env: { DATABASE_URL: database.url } });
    assert.equal(code, 4);
    assert.match(stdout, new RegExp(`not allowed: .*its constraint task_state_check ${forbidsThree}`));
    assert.deepEqual(await schemaContents(client, schema), before);
  });
});

describe("adopts a table with a check that", () => {
  for (const [name, state, before] of [
    ["allows all states", "text DEFAULT 'PLAN' CHECK (length(state) = 4)", ""],
    ["has conditions on other columns", "text DEFAULT 'PLAN', CHECK (state <> 'TAKE' OR note IS NOT NULL)", ""],
    ["is null for some states", "text DEFAULT 'PLAN' CHECK (CASE WHEN state = 'PLAN' THEN true END)", ""],
    ["compares the state with another column", "text DEFAULT 'PLAN', CHECK (state <> note)", ""],
    [
      "raises an error for some states",
      "text DEFAULT 'PLAN' CHECK (length(state) / (CASE state WHEN 'GONE' THEN 0 ELSE 1 END) > 0)",
      "",
    ],
    [
      "writes when evaluated (it is evaluated read-only)",
      "text DEFAULT 'PLAN' CHECK (SCHEMA.noted(state))",
      `CREATE TABLE SCHEMA.asked (state text);
       CREATE FUNCTION SCHEMA.noted(state text) RETURNS boolean LANGUAGE plpgsql AS
         $$ BEGIN INSERT INTO SCHEMA.asked VALUES (state); RETURN state = 'PLAN'; END $$`,
    ],
  ] as const) {
    test(name, async () => {
      const schema = await createUserTable(state, before);
      await ensureTaskTable(target, { schema });
      if (!name.startsWith("writes")) return;
      const { rows } = await client.query(`SELECT DISTINCT state FROM ${schema}.asked`);
      assert.deepEqual(rows, [{ state: "PLAN" }]);
    });
  }

  test("belongs to a partition for finished tasks", async () => {
    await client.query(`CREATE SCHEMA archive;
      CREATE TABLE archive.task (id int, plan timestamptz NOT NULL, input text NOT NULL, state text DEFAULT 'PLAN',
        PRIMARY KEY (id, plan)) PARTITION BY RANGE (plan);
      CREATE TABLE archive.old PARTITION OF archive.task FOR VALUES FROM (MINVALUE) TO ('2020-01-01');
      ALTER TABLE archive.old ADD CHECK (state IN ('DONE', 'FAIL'));
      CREATE TABLE archive.new PARTITION OF archive.task FOR VALUES FROM ('2020-01-01') TO (MAXVALUE)`);
    await ensureTaskTable(target, { schema: "archive" });
  });

  // Servers before PostgreSQL 18 enforce all constraints.
  if (major >= 18) {
    test("is not enforced", async () => {
      const schema = await createUserTable(
        `text DEFAULT 'PLAN', CONSTRAINT words CHECK (state IN ${some}) NOT ENFORCED`,
      );
      await ensureTaskTable(target, { schema });
    });
  }
});
