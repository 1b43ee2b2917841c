import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { describe, test } from "node:test";
import { connectManager } from "../../../../src/manager/loop/connectManager.js";
import { ensureTable } from "../../../../src/manager/schema/ensureTable.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { identifier, literal } from "../../../../src/shared/postgres/quoting.js";
import { createDatabase } from "../../../support/database.js";
import { stubClient } from "../../../support/stubClient.js";
import { createRole, ensureTaskTable, makeEntry, silentLog } from "../../../support/taskTables.js";

const database = await createDatabase("empty");
const { target } = database;
const client = await database.connect();

const unique = (what: string): string => `${what}_${randomBytes(4).toString("hex")}`;

async function insertOne(qualified: string): Promise<void> {
  const { rowCount } = await client.query(`INSERT INTO ${qualified} (input) VALUES ('SELECT 1')`);
  assert.equal(rowCount, 1);
}

describe("a missing object", () => {
  test("is created, including the schema", async () => {
    const { qualified } = await ensureTaskTable(target, { schema: "made" });
    await insertOne(qualified);
  });

  for (const [schema, drop] of [
    ["dropped", "DROP TABLE dropped.task"],
    ["dropped_too", "DROP TABLE dropped_too.task; DROP TYPE dropped_too.state"],
    [
      "beside",
      "DROP TABLE beside.task_after, beside.task_owed, beside.task_pause; DROP FUNCTION beside.task_planned CASCADE",
    ],
  ] as const) {
    test(`is created again: ${drop}`, async () => {
      const { qualified } = await ensureTaskTable(target, { schema });
      await client.query(drop);
      await ensureTaskTable(target, { schema });
      await insertOne(qualified);
    });
  }

  test("is created, and the oid of the table returned", async () => {
    const entry = makeEntry(target, { schema: "oids" });
    const table = taskTable("oids", "task");
    const manager = await connectManager(entry);
    const oid = await ensureTable(manager, table, entry, silentLog);
    await manager.end();
    const { rows } = await client.query("SELECT 'oids.task'::regclass::oid AS oid");
    assert.equal(oid, rows[0].oid);
  });

  test("is created once by concurrent managers of the same and of other tables in a new schema", async () => {
    const tables = ["a", "a", "b", "c"];
    await Promise.all(tables.map((table) => ensureTaskTable(target, { schema: "several", table })));
    for (const table of tables) await insertOne(`several.${table}`);
  });

  test('is reported with "create": false', async () => {
    const given = { schema: "absent", create: false };
    await assert.rejects(ensureTaskTable(target, given), {
      code: "SCHEMA_MISSING",
      message: `schema "absent" is missing, and its entry says "create": false`,
    });
    await client.query("CREATE SCHEMA absent");
    await assert.rejects(ensureTaskTable(target, given), {
      code: "SCHEMA_MISSING",
      message: `table "absent"."task" is missing, and its entry says "create": false`,
    });
    const { rows } = await client.query("SELECT FROM pg_class WHERE relnamespace = 'absent'::regnamespace");
    assert.deepEqual(rows, []);
  });

  test('is not reported with "create": false if everything exists', async () => {
    await ensureTaskTable(target, { schema: "present" });
    await ensureTaskTable(target, { schema: "present", create: false });
  });
});

test("missing states are added to the enum", async () => {
  await client.query("CREATE SCHEMA labels; CREATE TYPE labels.state AS ENUM ('PLAN', 'TAKE', 'WORK', 'DONE', 'STOP')");
  await ensureTaskTable(target, { schema: "labels" });
  const { rows } = await client.query("SELECT enum_range(NULL::labels.state)::text AS states");
  assert.equal(rows[0].states, "{PLAN,TAKE,WORK,DONE,STOP,FAIL,GONE}");
});

describe("missing rights", () => {
  for (const [schema, make, denied, grant] of [
    ["forbidden", "", `database ${target.database}`, `CREATE ON DATABASE ${target.database}`],
    [
      "readable",
      "CREATE SCHEMA readable; GRANT USAGE ON SCHEMA readable TO PUBLIC",
      "schema readable",
      "CREATE ON SCHEMA readable",
    ],
    ["closed", "CREATE SCHEMA closed", "schema closed", "USAGE, CREATE ON SCHEMA closed"],
  ] as const) {
    test(`are reported with the server's message and the remedy: ${grant}`, async () => {
      await client.query(make);
      const role = await createRole(client, unique("stranger"));
      await assert.rejects(ensureTaskTable({ ...target, user: role }, { schema }), {
        code: "SCHEMA_NOT_ALLOWED",
        message: `cannot create or change "${schema}"."task": permission denied for ${denied}: GRANT ${grant} TO "${role}"`,
      });
    });
  }

  test("to alter the table matter only if a default changes", async () => {
    await ensureTaskTable(target, { schema: "owned" });
    await client.query("GRANT USAGE ON SCHEMA owned TO PUBLIC; GRANT SELECT ON owned.task_home TO PUBLIC");
    const role = await createRole(client, unique("borrower"));
    const other = { ...target, user: role };
    await ensureTaskTable(other, { schema: "owned" });
    await assert.rejects(ensureTaskTable(other, { schema: "owned", parameters: { "pg_task.max": 7 } }), {
      code: "SCHEMA_NOT_ALLOWED",
      message: `cannot create or change "owned"."task": must be owner of table task: ALTER TABLE "owned"."task" OWNER TO "${role}"`,
    });
  });

  test("to create temporary tables are not needed", async () => {
    const role = await createRole(client, unique("plain"));
    await client.query(
      `REVOKE TEMPORARY ON DATABASE ${target.database} FROM PUBLIC; CREATE SCHEMA plain AUTHORIZATION ${role}`,
    );
    const given = { schema: "plain", parameters: { "pg_task.plan": "now() + interval '1 day'" } };
    await ensureTaskTable({ ...target, user: role }, given);
    await ensureTaskTable({ ...target, user: role }, given);
  });
});

describe("refuses and leaves unchanged", () => {
  for (const [what, schema, statement, message, after] of [
    [
      "a table that lacks required columns",
      "foreign1",
      "CREATE TABLE foreign1.task (mine int)",
      /not created by pg-task/,
      "TABLE foreign1.task",
    ],
    ["a view", "foreign2", "CREATE VIEW foreign2.task AS SELECT 1", /got a view/, "TABLE foreign2.task"],
    [
      "a foreign table",
      "foreign3",
      `CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing;
       CREATE FOREIGN TABLE foreign3.task (id bigint) SERVER nowhere`,
      /got a foreign table/,
      "",
    ],
    [
      "another type named state",
      "states1",
      "CREATE TABLE states1.state (name text)",
      /to be an enum of PLAN/,
      "SELECT name FROM states1.state",
    ],
    [
      "an enum state without PLAN",
      "states2",
      "CREATE TYPE states2.state AS ENUM ('TAKE', 'WORK', 'DONE', 'STOP')",
      /got one without PLAN, FAIL, GONE/,
      "",
    ],
    [
      "a user's function with the name of one of pg-task's",
      "functions",
      "CREATE FUNCTION functions.task_wake_up() RETURNS int LANGUAGE sql AS 'SELECT 42'",
      /the function functions\.task_wake_up\(\) exists/,
      "SELECT functions.task_wake_up()",
    ],
    [
      "a user's function with the name and arguments of one of pg-task's",
      "resets",
      "CREATE FUNCTION resets.task_reset(text, text, text, integer, integer) RETURNS int LANGUAGE sql AS 'SELECT 42'",
      /the function resets\.task_reset\(text,text,text,integer,integer\) exists/,
      "",
    ],
    ...(
      [
        ["indexes", "task_due_idx", "mine int"],
        ["pauses", "task_pause", "a int"],
        ["owed", "task_owed", "task bigint"],
        ["failures", "task_group_failures", "hash bigint, failures integer"],
        [
          "webhooks",
          "task_webhooks",
          "name text, states text[], groups text[], failures int, next timestamptz, error text, failed timestamptz",
        ],
        ["outbox", "task_outbox", "id bigint, webhook text, task bigint, state text, tries int, next timestamptz"],
        ["turns", "task_turn", 'turn bigint, "group" text, begun boolean'],
        ["dependencies", "task_after", "predecessor bigint, task bigint"],
      ] as const
    ).map(
      ([place, name, columns]) =>
        [
          `a user's table with the name ${name}`,
          place,
          `CREATE TABLE ${place}.${name} (${columns})`,
          new RegExp(`the relation ${place}\\.${name} exists and was not created by pg-task`),
          `TABLE ${place}.${name}`,
        ] as const,
    ),
  ] as const) {
    test(what, async () => {
      await client.query(`CREATE SCHEMA ${schema}; ${statement}`);
      await assert.rejects(ensureTaskTable(target, { schema }), { code: "SCHEMA_INCOMPATIBLE", message });
      await client.query(after);
    });
  }

  test("a table created by a later version", async () => {
    await ensureTaskTable(target, { schema: "later" });
    await client.query("COMMENT ON FUNCTION later.task_ready() IS 'pg-task version 9999'");
    await assert.rejects(ensureTaskTable(target, { schema: "later" }), {
      code: "SCHEMA_INCOMPATIBLE",
      message: /created by a later pg-task \(version 9999, .*upgrade/,
    });
  });

  test("a table named state, like its enum type", async () => {
    await assert.rejects(ensureTaskTable(target, { schema: "named", table: "state" }), {
      code: "SCHEMA_INCOMPATIBLE",
    });
  });

  test("a table whose column was dropped", async () => {
    await ensureTaskTable(target, { schema: "incomplete" });
    await client.query("ALTER TABLE incomplete.task DROP COLUMN quote");
    await assert.rejects(ensureTaskTable(target, { schema: "incomplete" }), {
      code: "SCHEMA_INCOMPATIBLE",
      message: /column "quote" of relation "task" does not exist/,
    });
  });
});

// test/integration/manager/schema/security/names.test.ts serves tables with further names.
describe("unusual names", () => {
  const longName = "n".repeat(62);
  for (const [schema, table] of [
    ["dollar$do$", "$function$ $do$ $1"],
    ["colon", ':"schema"'],
    ["ü".repeat(31), "ü".repeat(31)],
    [`${longName}s`, `${longName}a`],
    [`${longName}s`, `${longName}b`],
    ["select", "group"],
  ] as const) {
    test(`work: ${JSON.stringify(schema)}.${JSON.stringify(table)}`, async () => {
      const made = await ensureTaskTable(target, { schema, table });
      await ensureTaskTable(target, { schema, table, parameters: { "pg_task.plan": "now()" } });
      const { rows } = await client.query<{ names: string[] }>(
        `SELECT ARRAY(
           SELECT relname::text FROM pg_index JOIN pg_class ON oid = indexrelid WHERE indrelid = $1::regclass
           UNION SELECT tgname FROM pg_trigger WHERE tgrelid = $1::regclass
           UNION SELECT proname FROM pg_trigger JOIN pg_proc p ON p.oid = tgfoid WHERE tgrelid = $1::regclass
         ) AS names`,
        [made.qualified],
      );
      const names = rows[0]?.names ?? [];
      const { dueIndex, planIndex, readyFunction, readyInsertTrigger, readyUpdateTrigger, wakeUp } = made;
      for (const name of [dueIndex, planIndex, readyFunction, readyInsertTrigger, readyUpdateTrigger, wakeUp]) {
        assert.ok(names.includes(name), `${name} is missing among ${names.join(", ")}`);
      }
      const planned = await client.query(
        `INSERT INTO ${made.qualified} (input, plan) VALUES ('', 'tomorrow') RETURNING ready, state::text`,
      );
      assert.deepEqual(planned.rows, [{ ready: false, state: "PLAN" }]);
    });
  }

  test("do not affect each other's tables", async () => {
    const tables = [`${longName}a`, `${longName}b`].map((table) => taskTable(`${longName}s`, table));
    for (const { qualified, readyFunction, schema } of tables) {
      const { rows } = await client.query(
        "SELECT FROM pg_trigger WHERE tgrelid = $1::regclass AND tgfoid = to_regproc($2)",
        [qualified, `${identifier(schema)}.${identifier(readyFunction)}`],
      );
      assert.equal(rows.length, 2, literal(qualified));
    }
  });
});

test("refuses a server older than PostgreSQL 12 before creating anything", async () => {
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
