import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe } from "node:test";
import { functionStatement } from "../../../../src/manager/schema/schedulesView.sql.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { ensureTaskTable } from "../../../support/taskTables.js";

const database = await createDatabase("empty");
const { target } = database;
const client = await database.connect();

/** Writes rows as the manager does, which bypasses the checks of new and changed rows. */
async function asManager(sql: string): Promise<void> {
  await client.query("SET pgtask.manager = on");
  await client.query(sql);
  await client.query("RESET pgtask.manager");
}

async function rowsOf(sql: string): Promise<unknown[]> {
  return (await client.query(sql)).rows;
}

/** SQL of the coming times in UTC, as the text of an array. */
const next = `ARRAY(SELECT to_char(t AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') FROM unnest(next) AS t)::text AS next`;

const failedTries = (schema: string): string =>
  `SELECT id, failed_tries, try_error FROM ${schema}.task_schedules ORDER BY id`;

/** The statement of a version that had neither keys nor failed tries in the view. */
function withoutNewColumns(statement: string): string {
  const columns = ', "key" text, "failed_tries" integer, "try_error" text, "owed" text, "role" text)';
  const values = /, s\.key,\s+s\.failed_tries, s\.try_error, s\.owed, s\.role\n/;
  assert.ok(statement.includes(columns));
  assert.match(statement, values);
  return statement.replace(columns, ")").replace(values, "\n");
}

describe("task_schedules", () => {
  test("shows waiting and running rows with a rule or with repeat, and no others", async () => {
    await ensureTaskTable(target, { schema: "kinds" });
    await client.query(
      `INSERT INTO kinds.task (input, key, rule, zone, repeat, plan) VALUES
         (E'\\n SELECT 1\\nFROM x', 'yearly', '0 5 1 1 *', 'UTC', '0', now()), ('SELECT 2', NULL, NULL, NULL, '1 year', '2199-01-01 00:00+00'),
         ('SELECT 3', NULL, NULL, NULL, '0', '2199-01-01')`,
    );
    await asManager(
      `INSERT INTO kinds.task (input, rule, zone, repeat, plan, state, ready, take, owner) VALUES
         ('SELECT 4', '0 5 1 1 *', 'UTC', '0', '2020-01-01', 'WORK', NULL, now(), 'x'),
         ('SELECT 5', '0 5 1 1 *', 'UTC', '0', '2020-01-01', 'DONE', NULL, now(), NULL),
         ('SELECT 6', NULL, NULL, '1 day', '2020-01-01', 'STOP', NULL, NULL, NULL)`,
    );
    assert.deepEqual(
      await rowsOf(
        `SELECT id, key, "group", rule, zone, repeat::text, state, plan IS NULL AS unplanned, cardinality(next) AS times, paused, input
         FROM kinds.task_schedules ORDER BY id`,
      ),
      [
        { id: "1", key: "yearly", rule: "0 5 1 1 *", zone: "UTC", repeat: null, state: "PLAN", input: "SELECT 1" },
        { id: "2", rule: null, zone: null, repeat: "1 year", state: "PLAN", input: "SELECT 2" },
        { id: "4", rule: "0 5 1 1 *", zone: "UTC", repeat: null, state: "WORK", input: "SELECT 4" },
      ].map((row) => ({ key: null, group: "group", unplanned: false, times: 3, paused: false, ...row })),
    );
  });

  test("shows the coming times of rules, repetitions, moved plans and running tasks", async () => {
    await ensureTaskTable(target, { schema: "times" });
    await client.query(
      `INSERT INTO times.task (id, input, rule, zone, plan) VALUES
         (1, '', '30 2 * * *', 'Europe/Berlin', '2199-03-29 00:00+00'),
         (2, '', 'FREQ=YEARLY', 'UTC', '2199-05-06 07:00+00')`,
    );
    await client.query(
      `INSERT INTO times.task (id, input, repeat, plan, drift) VALUES
         (3, '', '1 mon', '2199-01-31 00:00+00', false), (4, '', '1 day', '2199-01-01 00:00+00', true),
         (5, '', '1 day', '2199-01-01 00:00+00', false)`,
    );
    // Only this run has been moved: the schedule goes on from the second day.
    await client.query("UPDATE times.task SET plan = '2199-01-01 12:00+00', due = '2199-01-02 00:00+00' WHERE id = 5");
    assert.deepEqual(await rowsOf(`SELECT id, ${next} FROM times.task_schedules ORDER BY id`), [
      { id: "1", next: '{"2199-03-29 01:30","2199-03-30 01:30","2199-03-31 01:00"}' },
      { id: "2", next: '{"2199-05-06 07:00","2200-05-06 07:00","2201-05-06 07:00"}' },
      { id: "3", next: '{"2199-01-31 00:00","2199-02-28 00:00","2199-03-31 00:00"}' },
      { id: "4", next: '{"2199-01-01 00:00"}' },
      { id: "5", next: '{"2199-01-01 12:00","2199-01-03 00:00","2199-01-04 00:00"}' },
    ]);
    // After a run that began long ago, times after now follow, or missed ones if they are made up for.
    await asManager(
      `INSERT INTO times.task (id, input, rule, zone, plan, state, ready, take, owner, catchup, active) VALUES
         (6, '', '0 0 1 1 *', 'UTC', '2000-01-01 00:00+00', 'WORK', NULL, now(), 'x', NULL, '100 years'),
         (7, '', '0 0 1 1 *', 'UTC', '2000-01-01 00:00+00', 'WORK', NULL, now(), 'x', true, '100 years')`,
    );
    assert.deepEqual(
      await rowsOf(`SELECT id, next[1] > now() AS after, cardinality(next) AS times, ${next} FROM times.task_schedules
        WHERE id = 7`),
      [{ id: "7", after: false, times: 3, next: '{"2001-01-01 00:00","2002-01-01 00:00","2003-01-01 00:00"}' }],
    );
    assert.deepEqual(
      await rowsOf(
        `SELECT next[1] > now() AND next[1] <= now() + interval '366 days' AS soon FROM times.task_schedules WHERE id = 6`,
      ),
      [{ soon: true }],
    );
  });

  test("shows what is paused: a schedule, its group, the table", async () => {
    await ensureTaskTable(target, { schema: "paused" });
    await client.query(
      `INSERT INTO paused.task (id, input, "group", rule, zone, plan) VALUES
         (1, '', 'a', '0 5 1 1 *', 'UTC', 'infinity'), (2, '', 'b', '0 5 1 1 *', 'UTC', '2199-01-01 00:00+00')`,
    );
    const paused = `SELECT id, paused, plan::text, cardinality(next) AS times FROM paused.task_schedules ORDER BY id`;
    const waiting = {
      id: "2",
      plan: (await rowsOf("SELECT '2199-01-01 05:00+00'::timestamptz::text AS plan"))[0],
      times: 3,
    };
    const halted = { id: "1", paused: true, plan: null, times: 0 };
    const plan = Object.values(waiting.plan ?? {})[0];
    assert.deepEqual(await rowsOf(paused), [halted, { ...waiting, plan, paused: false }]);
    await client.query(`INSERT INTO paused.task_pause ("group") VALUES ('b')`);
    assert.deepEqual(await rowsOf(paused), [halted, { ...waiting, plan, paused: true }]);
    await client.query(`UPDATE paused.task_pause SET "group" = NULL`);
    assert.deepEqual(await rowsOf(paused), [halted, { ...waiting, plan, paused: true }]);
  });

  test("shows the other schedules if one has an invalid rule, an unknown zone or extreme values", async () => {
    await ensureTaskTable(target, { schema: "invalid" });
    await client.query(
      `INSERT INTO invalid.task (id, input, rule, zone, plan) SELECT i, '', '0 5 1 1 *', 'UTC', '2199-01-01 00:00+00'
       FROM generate_series(1, 4) AS i`,
    );
    await asManager("UPDATE invalid.task SET zone = 'Mars/Base' WHERE id = 2");
    await asManager("UPDATE invalid.task SET rule = 'whenever' WHERE id = 3");
    await asManager("UPDATE invalid.task SET rule = 'SELECT now()', wait = -1 WHERE id = 4");
    await client.query(
      `INSERT INTO invalid.task (id, input, repeat, plan) VALUES
         (5, '', '9000 years', '290000-01-01'), (6, '', '1 microsecond', '4000-01-01 BC'), (7, '', '1 day', '-infinity'),
         (8, '', '-1 mon 30 days 1 microsecond', '2199-01-01'), (9, '', '-1 year 365 days 05:49:12', '2199-01-01')`,
    );
    assert.deepEqual(
      await rowsOf(
        `SELECT id, cardinality(next) AS times, plan IS NULL AS unplanned FROM invalid.task_schedules ORDER BY id`,
      ),
      [
        { id: "1", times: 3, unplanned: false },
        { id: "2", times: 1, unplanned: false },
        { id: "3", times: 1, unplanned: false },
        { id: "4", times: 0, unplanned: true },
        { id: "5", times: 1, unplanned: false },
        { id: "6", times: 3, unplanned: false },
        { id: "7", times: 1, unplanned: false },
        { id: "8", times: 1, unplanned: false },
        { id: "9", times: 3, unplanned: false },
      ],
    );
  });

  test("shows the previous run, but not a task that inserted the schedule", async () => {
    await ensureTaskTable(target, { schema: "last" });
    await asManager(
      `INSERT INTO last.task (id, parent, input, rule, zone, plan, state, ready, stop, error) VALUES
         (1, NULL, 'SELECT 1', '0 5 1 1 *', 'UTC', '2020-01-01', 'FAIL', NULL, '2020-01-02 00:00+00', E'ERROR:  no\\nmore'),
         (2, 1, 'SELECT 1', '0 5 1 1 *', 'UTC', '2199-01-01', 'PLAN', false, NULL, NULL),
         (3, NULL, 'INSERT', NULL, NULL, '2020-01-01', 'DONE', NULL, '2020-01-02 00:00+00', NULL),
         (4, 3, 'SELECT 1', '0 5 1 1 *', 'UTC', '2199-01-01', 'PLAN', false, NULL, NULL),
         (5, 404, 'SELECT 1', '0 5 1 1 *', 'UTC', '2199-01-01', 'PLAN', false, NULL, NULL)`,
    );
    // A changed schedule is recognized by its key.
    await asManager(
      `INSERT INTO last.task (id, parent, key, input, rule, zone, plan, state, ready, stop) VALUES
         (6, NULL, 'nightly', 'SELECT 1', '0 5 1 1 *', 'UTC', '2020-01-01', 'DONE', NULL, '2020-01-03 00:00+00'),
         (7, 6, 'nightly', 'SELECT 2', '0 6 1 1 *', 'UTC', '2199-01-01', 'PLAN', false, NULL),
         (8, 6, 'other', 'SELECT 2', '0 6 1 1 *', 'UTC', '2199-01-01', 'PLAN', false, NULL)`,
    );
    assert.deepEqual(
      await rowsOf(`SELECT id, last_id, last_state, to_char(last_stop AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS stop, last_error
        FROM last.task_schedules ORDER BY id`),
      [
        { id: "2", last_id: "1", last_state: "FAIL", stop: "2020-01-02", last_error: "ERROR:  no" },
        { id: "4", last_id: null, last_state: null, stop: null, last_error: null },
        { id: "5", last_id: null, last_state: null, stop: null, last_error: null },
        { id: "7", last_id: "6", last_state: "DONE", stop: "2020-01-03", last_error: null },
        { id: "8", last_id: null, last_state: null, stop: null, last_error: null },
      ],
    );
  });

  test("reads only rows of schedules, by index", async () => {
    await ensureTaskTable(target, { schema: "large" });
    await asManager(
      `INSERT INTO large.task (input, state, ready, plan, take, start, stop)
       SELECT '', 'DONE', NULL, now(), now(), now(), now() FROM generate_series(1, 40000)`,
    );
    await client.query(
      `INSERT INTO large.task (input, rule, zone) SELECT '', '0 5 1 1 *', 'UTC' FROM generate_series(1, 20)`,
    );
    await client.query("ANALYZE large.task");
    const plan = await rowsOf("EXPLAIN SELECT id, plan, last_state FROM large.task_schedules");
    assert.doesNotMatch(JSON.stringify(plan), /Seq Scan on task /);
    assert.match(JSON.stringify(plan), /Index Scan Backward using task_schedules_idx/);
  });

  test("gets the comments of this version when they have changed, although its function has not", async () => {
    const table = await ensureTaskTable(target, { schema: "told" });
    const rows = `told."${table.schedulesRows}"()`;
    const comment = `SELECT col_description('told.task_schedules'::regclass, attnum) AS plan FROM pg_attribute
      WHERE attrelid = 'told.task_schedules'::regclass AND attname = 'plan'`;
    const current = await rowsOf(comment);
    // Versions that had other comments took the digest of the function alone.
    const digest = createHash("sha256").update(functionStatement(table)).digest("hex").slice(0, 16);
    await client.query(`COMMENT ON FUNCTION ${rows} IS 'pg-task rows of a view ${digest}'`);
    await client.query("COMMENT ON COLUMN told.task_schedules.plan IS 'Planned time; null if paused or not yet known'");
    await ensureTaskTable(target, { schema: "told" });
    assert.deepEqual(await rowsOf(comment), current);
    // A comment that the user writes stays.
    await client.query("COMMENT ON COLUMN told.task_schedules.plan IS 'mine'");
    await ensureTaskTable(target, { schema: "told" });
    assert.deepEqual(await rowsOf(comment), [{ plan: "mine" }]);
  });

  test("shows how many tries of a waiting run have failed, and the last error", async () => {
    await ensureTaskTable(target, { schema: "tried" });
    await asManager(
      `INSERT INTO tried.task (id, input, repeat, plan, state, ready, take, owner, attempt, retry, error) VALUES
         (1, '', '1 day', '2199-01-01', 'PLAN', false, NULL, NULL, 2, 3, E'ERROR:  division by zero\\nSTATEMENT:  x'),
         (2, '', '1 day', 'infinity', 'PLAN', false, NULL, NULL, 1, 3, 'ERROR:  paused'),
         (3, '', '1 day', '2199-01-01', 'PLAN', false, NULL, NULL, NULL, 3, NULL),
         (4, '', '1 day', '2020-01-01', 'WORK', NULL, now(), 'x', 1, 3, NULL)`,
    );
    assert.deepEqual(await rowsOf(failedTries("tried")), [
      { id: "1", failed_tries: 2, try_error: "ERROR:  division by zero" },
      { id: "2", failed_tries: 1, try_error: "ERROR:  paused" },
      { id: "3", failed_tries: 0, try_error: null },
      { id: "4", failed_tries: 0, try_error: null },
    ]);
  });

  test("gets new columns, and keeps its privileges and the views that use it", async () => {
    const table = await ensureTaskTable(target, { schema: "fewer" });
    const rowsOfFewer = `fewer."${table.schedulesRows}"`;
    // As a version without the last columns has created it.
    await client.query(`DROP VIEW fewer.task_schedules; DROP FUNCTION ${rowsOfFewer}();
      ${withoutNewColumns(functionStatement(table))};
      COMMENT ON FUNCTION ${rowsOfFewer}() IS 'pg-task rows of a view 0123456789abcdef';
      CREATE VIEW fewer.task_schedules AS SELECT * FROM ${rowsOfFewer}();
      COMMENT ON VIEW fewer.task_schedules IS 'pg-task view: schedules';
      GRANT SELECT ON fewer.task_schedules TO PUBLIC;
      CREATE VIEW fewer.mine AS SELECT id FROM fewer.task_schedules`);
    await assert.rejects(client.query("SELECT key FROM fewer.task_schedules"), { code: "42703" });
    await ensureTaskTable(target, { schema: "fewer" });
    await client.query("INSERT INTO fewer.task (input, key, repeat, plan) VALUES ('', 'k', '1 day', 'infinity')");
    assert.deepEqual(await rowsOf("SELECT key, failed_tries, try_error FROM fewer.task_schedules"), [
      { key: "k", failed_tries: 0, try_error: null },
    ]);
    assert.deepEqual(await rowsOf("SELECT count(*) FROM fewer.mine"), [{ count: "1" }]);
    assert.deepEqual(
      await rowsOf(`SELECT count(*) FILTER (WHERE proname LIKE '%former%') AS former,
        has_table_privilege('pg_monitor', 'fewer.task_schedules', 'SELECT') AS granted,
        has_table_privilege('pg_monitor', 'fewer.task_owed', 'SELECT') AS owed
        FROM pg_proc WHERE pronamespace = 'fewer'::regnamespace`),
      [{ former: "0", granted: true, owed: true }],
    );
  });

  test("leaves a user's relation of its name alone, and creates dropped objects again", async () => {
    await client.query("CREATE SCHEMA taken; CREATE TABLE taken.task_schedules (mine integer)");
    await ensureTaskTable(target, { schema: "taken" });
    await client.query("SELECT mine FROM taken.task_schedules");
    await client.query("DROP TABLE taken.task_schedules; DROP INDEX taken.task_schedules_idx");
    await ensureTaskTable(target, { schema: "taken" });
    await client.query("SELECT next FROM taken.task_schedules");
    await client.query("DROP VIEW taken.task_schedules");
    await client.query(`DROP FUNCTION taken."${taskTable("taken", "task").schedulesRows}"()`);
    await ensureTaskTable(target, { schema: "taken" });
    await client.query("SELECT next FROM taken.task_schedules");
    assert.deepEqual(await rowsOf("SELECT to_regclass('taken.task_schedules_idx') IS NOT NULL AS index"), [
      { index: true },
    ]);
    // The view does not keep the table from being dropped.
    await client.query("DROP TABLE taken.task");
  });
});
