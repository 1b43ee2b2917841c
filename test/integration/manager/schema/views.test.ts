import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { describe } from "node:test";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { connectClient, type Client } from "../../../../src/shared/postgres/client.js";
import { identifier } from "../../../../src/shared/postgres/quoting.js";
import { createDatabase, serverMajor } from "../../../support/database.js";
import {
  extensionTable,
  userEnumTable,
  userTable,
  partitionedById,
  partitionedByPlan,
} from "../../../support/foreignTables.js";
import { test } from "../../../support/limitedTest.js";
import { projectPath } from "../../../support/project.js";
import { createRole, ensureTaskTable } from "../../../support/taskTables.js";
import { connectTo } from "../../../support/connectTo.js";

const database = await createDatabase("empty");
const { target } = database;
const client = await database.connect();

async function insertRuns(qualified: string, seconds: readonly number[]): Promise<void> {
  await client.query(
    `INSERT INTO ${qualified} (input, state, start, stop, error)
     SELECT 'SELECT 1', CASE WHEN s > 50 THEN 'FAIL' ELSE 'DONE' END::state_of_table,
       '2024-05-06 07:00:00+00', '2024-05-06 07:00:00+00'::timestamptz + make_interval(secs => s),
       CASE WHEN s > 50 THEN 'ERROR:  too slow' || E'\\nSTATEMENT:  SELECT ' || s END
     FROM unnest($1::float8[]) AS s`.replace("state_of_table", await typeOf(qualified, "state")),
    [seconds],
  );
}

async function typeOf(qualified: string, column: string): Promise<string> {
  const { rows } = await client.query<{ type: string }>(
    `SELECT format_type(atttypid, atttypmod) AS type FROM pg_attribute WHERE attrelid = $1::regclass AND attname = $2`,
    [qualified, column],
  );
  return rows[0]?.type ?? "";
}

async function rowsOf(sql: string, on: Client = client): Promise<unknown[]> {
  return (await on.query(sql)).rows;
}

/** Opens connections like those of sessions that run tasks of these groups. Returns a function that closes them. */
async function sessionsOf(schema: string, ...groupNames: readonly string[]): Promise<() => Promise<void>> {
  const sessions = await Promise.all(
    groupNames.map((group) => connectClient(target, { applicationName: `pg_task ${schema} task ${group}` })),
  );
  return async () => void (await Promise.all(sessions.map((session) => session.end())));
}

describe("task_stats", () => {
  test("shows runs and run times by hour", async () => {
    await ensureTaskTable(target, { schema: "stats" });
    await insertRuns(
      "stats.task",
      Array.from({ length: 100 }, (_, i) => i + 1),
    );
    await client.query(
      `INSERT INTO stats.task (input, state, start, stop) VALUES
         ('', 'DONE', '2024-05-06 08:59:59+00', '2024-05-06 09:00:00+00'),
         ('', 'GONE', '2024-05-06 07:00:00+00', '2024-05-06 07:00:00+00'),
         ('', 'STOP', '2024-05-06 07:00:00+00', '2024-05-06 07:30:00+00'), ('', 'PLAN', NULL, NULL)`,
    );
    assert.deepEqual(
      await rowsOf(
        `SELECT to_char(hour AT TIME ZONE 'UTC', 'HH24:MI') AS hour, count, failed, total::text,
           mean::text, max::text, p95::text FROM stats.task_stats ORDER BY 1`,
      ),
      [
        {
          hour: "07:00",
          count: "100",
          failed: "50",
          total: "01:24:10",
          mean: "00:00:50.5",
          max: "00:01:40",
          p95: "00:01:35.05",
        },
        {
          hour: "09:00",
          count: "1",
          failed: "0",
          total: "00:00:01",
          mean: "00:00:01",
          max: "00:00:01",
          p95: "00:00:01",
        },
      ],
    );
  });
});

describe("task_errors", () => {
  test("counts errors by first line, with the task that ended last", async () => {
    await ensureTaskTable(target, { schema: "errors" });
    await insertRuns("errors.task", [1, 51, 60, 52]);
    await client.query(`INSERT INTO errors.task (input, state, stop, error) VALUES ('', 'GONE', '2024-01-01', $1)`, [
      "x".repeat(3000),
    ]);
    assert.deepEqual(
      await rowsOf(
        `SELECT left(error, 30) AS error, length(error) AS length, count,
           to_char(last_seen AT TIME ZONE 'UTC', 'MI:SS') AS last, last_id FROM errors.task_errors ORDER BY count DESC`,
      ),
      [
        { error: "ERROR:  too slow", length: 16, count: "3", last: "01:00", last_id: "3" },
        { error: "x".repeat(30), length: 1000, count: "1", last: "00:00", last_id: "5" },
      ],
    );
  });
});

describe("task_groups", () => {
  const groups = `SELECT "group", running, waiting, due, to_char(oldest AT TIME ZONE 'UTC', 'YYYY') AS oldest, paused
    FROM groups.task_groups ORDER BY "group"`;

  test("shows running, waiting and paused tasks of this table's groups only", async () => {
    await ensureTaskTable(target, { schema: "groups" });
    await client.query(
      `INSERT INTO groups.task (input, "group", plan, state, owner, remote) VALUES
         ('', 'a', '2020-01-01', 'PLAN', NULL, NULL), ('', 'a', '2021-01-01', 'PLAN', NULL, 'host=b'),
         ('', 'a', '2999-01-01', 'PLAN', NULL, NULL), ('', 'a', '2019-01-01', 'WORK', 'me', NULL),
         ('', 'a', '2019-01-01', 'TAKE', 'me', NULL), ('', 'b', '2019-01-01', 'WORK', 'you', NULL),
         ('', 'done', '2019-01-01', 'DONE', NULL, NULL), ('', 'stopped', '2019-01-01', 'STOP', NULL, NULL)`,
    );
    await client.query(`INSERT INTO groups.task_pause ("group") VALUES ('b'), ('empty')`);
    const end = await sessionsOf("groups", "a", "a", "b", "only runs");
    const idle = await connectClient(target, { applicationName: "pg_task groups task" });
    assert.deepEqual(await rowsOf(groups), [
      { group: "a", running: "2", waiting: "3", due: "2", oldest: "2020", paused: false },
      { group: "b", running: "1", waiting: "0", due: "0", oldest: null, paused: true },
      { group: "empty", running: "0", waiting: "0", due: "0", oldest: null, paused: true },
      { group: "only runs", running: "1", waiting: "0", due: "0", oldest: null, paused: false },
    ]);
    await idle.end();
    await end();
  });

  test("finds the group of a session whose name the server truncates or escapes", async () => {
    const schema = "grüppchen";
    await ensureTaskTable(target, { schema });
    const names = ["plain", "", "größe\t", "ü".repeat(40), "x".repeat(80)];
    await client.query(
      `INSERT INTO ${schema}.task (input, "group", plan) SELECT '', g, 'infinity' FROM unnest($1::text[]) AS g`,
      [names],
    );
    const end = await sessionsOf(schema, ...names);
    const found = await client.query<{ group: string; running: string }>(
      `SELECT "group", running FROM ${schema}.task_groups`,
    );
    assert.deepEqual(
      found.rows.toSorted((a, b) => names.indexOf(a.group) - names.indexOf(b.group)),
      names.map((group) => ({ group, running: "1" })),
    );
    await end();
  });

  test("reads no finished rows", async () => {
    await ensureTaskTable(target, { schema: "ended" });
    await client.query(
      `INSERT INTO ended.task (input, state) SELECT '', 'DONE' FROM generate_series(1, 20000);
       INSERT INTO ended.task (input, plan) SELECT '', now() + i * interval '1 hour' FROM generate_series(-9, 10) AS i`,
    );
    await client.query("VACUUM ANALYZE ended.task");
    const reader = await connectTo(target);
    await reader.query("BEGIN");
    assert.deepEqual(await rowsOf("SELECT waiting, due FROM ended.task_groups", reader), [
      { waiting: "20", due: "10" },
    ]);
    const { rows } = await reader.query<{ whole: string; fetched: string }>(
      `SELECT seq_tup_read AS whole, idx_tup_fetch AS fetched FROM pg_stat_xact_all_tables
       WHERE relid = 'ended.task'::regclass`,
    );
    assert.deepEqual(rows, [{ whole: "0", fetched: "20" }]);
    await reader.end();
  });

  test("shows every group as paused when the whole table is", async () => {
    await client.query("INSERT INTO groups.task_pause DEFAULT VALUES");
    const paused = await rowsOf(`SELECT DISTINCT paused FROM groups.task_groups`);
    assert.deepEqual(paused, [{ paused: true }]);
  });
});

describe("the views", () => {
  for (const [what, make] of [
    ["the extension's", extensionTable],
    ["a user's own with other types", userTable],
    ["one whose state is an enum of its own", userEnumTable],
    ["one partitioned by id", partitionedById],
    ["one partitioned by plan", partitionedByPlan],
  ] as const) {
    test(`work with an adopted table: ${what}`, async () => {
      const schema = `adopted_${what.replaceAll(/\W+/g, "_")}`;
      await client.query(make(schema));
      await ensureTaskTable(target, { schema });
      await client.query(`ALTER TABLE ${schema}.task ALTER COLUMN state SET DEFAULT 'PLAN'`);
      await client.query(
        `INSERT INTO ${schema}.task (id, input, plan, error) VALUES (7, 'SELECT 1', '2020-01-01', E'ERROR:  no\\nmore')`,
      );
      await insertRuns(`${schema}.task`, [10, 20]);
      assert.deepEqual(await rowsOf(`SELECT count FROM ${schema}.task_stats`), [{ count: "2" }]);
      assert.deepEqual(await rowsOf(`SELECT error, last_id FROM ${schema}.task_errors`), [
        { error: "ERROR:  no", last_id: "7" },
      ]);
      assert.deepEqual(await rowsOf(`SELECT waiting, due FROM ${schema}.task_groups`), [{ waiting: "1", due: "1" }]);
    });
  }

  for (const table of ['a"; DROP TABLE b; --', "ü".repeat(31), "$function$ $$ E'\\ %I"]) {
    test(`are quoted and distinct for a table named ${table}`, async () => {
      const names = taskTable("sch 'e\\ma\"", table);
      await ensureTaskTable(target, { schema: names.schema, table });
      for (const name of [names.statsView, names.errorsView, names.groupsView]) {
        await rowsOf(`SELECT * FROM ${identifier(names.schema)}.${identifier(name)}`);
      }
    });
  }

  test("have comments, as have their columns", async () => {
    await ensureTaskTable(target, { schema: "comments" });
    const { rows } = await client.query<{ name: string; text: string | null }>(
      `SELECT concat_ws('.', c.relname, a.attname) AS name, col_description(c.oid, a.attnum) AS text
       FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
       WHERE c.relnamespace = 'comments'::regnamespace AND c.relkind = 'v'
       UNION ALL SELECT relname, obj_description(oid, 'pg_class') FROM pg_class
       WHERE relnamespace = 'comments'::regnamespace AND relkind = 'v' ORDER BY 1`,
    );
    assert.equal(rows.length, 4 + 7 + 4 + 6 + 21);
    assert.deepEqual(
      rows.filter(({ text }) => text === null),
      [],
    );
  });

  test("obey row-level security", async () => {
    await ensureTaskTable(target, { schema: "secured" });
    const role = await createRole(client, `reader_${target.database}`);
    await client.query(
      `INSERT INTO secured.task (input, "group") VALUES ('', 'mine'), ('', 'yours');
       GRANT USAGE ON SCHEMA secured TO ${role};
       GRANT SELECT ON ALL TABLES IN SCHEMA secured TO ${role};
       ALTER TABLE secured.task ENABLE ROW LEVEL SECURITY;
       CREATE POLICY own ON secured.task USING ("group" = 'mine')`,
    );
    const reader = await connectTo({ ...target, user: role });
    try {
      const groups = `SELECT "group" FROM secured.task_groups`;
      assert.deepEqual(await rowsOf(groups, reader), [{ group: "mine" }]);
      await client.query(`REVOKE SELECT ON secured.task FROM ${role}`);
      await assert.rejects(rowsOf(groups, reader), { code: "42501" });
    } finally {
      await reader.end();
    }
    const { rows } = await client.query<{ options: string[] | null }>(
      "SELECT reloptions AS options FROM pg_class WHERE oid = 'secured.task_stats'::regclass",
    );
    const expected = (await serverMajor()) >= 15 ? ["security_invoker=true"] : null;
    assert.deepEqual(rows, [{ options: expected }]);
  });

  test("need no more privileges than the documentation lists", async () => {
    await ensureTaskTable(target, { schema: "granted" });
    const role = await createRole(client, `columns_${target.database}`);
    const documented =
      /```sql\n(GRANT SELECT[^`]+)```/.exec(await readFile(projectPath("docs/views.md"), "utf8"))?.[1] ?? "";
    const columns = /\(([^)]+)\)/.exec(documented)?.[1]?.split(",") ?? [];
    await client.query(
      `INSERT INTO granted.task (input, key, rule) VALUES ('', 'k', '0 5 * * *');
       GRANT USAGE ON SCHEMA granted TO ${role}; SET search_path = granted;
       ${documented.replaceAll("reader", role)} RESET search_path`,
    );
    const reader = await connectTo({ ...target, user: role });
    try {
      const readAll = async (): Promise<void> => {
        for (const view of ["stats", "errors", "groups", "schedules"])
          await rowsOf(`TABLE granted.task_${view}`, reader);
      };
      await readAll();
      await assert.rejects(rowsOf("SELECT remote FROM granted.task", reader), { code: "42501" });
      assert.ok(columns.length > 20);
      for (const column of columns) {
        await client.query(`REVOKE SELECT (${column}) ON granted.task FROM ${role}`);
        await assert.rejects(readAll(), { code: "42501" }, column);
        await client.query(`GRANT SELECT (${column}) ON granted.task TO ${role}`);
      }
    } finally {
      await reader.end();
    }
  });

  test("do not prevent dropping the table or changing its columns", async () => {
    await ensureTaskTable(target, { schema: "free" });
    await client.query("ALTER TABLE free.task ALTER COLUMN error TYPE varchar");
    assert.deepEqual(await rowsOf("SELECT * FROM free.task_errors"), []);
    await client.query("DROP TABLE free.task");
    await ensureTaskTable(target, { schema: "free" });
    assert.deepEqual(await rowsOf("SELECT * FROM free.task_groups"), []);
  });

  for (const [what, statement] of [
    ["table", "CREATE TABLE taken.task_errors (mine integer)"],
    ["view", "CREATE VIEW taken.task_errors AS SELECT 1 AS mine"],
    ["type", "CREATE DOMAIN taken.task_errors AS integer"],
  ] as const) {
    test(`leave a ${what} with the name of one of them alone`, async () => {
      await client.query(`DROP SCHEMA IF EXISTS taken CASCADE; CREATE SCHEMA taken; ${statement}`);
      await ensureTaskTable(target, { schema: "taken" });
      if (what !== "type") await rowsOf("SELECT mine FROM taken.task_errors");
      assert.deepEqual(await rowsOf("SELECT * FROM taken.task_stats"), []);
    });
  }

  test("are inlined: conditions on the hour are pushed down", async () => {
    await ensureTaskTable(target, { schema: "inlined" });
    const { rows } = await client.query<{ "QUERY PLAN": string }>(
      "EXPLAIN SELECT count FROM inlined.task_stats WHERE hour > now() - interval '1 day'",
    );
    const plan = rows.map((row) => row["QUERY PLAN"]).join("\n");
    assert.match(plan, /Scan on task|Scan using .* on task/);
    assert.doesNotMatch(plan, /Function Scan/);
  });
});
