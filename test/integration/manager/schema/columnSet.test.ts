import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import { createDatabase } from "../../../support/database.js";
import { createRole } from "../../../support/taskTables.js";
import { columnList, columnsWith, isTaskColumn, taskColumns } from "../../../../src/shared/taskColumns.js";
import { projectPath } from "../../../support/project.js";
import { withConnectionTo } from "../../../support/connectTo.js";

const database = await createDatabase("task");
const client = await database.connect();
const docs = readFileSync(projectPath("docs/table.md"), "utf8");

/** Returns the cells of the first table under a heading of the documentation. */
function documented(heading: string): string[][] {
  const section = docs.split(`\n## ${heading}\n`)[1]?.split("\n## ")[0] ?? "";
  const lines = section.split("\n").filter((line) => line.startsWith("|"));
  return lines.slice(2).map((line) =>
    line
      .split("|")
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
}

const isParameter = new Set<string>(columnsWith({ default: "parameter" }));

const otherDefaults: Record<string, string> = {
  id: "nextval('task_id_seq'::regclass)",
  parent: "(NULLIF(NULLIF(current_setting('pg_task.id'::text, true), ''::text), '0'::text))::bigint",
  plan: `
CASE
    WHEN (NULLIF(current_setting('pg_task.plan'::text, true), ''::text) IS NULL) THEN statement_timestamp()
    ELSE task_planned(current_setting('pg_task.plan'::text, true))
END`,
  crash: "0",
  state: "'PLAN'::state",
  ready: "true",
  created: "statement_timestamp()",
  plain: "true",
  hash: `hashtext(("group" || COALESCE(remote, ''::text)))`,
};

interface Column {
  readonly name: string;
  readonly type: string;
  readonly nullable: boolean;
  readonly default: string | null;
  readonly generated: string;
  readonly comment: string | null;
}

const { rows: found } = await client.query<Column>(
  `SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type, NOT a.attnotnull AS nullable,
     pg_get_expr(d.adbin, d.adrelid) AS default, a.attgenerated AS generated,
     col_description(a.attrelid, a.attnum) AS comment
   FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
   WHERE a.attrelid = 'task'::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`,
);

describe("columns of the task table", () => {
  test("are those of the catalogue, in its order, with its types, and allow null where it says so", () => {
    assert.deepEqual(
      found.map(({ name, type, nullable }) => [name, type, nullable]),
      columnList.map(({ name, type, nullable = false }) => [name, type, nullable]),
    );
  });

  test("have the documented defaults", () => {
    assert.deepEqual(
      Object.fromEntries(
        found
          .filter(({ name, default: value }) => value !== null && !isParameter.has(name))
          .map(({ name, default: value }) => [name, value]),
      ),
      otherDefaults,
    );
    for (const { name, default: value } of found) {
      if (isParameter.has(name)) assert.match(value ?? "", new RegExp(`'pg_task\\.${name}'::text, true`));
    }
  });

  test("have a hash generated from group and remote", async () => {
    assert.equal(found.find(({ name }) => name === "hash")?.generated, "s");
    const { rows } = await client.query(
      `INSERT INTO task (input, "group", remote) VALUES ('', 'a', NULL), ('', 'a', 'b'), ('', 'ab', NULL)
       RETURNING hash = hashtext("group" || coalesce(remote, '')) AS right`,
    );
    assert.deepEqual(rows, [{ right: true }, { right: true }, { right: true }]);
    await assert.rejects(client.query("INSERT INTO task (input, hash) VALUES ('', 1)"), {
      // The SQLSTATE is not compared, because it is 42601 before PostgreSQL 14.
      message: /^cannot insert (?:into column|a non-DEFAULT value into column) "hash"$/,
    });
  });

  test("have comments, as has the table", async () => {
    for (const { name, comment } of found) {
      const { meaning } = isTaskColumn(name) ? taskColumns[name] : { meaning: "unknown" };
      assert.ok(comment?.toLowerCase().endsWith(meaning.toLowerCase()), `${name}: ${comment}`);
    }
    const { rows } = await client.query("SELECT obj_description('task'::regclass) AS comment");
    assert.ok(rows[0].comment);
  });

  test("include the enum state, with the states in order", async () => {
    const { rows } = await client.query("SELECT enum_range(NULL::state)::text AS states");
    assert.equal(rows[0].states, "{PLAN,TAKE,WORK,DONE,FAIL,GONE,STOP}");
  });
});

describe("checks of the task table", () => {
  for (const [column, value] of [
    ["active", "0 sec"],
    ["active", "-1 sec"],
    ["live", "-1 sec"],
    ["repeat", "-1 sec"],
    ["keep", "-1 sec"],
    ["timeout", "-1 ms"],
    ["count", "-1"],
    ["delimiter", "é"],
    ["escape", "é"],
    ["quote", "é"],
  ] as const) {
    test(`reject ${column} ${value}`, async () => {
      await assert.rejects(
        client.query(`INSERT INTO task (input, ${column}) VALUES ('', $1::text::${taskColumns[column].type})`, [value]),
        { code: "23514", constraint: "active > 0, live/repeat/timeout/keep/count >= 0, chars ASCII" },
      );
    });
  }

  for (const [column, value] of [
    ["active", "1 us"],
    ["live", "0"],
    ["repeat", "0"],
    ["keep", "0"],
    ["timeout", "0"],
    ["count", "0"],
    ["max", "-2147483648"],
    ["delimiter", "\x7f"],
    ["escape", "\x01"],
    ["quote", ""],
  ] as const) {
    test(`accept ${column} ${JSON.stringify(value)}`, async () => {
      const { rowCount } = await client.query(
        `INSERT INTO task (input, ${column}) VALUES ('', $1::text::${taskColumns[column].type})`,
        [value],
      );
      assert.equal(rowCount, 1);
    });
  }

  for (const column of ["input", "plan", "null", "state", "max"]) {
    test(`reject a null ${column}`, async () => {
      const rest = column === "input" ? "" : ", input";
      await assert.rejects(client.query(`INSERT INTO task ("${column}"${rest}) VALUES (NULL${rest && ", ''"})`), {
        code: "23502",
        column,
      });
    });
  }

  test("reject a null group", async () => {
    await assert.rejects(client.query(`INSERT INTO task (input, "group") VALUES ('', NULL)`), {
      code: "23502",
      // docs/table.md says why the server names this column.
      column: "hash",
    });
  });
});

test("the task table has its primary key and its seven partial indexes", async () => {
  const { rows } = await client.query<{ index: string }>(
    "SELECT pg_get_indexdef(indexrelid) AS index FROM pg_index WHERE indrelid = 'task'::regclass AND indisvalid ORDER BY 1",
  );
  assert.deepEqual(
    rows.map(({ index }) => index),
    [
      "CREATE INDEX task_alone_idx ON public.task USING btree (plan) WHERE ((alone IS NOT NULL) AND (ready IS NOT NULL))",
      "CREATE INDEX task_due_idx ON public.task USING btree (hash, GREATEST(max, 0) DESC, id) WHERE ready",
      "CREATE INDEX task_hold_idx ON public.task USING btree (id) WHERE ((wait > 0) AND (ready IS NOT NULL))",
      "CREATE INDEX task_keep_idx ON public.task USING btree (id) WHERE (keep > '00:00:00'::interval)",
      "CREATE INDEX task_plan_idx ON public.task USING btree (plan) WHERE (NOT ready)",
      "CREATE INDEX task_schedules_idx ON public.task USING btree (ready, take) WHERE COALESCE(((rule IS NOT NULL) OR (repeat > '00:00:00'::interval)), false)",
      "CREATE UNIQUE INDEX task_key_idx ON public.task USING btree (key) WHERE ((key IS NOT NULL) AND (ready IS NOT NULL))",
      "CREATE UNIQUE INDEX task_pkey ON public.task USING btree (id)",
    ],
  );
});

test("the task table has its six triggers", async () => {
  const { rows } = await client.query<{ name: string; function: string }>(
    "SELECT tgname AS name, tgfoid::regproc::text AS function FROM pg_trigger WHERE tgrelid = 'task'::regclass ORDER BY 1",
  );
  assert.deepEqual(rows, [
    { name: "task_options_insert", function: "task_options" },
    { name: "task_options_update", function: "task_options" },
    { name: "task_own_delete", function: "task_wake_up" },
    { name: "task_ready_insert", function: "task_ready" },
    { name: "task_ready_update", function: "task_ready" },
    { name: "task_wake_up", function: "task_wake_up" },
  ]);
});

describe("docs/table.md", () => {
  test("lists the columns as in the catalog", () => {
    assert.deepEqual(
      documented("Columns").map(([name, type, nullable]) => [name, type, nullable]),
      found.map(({ name, type, nullable }) => [`\`${name}\``, type, nullable ? "yes" : "no"]),
    );
  });

  test("gives the defaults as in the catalog", () => {
    const said = Object.fromEntries(
      documented("Columns").map(([name = "", , , value = ""]) => [name.replaceAll("`", ""), value]),
    );
    for (const { name, default: value } of found) {
      if (isParameter.has(name)) assert.equal(said[name], "parameter", name);
      else if (value === null) assert.equal(said[name], "", name);
      else assert.notEqual(said[name], "", name);
    }
    assert.equal(said["crash"], otherDefaults["crash"]);
    assert.equal(said["ready"], otherDefaults["ready"]);
    assert.equal(said["plain"], otherDefaults["plain"]);
    assert.equal(said["state"], "PLAN");
  });

  test("lists the states of the enum", async () => {
    const { rows } = await client.query("SELECT enum_range(NULL::state)::text AS states");
    assert.equal(
      `{${documented("States")
        .map(([name]) => name)
        .join(",")}}`,
      rows[0].states,
    );
  });

  test("states the bounds of every check", () => {
    const bounds = documented("Columns").filter(([, , , , meaning]) => /above 0|not below 0|ASCII/.test(meaning ?? ""));
    assert.deepEqual(
      bounds.map(([name]) => name?.replaceAll("`", "")),
      ["active", "live", "repeat", "timeout", "count", "delimiter", "escape", "quote", "keep"],
    );
  });
});

test("docs/troubleshooting.md lists all rights that a producer needs", async () => {
  const page = readFileSync(projectPath("docs/troubleshooting.md"), "utf8");
  const grants = /```sql\n(GRANT[^`]+)```/.exec(page)?.[1] ?? "";
  const role = await createRole(client, `producer_${randomBytes(4).toString("hex")}`);
  await client.query("REVOKE ALL ON SCHEMA public FROM PUBLIC");
  const target = { ...database.target, user: role };
  const insert = () =>
    withConnectionTo(target, (producer) => producer.query("INSERT INTO task (input) VALUES ('SELECT 1')"));
  await assert.rejects(insert, /relation "task" does not exist/);
  const statements = grants.replaceAll("producer", role).trim().split("\n");
  assert.match(statements.pop() ?? "", /SELECT \(id\)/);
  assert.equal(statements.length, 3);
  for (const statement of statements) {
    await assert.rejects(insert);
    await client.query(statement);
  }
  assert.equal((await insert()).rowCount, 1);
  await assert.rejects(
    withConnectionTo(target, (producer) => producer.query("SELECT FROM task")),
    { code: "42501" },
  );
});
