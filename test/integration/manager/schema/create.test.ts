import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { describe, test } from "node:test";
import { connectManager } from "../../../../src/manager/connection.js";
import { ensureTable } from "../../../../src/manager/schema/ensureTable.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { identifier, literal } from "../../../../src/shared/postgres/quoting.js";
import { createDatabase } from "../../../support/database.js";
import { stubClient } from "../../../support/stubClient.js";
import { createRole, ensure, makeEntry, silentLog } from "../../../support/taskTables.js";

const database = await createDatabase("empty");
const { target } = database;
const client = await database.connect();

const unique = (what: string): string => `${what}_${randomBytes(4).toString("hex")}`;

async function insertOne(qualified: string): Promise<void> {
  const { rowCount } = await client.query(`INSERT INTO ${qualified} (input) VALUES ('SELECT 1')`);
  assert.equal(rowCount, 1);
}

describe("what is missing", () => {
  test("is made, the schema included", async () => {
    const { qualified } = await ensure(target, { schema: "made" });
    await insertOne(qualified);
  });

  test("is made again after the table was dropped", async () => {
    const { qualified } = await ensure(target, { schema: "dropped" });
    await client.query(`DROP TABLE ${qualified}`);
    await ensure(target, { schema: "dropped" });
    await insertOne(qualified);
  });

  test("is made again after the table was dropped with its type", async () => {
    const { qualified, stateType } = await ensure(target, { schema: "dropped_too" });
    await client.query(`DROP TABLE ${qualified}; DROP TYPE ${stateType}`);
    await ensure(target, { schema: "dropped_too" });
    await insertOne(qualified);
  });

  test("is the oid that is given back", async () => {
    const entry = makeEntry(target, { schema: "oids" });
    const table = taskTable("oids", "task");
    const manager = await connectManager(entry);
    const oid = await ensureTable(manager, table, entry, silentLog);
    await manager.end();
    const { rows } = await client.query("SELECT 'oids.task'::regclass::oid AS oid");
    assert.equal(oid, rows[0].oid);
  });

  test("is made by two managers at once, once", async () => {
    await Promise.all([ensure(target, { schema: "twice" }), ensure(target, { schema: "twice" })]);
    await insertOne("twice.task");
  });

  test("is made by the managers of several tables of a new schema at once", async () => {
    const tables = ["a", "b", "c", "d"];
    await Promise.all(tables.map((table) => ensure(target, { schema: "several", table })));
    for (const table of tables) await insertOne(`several.${table}`);
  });

  test("is left missing and named where nothing is to be created", async () => {
    const given = { schema: "absent", create: false };
    await assert.rejects(ensure(target, given), {
      code: "SCHEMA_MISSING",
      message: `schema "absent" is missing, and its entry says "create": false`,
    });
    await client.query("CREATE SCHEMA absent");
    await assert.rejects(ensure(target, given), {
      code: "SCHEMA_MISSING",
      message: `table "absent"."task" is missing, and its entry says "create": false`,
    });
    const { rows } = await client.query(
      "SELECT FROM pg_class WHERE relnamespace = 'absent'::regnamespace",
    );
    assert.deepEqual(rows, []);
  });

  test("is not missed where nothing is to be created and all is there", async () => {
    await ensure(target, { schema: "present" });
    await ensure(target, { schema: "present", create: false });
  });
});

test("an enum state that lacks some of the states gets them", async () => {
  await client.query(
    "CREATE SCHEMA labels; CREATE TYPE labels.state AS ENUM ('PLAN', 'TAKE', 'WORK', 'DONE', 'STOP')",
  );
  await ensure(target, { schema: "labels" });
  const { rows } = await client.query("SELECT enum_range(NULL::labels.state)::text AS states");
  assert.equal(rows[0].states, "{PLAN,TAKE,WORK,DONE,STOP,FAIL,GONE}");
});

describe("rights that are missing", () => {
  test("to create in the database are told in the server's words", async () => {
    const role = await createRole(client, unique("stranger"));
    await assert.rejects(ensure({ ...target, user: role }, { schema: "forbidden" }), {
      code: "SCHEMA_NOT_ALLOWED",
      message: `cannot make "forbidden"."task": permission denied for database ${target.database}`,
    });
  });

  test("to create in the schema are told in the server's words", async () => {
    await client.query("CREATE SCHEMA readable; GRANT USAGE ON SCHEMA readable TO PUBLIC");
    const role = await createRole(client, unique("reader"));
    await assert.rejects(ensure({ ...target, user: role }, { schema: "readable" }), {
      code: "SCHEMA_NOT_ALLOWED",
      message: `cannot make "readable"."task": permission denied for schema readable`,
    });
  });

  test("to use the schema are told in the server's words", async () => {
    await client.query("CREATE SCHEMA closed");
    const role = await createRole(client, unique("outsider"));
    await assert.rejects(ensure({ ...target, user: role }, { schema: "closed" }), {
      code: "SCHEMA_NOT_ALLOWED",
      message: `cannot make "closed"."task": permission denied for schema closed`,
    });
  });

  test("to alter the table matter only when a default is to change", async () => {
    await ensure(target, { schema: "owned" });
    await client.query("GRANT USAGE ON SCHEMA owned TO PUBLIC");
    const role = await createRole(client, unique("borrower"));
    const other = { ...target, user: role };
    await ensure(other, { schema: "owned" });
    await assert.rejects(ensure(other, { schema: "owned", parameters: { "pg_task.max": 7 } }), {
      code: "SCHEMA_NOT_ALLOWED",
      message: `cannot make "owned"."task": must be owner of table task`,
    });
  });

  test("to make temporary tables are not needed", async () => {
    const role = await createRole(client, unique("plain"));
    await client.query(
      `REVOKE TEMPORARY ON DATABASE ${target.database} FROM PUBLIC; CREATE SCHEMA plain AUTHORIZATION ${role}`,
    );
    const given = { schema: "plain", parameters: { "pg_task.plan": "now() + interval '1 day'" } };
    await ensure({ ...target, user: role }, given);
    await ensure({ ...target, user: role }, given);
  });
});

async function incompatible(schema: string, statement: string, message: RegExp): Promise<void> {
  await client.query(`CREATE SCHEMA ${schema}; ${statement}`);
  await assert.rejects(ensure(target, { schema }), { code: "SCHEMA_INCOMPATIBLE", message });
}

describe("what cannot be used is refused and left as it is", () => {
  test("a table that pg-task did not make", async () => {
    await incompatible("foreign1", "CREATE TABLE foreign1.task (mine int)", /not made by pg-task/);
    const { rows } = await client.query(
      "SELECT attname FROM pg_attribute WHERE attrelid = 'foreign1.task'::regclass AND attnum > 0",
    );
    assert.deepEqual(rows, [{ attname: "mine" }]);
  });

  test("a view", async () => {
    await incompatible("foreign2", "CREATE VIEW foreign2.task AS SELECT 1", /got a view/);
  });

  test("a foreign table", async () => {
    await incompatible(
      "foreign3",
      `CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing;
       CREATE FOREIGN TABLE foreign3.task (id bigint) SERVER nowhere`,
      /got a foreign table/,
    );
  });

  test("a table made by a later version", async () => {
    await ensure(target, { schema: "later" });
    await client.query("COMMENT ON FUNCTION later.task_ready() IS 'pg-task migration 9999'");
    await assert.rejects(ensure(target, { schema: "later" }), {
      code: "SCHEMA_INCOMPATIBLE",
      message: /made by a later pg-task \(migration 9999, .*upgrade/,
    });
  });

  test("another type of the name state", async () => {
    await incompatible(
      "states1",
      "CREATE TABLE states1.state (name text)",
      /to be an enum of PLAN/,
    );
  });

  test("an enum state without PLAN", async () => {
    await incompatible(
      "states2",
      "CREATE TYPE states2.state AS ENUM ('TAKE', 'WORK', 'DONE', 'STOP')",
      /got one without PLAN, FAIL, GONE/,
    );
  });

  test("a function of the user's that has the name of pg-task's", async () => {
    await incompatible(
      "functions",
      "CREATE FUNCTION functions.task_wake_up() RETURNS int LANGUAGE sql AS 'SELECT 42'",
      /the function functions\.task_wake_up\(\) exists/,
    );
    const { rows } = await client.query("SELECT functions.task_wake_up() AS answer");
    assert.equal(rows[0].answer, 42);
  });

  test("a function of the user's that has the name and the arguments of pg-task's", async () => {
    await incompatible(
      "resets",
      "CREATE FUNCTION resets.task_reset(text, text, text, integer, integer) RETURNS int LANGUAGE sql AS 'SELECT 42'",
      /the function resets\.task_reset\(text,text,text,integer,integer\) exists/,
    );
  });

  test("a table of the user's that has the name of pg-task's index", async () => {
    await incompatible(
      "indexes",
      "CREATE TABLE indexes.task_due_idx (mine int)",
      /the relation indexes\.task_due_idx exists and was not made by pg-task/,
    );
  });

  test("a table of the user's that has the name of pg-task's pause table", async () => {
    await incompatible(
      "pauses",
      "CREATE TABLE pauses.task_pause (a int)",
      /the relation pauses\.task_pause exists and was not made by pg-task/,
    );
  });

  test("the name state for a table, which its type has", async () => {
    await assert.rejects(ensure(target, { schema: "named", table: "state" }), {
      code: "SCHEMA_INCOMPATIBLE",
    });
  });

  test("a table whose column was dropped", async () => {
    await ensure(target, { schema: "lacking" });
    await client.query("ALTER TABLE lacking.task DROP COLUMN quote");
    await assert.rejects(ensure(target, { schema: "lacking" }), {
      code: "SCHEMA_INCOMPATIBLE",
      message: /column "quote" of relation "task" does not exist/,
    });
  });
});

describe("names of every kind", () => {
  const longName = "n".repeat(62);
  for (const [schema, table] of [
    ["Upper Case", "Task Table"],
    ['quo"ted', 'ta"sk'],
    ["häuser", "Überprüfungen"],
    ["single'quote", "back\\slash'"],
    ["dollar$do$", "$function$ $do$ $1"],
    ["colon", ':"schema"'],
    ["percent%s", "%I%s"],
    ['"; DROP SCHEMA made CASCADE; --', '"; DROP TABLE made.task; --'],
    ["ü".repeat(31), "ü".repeat(31)],
    [`${longName}s`, `${longName}a`],
    [`${longName}s`, `${longName}b`],
    ["select", "group"],
    ["line\nbreak", "tab\t"],
  ] as const) {
    test(`work: ${JSON.stringify(schema)}.${JSON.stringify(table)}`, async () => {
      const made = await ensure(target, { schema, table });
      await ensure(target, { schema, table, parameters: { "pg_task.plan": "now()" } });
      const { rows } = await client.query<{ names: string[] }>(
        `SELECT ARRAY(
           SELECT relname::text FROM pg_index JOIN pg_class ON oid = indexrelid WHERE indrelid = $1::regclass
           UNION SELECT tgname FROM pg_trigger WHERE tgrelid = $1::regclass
           UNION SELECT proname FROM pg_trigger JOIN pg_proc p ON p.oid = tgfoid WHERE tgrelid = $1::regclass
         ) AS names`,
        [made.qualified],
      );
      const names = rows[0]?.names ?? [];
      const { dueIndex, planIndex, readyFunction, readyInsertTrigger, readyUpdateTrigger, wakeUp } =
        made;
      for (const name of [
        dueIndex,
        planIndex,
        readyFunction,
        readyInsertTrigger,
        readyUpdateTrigger,
        wakeUp,
      ]) {
        assert.ok(names.includes(name), `${name} is missing among ${names.join(", ")}`);
      }
      const planned = await client.query(
        `INSERT INTO ${made.qualified} (input, plan) VALUES ('', 'tomorrow') RETURNING ready, state::text`,
      );
      assert.deepEqual(planned.rows, [{ ready: false, state: "PLAN" }]);
    });
  }

  test("leave each other's tables alone", async () => {
    const tables = [`${longName}a`, `${longName}b`].map((table) =>
      taskTable(`${longName}s`, table),
    );
    for (const { qualified, readyFunction, schema } of tables) {
      const { rows } = await client.query(
        "SELECT FROM pg_trigger WHERE tgrelid = $1::regclass AND tgfoid = to_regproc($2)",
        [qualified, `${identifier(schema)}.${identifier(readyFunction)}`],
      );
      assert.equal(rows.length, 2, literal(qualified));
    }
  });
});

test("a server older than PostgreSQL 12 is refused before anything is made", async () => {
  const asked: string[] = [];
  const old = stubClient(async (text) => {
    asked.push(text);
    return { rows: [{ number: 110_022, text: "11.22" }], rowCount: 1 };
  });
  const entry = makeEntry(target);
  await assert.rejects(ensureTable(old, taskTable("public", "task"), entry, silentLog), {
    code: "SCHEMA_UNSUPPORTED_SERVER",
    message: "expected PostgreSQL 12 or later, got 11.22",
  });
  assert.equal(asked.length, 1);
});
