import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { FileParameters } from "../../../../src/shared/config/parameterTable.js";
import { identifier, literal } from "../../../../src/shared/postgres/quoting.js";
import { createDatabase } from "../../../support/database.js";
import { ensureTaskTable } from "../../../support/taskTables.js";
import { only } from "../../../support/tasks.js";

const database = await createDatabase("empty");
const { target } = database;
const client = await database.connect();

async function inserted(schema: string, column: string): Promise<unknown> {
  const name = identifier(column);
  const { rows } = await client.query(
    `INSERT INTO ${identifier(schema)}.task (input) VALUES ('') RETURNING ${name}::text AS value`,
  );
  return rows[0].value;
}

const columnDefault = async (schema: string, column: string): Promise<string> => {
  const { rows } = await client.query(
    `SELECT pg_get_expr(adbin, adrelid) AS shown FROM pg_attrdef
     JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
     WHERE adrelid = $1::regclass AND attname = $2`,
    [`${schema}.task`, column],
  );
  return rows[0].shown;
};

async function changeTo(parameters: Partial<FileParameters>): Promise<void> {
  await ensureTaskTable(target, { schema: "changing", parameters });
}

describe("the file's values", () => {
  const texts = [
    "it's",
    "''",
    "'",
    "\\",
    "\\N",
    "back\\slash's",
    "a\tb\nc\r\n",
    "%s %% %I",
    "$1 $$ $do$",
    "', ''::text), 'x'::text)",
    "E'\\x'",
    "ü🐘",
    " ",
    "",
    '"',
    "null",
  ];
  for (const text of texts) {
    test(`become the defaults: ${JSON.stringify(text)}`, async () => {
      const given = {
        schema: "texts",
        parameters: { "pg_task.null": text, "pg_task.group": text },
      };
      await ensureTaskTable(target, given);
      assert.equal(await inserted("texts", "null"), text);
      assert.equal(await inserted("texts", "group"), text);
      const before = await client.query("SELECT xmin::text FROM pg_attrdef WHERE adrelid = 'texts.task'::regclass");
      await ensureTaskTable(target, given);
      const after = await client.query("SELECT xmin::text FROM pg_attrdef WHERE adrelid = 'texts.task'::regclass");
      assert.deepEqual(after.rows, before.rows, "altered again");
    });
  }

  for (const char of ["'", '"', "\\", "\t", "\n", "%", "", "~", "\x7f", "\x01"]) {
    test(`become the defaults: the character ${JSON.stringify(char)}`, async () => {
      const parameters = {
        "pg_task.delimiter": char,
        "pg_task.quote": char,
        "pg_task.escape": char,
      };
      await ensureTaskTable(target, { schema: "chars", parameters });
      for (const column of ["delimiter", "quote", "escape"]) {
        assert.equal(await inserted("chars", column), char, column);
      }
    });
  }

  test("replace the defaults when they change", async () => {
    await changeTo({ "pg_task.max": 3, "pg_task.header": false, "pg_task.active": "2 days" });
    assert.equal(await inserted("changing", "max"), "3");
    assert.equal(await inserted("changing", "header"), "false");
    assert.equal(await inserted("changing", "active"), "2 days");
    await changeTo({ "pg_task.max": -4, "pg_task.active": "P1DT2H" });
    assert.equal(await inserted("changing", "max"), "-4");
    assert.equal(await inserted("changing", "header"), "true");
    assert.equal(await inserted("changing", "active"), "1 day 02:00:00");
  });
});

describe("a default", () => {
  for (const [what, expression] of [
    ["a constant", "5"],
    ["made with the setting", "coalesce(current_setting('pg_task.max', true), '5')::int"],
    ["made from pg-task's own", "COALESCE(NULLIF(current_setting('pg_task.max', true), ''), '4')::int + 1"],
    ["made from the extension's own", "current_setting('pg_task.max')::int + 1"],
  ] as const) {
    test(`set by the user stays: ${what}`, async () => {
      const schema = `users_${what.replaceAll(/\W/g, "_")}`;
      await ensureTaskTable(target, { schema });
      await client.query(`ALTER TABLE ${schema}.task ALTER max SET DEFAULT ${expression}`);
      const before = await columnDefault(schema, "max");
      await ensureTaskTable(target, { schema });
      assert.equal(await columnDefault(schema, "max"), before);
    });
  }

  test("set by the user stays for plan and parent as well", async () => {
    await ensureTaskTable(target, { schema: "others" });
    await client.query(
      `ALTER TABLE others.task ALTER plan SET DEFAULT now() + interval '1 day',
         ALTER parent SET DEFAULT NULLIF(current_setting('pg_task.id', true), '')::bigint + 1`,
    );
    const before = [await columnDefault("others", "plan"), await columnDefault("others", "parent")];
    await ensureTaskTable(target, { schema: "others" });
    await ensureTaskTable(target, { schema: "others", parameters: { "pg_task.plan": "now()" } });
    const after = [await columnDefault("others", "plan"), await columnDefault("others", "parent")];
    assert.deepEqual(after, before);
  });

  for (const [column, expression, value] of [
    ["max", "(current_setting('pg_task.max'::text))::integer", "0"],
    ["active", "(current_setting('pg_task.active'::text))::interval", "01:00:00"],
    ["delete", "(current_setting('pg_task.delete'::text))::boolean", "true"],
    ["delimiter", `(current_setting('pg_task.delimiter'::text))::"char"`, "\t"],
    ["group", "current_setting('pg_task.group'::text)", "group"],
    ["parent", "NULLIF((current_setting('pg_task.id'::text))::bigint, 0)", null],
  ] as const) {
    test(`of the extension is replaced, since it fails without it: ${column}`, async () => {
      await ensureTaskTable(target, { schema: "extension" });
      await client.query(`ALTER TABLE extension.task ALTER ${identifier(column)} SET DEFAULT ${expression}`);
      await ensureTaskTable(target, { schema: "extension" });
      assert.equal(await inserted("extension", column), value);
    });
  }

  test("that was dropped is set again", async () => {
    await ensureTaskTable(target, { schema: "emptied" });
    await client.query("ALTER TABLE emptied.task ALTER max DROP DEFAULT, ALTER plan DROP DEFAULT");
    await ensureTaskTable(target, { schema: "emptied", parameters: { "pg_task.max": 2 } });
    assert.equal(await inserted("emptied", "max"), "2");
  });
});

describe("parent", () => {
  test("is the running task's id, and null outside of tasks", async () => {
    await ensureTaskTable(target, { schema: "parents" });
    const session = await database.connect();
    const parent = async () => {
      const { rows } = await session.query("INSERT INTO parents.task (input) VALUES ('') RETURNING parent");
      return rows[0].parent;
    };
    assert.equal(await parent(), null);
    await session.query("SET pg_task.id = 9223372036854775807");
    assert.equal(await parent(), "9223372036854775807");
    await session.query("SET pg_task.id = 0");
    assert.equal(await parent(), null);
    await session.query("RESET pg_task.id");
    assert.equal(await parent(), null);
    await session.query("BEGIN; SET LOCAL pg_task.id = 7");
    assert.equal(await parent(), "7");
    await session.query("COMMIT");
    assert.equal(await parent(), null);
  });
});

const plan = (schema: string, expression?: string) =>
  ensureTaskTable(target, {
    schema,
    ...(expression === undefined ? {} : { parameters: { "pg_task.plan": expression } }),
  });
const inHours = async (schema: string): Promise<number> => {
  const { rows } = await client.query(
    `INSERT INTO ${schema}.task (input) VALUES ('')
     RETURNING round(extract(epoch FROM plan - now()) / 3600)::int AS hours`,
  );
  return rows[0].hours;
};

async function levelsHours(): Promise<number> {
  const session = await database.connect();
  const { rows } = await session.query<{ hours: number }>(
    `INSERT INTO levels.task (input) VALUES ('')
     RETURNING round(extract(epoch FROM plan - now()) / 3600)::int AS hours`,
  );
  await session.end();
  return only(rows).hours;
}

describe("pg_task.plan", () => {
  for (const [what, expression, hours] of [
    ["as the server shows it", "now()", 0],
    ["in other words than the server shows", "now() + interval '2 hours'", 2],
    ["with a comment at its end", "now() + '3 hours' -- later", 3],
    ["of another type that is cast", "now()::timestamp AT TIME ZONE current_setting('TimeZone') + '4h'", 4],
    ["with quotes and backslashes", `CASE WHEN E'\\'\\\\' <> '''"' THEN now() + '5h' END`, 5],
  ] as const) {
    test(`may be ${what}, and is applied once`, async () => {
      const schema = `plan_${what.replaceAll(/\W/g, "_")}`;
      await plan(schema, expression);
      assert.equal(await inHours(schema), hours);
      const before = await client.query("SELECT xmin::text FROM pg_attrdef WHERE adrelid = $1::regclass", [
        `${schema}.task`,
      ]);
      await plan(schema, expression);
      const after = await client.query("SELECT xmin::text FROM pg_attrdef WHERE adrelid = $1::regclass", [
        `${schema}.task`,
      ]);
      assert.deepEqual(after.rows, before.rows, "altered again");
    });
  }

  test("follows changes of the file", async () => {
    await plan("follows", "now() + interval '2 hours'");
    await plan("follows", "now() + interval '6 hours'");
    assert.equal(await inHours("follows"), 6);
    await plan("follows");
    assert.equal(await inHours("follows"), 0);
    assert.match(
      (await columnDefault("follows", "plan")) ?? "",
      /CASE\s.* THEN statement_timestamp\(\)\s+ELSE follows\.task_planned\(.*END$/s,
    );
  });

  test("may call a schema-qualified user's function", async () => {
    await client.query(
      "CREATE FUNCTION public.at_eight() RETURNS timestamptz LANGUAGE sql STABLE AS $$ SELECT now() + interval '8 hours' $$",
    );
    await plan("functions", "public.at_eight()");
    assert.equal(await inHours("functions"), 8);
  });

  for (const [what, expression, words] of [
    ["a syntax error", "now() +", /syntax error/],
    ["an unknown function", "never()", /function never\(\) does not exist/],
    ["another type", "42", /is of type timestamp with time zone but .* integer/],
    ["no time", "'soon'::timestamptz", /invalid input syntax/],
    ["a column", "stop", /cannot use column reference/],
    ["an unknown column", "gone", /cannot use column reference/],
  ] as const) {
    test(`is refused with the server's message: ${what}`, async () => {
      await plan("refused");
      await assert.rejects(plan("refused", expression), (error: Error & { code: string }) => {
        assert.equal(error.code, "CONFIG_INVALID");
        assert.match(error.message, /expected pg_task\.plan .* default of "refused"\."task"\.plan/);
        assert.match(error.message, words);
        return true;
      });
      assert.match((await columnDefault("refused", "plan")) ?? "", /THEN statement_timestamp\(\)/);
    });
  }

  const clock = "extract(epoch FROM plan - statement_timestamp())";
  for (const [given, condition] of [
    ["5 min", `${clock} = 300`],
    ["-1:30", `${clock} = -5400`],
    ["P1D", "plan = statement_timestamp() + interval '1 day'"],
    ["1 mon", "plan = statement_timestamp() + interval '1 mon'"],
    ["+10 minutes", `${clock} = 600`],
    // Where PostgreSQL expects a time, it takes the following texts for time zone displacements that are out of range.
    ["+20 minutes", `${clock} = 1200`],
    ["-20 min", `${clock} = -1200`],
    ["+20 hours", `${clock} = 72000`],
    ["+90 sec ago", `${clock} = -90`],
    ["+1 day -20 min", "plan = statement_timestamp() + interval '1 day -20 min'"],
    ["+90", `${clock} = 90`],
    ["2099-01-01 12:00+00", "plan = '2099-01-01 12:00+00'"],
    ["infinity", "plan = 'infinity'"],
    ["tomorrow", "plan = timestamptz 'tomorrow'"],
    ["now()", "plan = now()"],
    ["CURRENT_TIMESTAMP", "plan = now()"],
    ["statement_timestamp()", `${clock} = 0`],
    ["pg_catalog.clock_timestamp()", "plan BETWEEN statement_timestamp() AND clock_timestamp()"],
    ["now() + interval '2 hours'", "plan = now() + interval '2 hours'"],
    ["statement_timestamp() - '1 hour'::interval", `${clock} = -3600`],
    ["", `${clock} = 0`],
  ] as const) {
    test(`of the session is used: ${given}`, async () => {
      await plan("session");
      const session = await database.connect();
      await session.query("BEGIN");
      await session.query("SELECT set_config('pg_task.plan', $1, true)", [given]);
      const { rows } = await session.query(
        `INSERT INTO session.task (input) VALUES ('') RETURNING ${condition} AS holds, plan`,
      );
      assert.equal(rows[0].holds, true, String(rows[0].plan));
      await session.end();
    });
  }

  test("of the role overrides the database's, which overrides the file's", async () => {
    await plan("levels", "now() + interval '1 hour'");
    assert.equal(await levelsHours(), 1);
    const here = `DATABASE ${identifier(target.database)}`;
    await client.query(`ALTER ${here} SET pg_task.plan = '2 hours'`);
    assert.equal(await levelsHours(), 2);
    const role = `ALTER ROLE ${identifier(target.user)} IN ${here}`;
    await client.query(`${role} SET pg_task.plan = ${literal("now() + interval '3 hours'")}`);
    assert.equal(await levelsHours(), 3);
    await client.query(`${role} RESET pg_task.plan; ALTER ${here} RESET pg_task.plan`);
    assert.equal(await levelsHours(), 1);
  });

  test("of a session is parsed, never executed", async () => {
    await plan("rights");
    await client.query("CREATE TABLE rights.harm (); CREATE SEQUENCE rights.calls");
    const session = await database.connect();
    for (const evil of [
      "now() + nextval('rights.calls') * interval '1 s'",
      "(SELECT now() FROM rights.harm)",
      "now()); DROP TABLE rights.harm; --",
      "now() + '1 s'::interval + '1 s'",
      "soon",
      "+20 soon",
      "2099-01-01 12:00 No/Where",
      "9999999999 years",
    ]) {
      await session.query("SELECT set_config('pg_task.plan', $1, false)", [evil]);
      await assert.rejects(session.query("INSERT INTO rights.task (input) VALUES ('')"), {
        code: "22007",
        hint: "Other expressions are allowed only in the configuration file.",
      });
    }
    await session.end();
    const { rows } = await client.query(
      "SELECT is_called AS called, (SELECT count(*)::int FROM rights.harm) AS harm FROM rights.calls",
    );
    assert.deepEqual(rows, [{ called: false, harm: 0 }]);
  });

  test("follows the settings again after its function was dropped", async () => {
    await plan("earlier");
    await client.query(`
      ALTER TABLE earlier.task ALTER COLUMN plan SET DEFAULT (now() + interval '1 hour');
      DROP FUNCTION earlier.task_planned(text);
      COMMENT ON TRIGGER task_ready_insert ON earlier.task IS
        E'pg-task plan now() + interval \\'1 hour\\'\\nshown as (now() + \\'01:00:00\\'::interval)'`);
    await plan("earlier", "now() + interval '1 hour'");
    assert.match((await columnDefault("earlier", "plan")) ?? "", /task_planned/);
    assert.equal(await inHours("earlier"), 1);
  });
});
