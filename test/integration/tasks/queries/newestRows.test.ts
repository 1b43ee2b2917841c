import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { readColumnDefaults } from "../../../../src/tasks/queries/columnDefaults.js";
import { readErrorGroups, readHourlyRuns } from "../../../../src/tasks/queries/history.js";
import { listTasks, type TaskList } from "../../../../src/tasks/queries/listTasks.js";
import { createDatabase } from "../../../support/database.js";

const database = await createDatabase();
const client = await database.connect();
const table = taskTable("public", "task");

const total = (values: readonly number[]): number => values.reduce((all, one) => all + one, 0);
const once = (): boolean => true;
const ids = ({ tasks }: TaskList): string[] => tasks.map(({ id }) => id);

beforeEach(() => client.query("TRUNCATE task RESTART IDENTITY"));

/** Inserts rows that have ended, one every 20 seconds, with errors of seven kinds in every third row. */
const insertEnded = async (count: number): Promise<void> => {
  await client.query(
    `INSERT INTO task (input, state, plan, start, stop, error)
     SELECT 'SELECT 1', CASE WHEN i % 3 = 0 THEN 'FAIL' ELSE 'DONE' END::state, at - interval '2 s', at, at + i % 50 * interval '10 ms',
       CASE WHEN i % 3 = 0 THEN 'ERROR:  kind ' || i % 7 || E'\\nDETAIL:  row ' || i END
     FROM generate_series(1, $1) AS i, LATERAL (SELECT now() - (i * interval '20 s') AS at) AS t`,
    [count],
  );
};

test("errors are grouped as in the view, over several windows", async () => {
  await insertEnded(9_000);
  const { errors, scanned, complete, more } = await readErrorGroups(client, table, 100, () => false);
  assert.deepEqual([scanned, complete, more], [9_000, true, false]);
  const { rows } = await client.query(
    `SELECT * FROM (
       SELECT error, 'FAIL' AS state, NULL AS role, count::float8, (
         SELECT to_json(min(t.stop)) #>> '{}' FROM task AS t WHERE split_part(t.error, E'\\n', 1) = e.error
       ) AS "firstSeen", to_json(last_seen) #>> '{}' AS "lastSeen", (
         SELECT t.id::text FROM task AS t WHERE split_part(t.error, E'\\n', 1) = e.error ORDER BY t.stop DESC LIMIT 1
       ) AS "lastId" FROM task_errors AS e
     ) AS found ORDER BY count DESC, "lastId"::bigint DESC`,
  );
  assert.equal(rows.length, 7);
  assert.deepEqual(errors, rows);
  const few = await readErrorGroups(client, table, 2, () => false);
  assert.deepEqual([few.errors, few.more], [rows.slice(0, 2), true]);
});

test("a scan that ends early says so", async () => {
  await insertEnded(9_000);
  const { scanned, complete } = await readErrorGroups(client, table, 100, () => true);
  assert.ok(scanned > 0 && scanned < 9_000);
  assert.equal(complete, false);
});

test("the runs of each hour are those of the view, and percentiles are near the true ones", async () => {
  await insertEnded(9_000);
  await client.query("INSERT INTO task (input) VALUES ('SELECT 1')");
  const { hours, scanned, complete } = await readHourlyRuns(client, table, 48, () => false);
  assert.deepEqual([scanned, complete, hours.length], [9_001, true, 48]);
  const { rows } = await client.query<{ at: number; count: number; failed: number; max: number; p95: number }>(
    `SELECT date_part('epoch', hour) AS at, count::float8, failed::float8, date_part('epoch', max) AS max,
       date_part('epoch', p95) AS p95 FROM task_stats WHERE hour > date_trunc('hour', now()) - interval '48 hours' ORDER BY 1`,
  );
  assert.ok(rows.length > 40);
  for (const row of rows) {
    const hour = hours.find(({ at }) => at === row.at);
    assert.ok(hour !== undefined);
    const { count, failed, runMax, runP95, waitP50, waitP95 } = hour;
    assert.deepEqual({ count, failed, runMax }, { count: row.count, failed: row.failed, runMax: row.max });
    for (const [found, expected] of [
      [runP95, row.p95],
      [waitP50, 2],
      [waitP95, 2],
    ] as const) {
      assert.ok(found !== null && found > expected / 1.25 && found < expected * 1.25, `${found} for ${expected}`);
    }
  }
  const first = rows[0]?.at ?? 0;
  assert.ok(hours.filter(({ at }) => at < first).every(({ count, runP95 }) => count === 0 && runP95 === null));
});

test("hours count what the view counts if times are missing or infinite", async () => {
  await client.query(
    `INSERT INTO task (input, state, plan, start, stop) VALUES
     ('SELECT 1', 'DONE', '-infinity', now() - interval '1 s', now()),
     ('SELECT 1', 'FAIL', now(), NULL, now()), ('SELECT 1', 'STOP', now(), now(), now())`,
  );
  const { hours } = await readHourlyRuns(client, table, 2, () => false);
  assert.deepEqual(
    [total(hours.map(({ count }) => count ?? 0)), total(hours.map(({ failed }) => failed ?? 0))],
    [2, 1],
  );
});

test("hours whose rows were not read are unknown, and the present one is not over", async () => {
  await client.query("TRUNCATE task");
  await client.query(
    `INSERT INTO task (input, state, plan, start, stop)
     SELECT 'SELECT 1', 'DONE', t.at, t.at, t.at FROM (SELECT now() - (30000 - i) * interval '2 s' AS at FROM generate_series(1, 30000) AS i) AS t`,
  );
  const part = await readHourlyRuns(client, table, 24, () => true);
  assert.equal(part.complete, false);
  const known = part.hours.filter(({ count }) => count !== null);
  assert.ok(known.length > 0 && known.length < 10, String(known.length));
  assert.ok(part.hours.slice(0, -known.length).every(({ count, failed }) => count === null && failed === null));
  assert.equal(known[0]?.complete, false);
  const all = await readHourlyRuns(client, table, 24, () => false);
  assert.deepEqual(
    all.hours.map(({ complete, count }) => [complete, count !== null]),
    all.hours.map((_, place) => [place < 23, true]),
  );
});

test("the last task of an error is the one that was seen last", async () => {
  await client.query("TRUNCATE task RESTART IDENTITY");
  await client.query(
    `INSERT INTO task (input, state, plan, start, stop, error) VALUES
     ('SELECT 1', 'FAIL', now(), now(), '2026-01-02', 'ERROR:  no'), ('SELECT 2', 'FAIL', now(), now(), '2026-01-01', 'ERROR:  no')`,
  );
  const { errors } = await readErrorGroups(client, table, 10, () => false);
  assert.deepEqual(
    errors.map(({ lastId, lastSeen, count }) => [lastId, lastSeen?.slice(0, 10), count]),
    [["1", "2026-01-02", 2]],
  );
});

test("waiting tasks are found among many others by their indexes, in pages", async () => {
  await client.query(
    `INSERT INTO task (input, plan, "group") SELECT 'SELECT ' || i, now() + (i % 2) * interval '1 day', 'group ' || i % 4
     FROM generate_series(1, 8) AS i`,
  );
  await insertEnded(30_000);
  const plan = { filter: { states: ["PLAN"] as const }, limit: 3, characters: 10 };
  const first = await listTasks(client, table, plan, once);
  assert.deepEqual([ids(first), first.next], [["8", "7", "6"], "6"]);
  const second = await listTasks(client, table, { ...plan, before: "6" }, once);
  assert.deepEqual([ids(second), second.next], [["5", "4", "3"], "3"]);
  const last = await listTasks(client, table, { ...plan, before: "3" }, once);
  assert.deepEqual([ids(last), last.next], [["2", "1"], null]);
  const grouped = await listTasks(client, table, { ...plan, filter: { states: ["PLAN"], group: "group 1" } }, once);
  assert.deepEqual([ids(grouped), grouped.next], [["5", "1"], null]);
  const oldest = await listTasks(client, table, { ...plan, oldestFirst: true }, once);
  assert.deepEqual([ids(oldest), oldest.next], [["1", "2", "3"], "3"]);
  const newer = await listTasks(client, table, { ...plan, oldestFirst: true, after: "3" }, once);
  assert.deepEqual([ids(newer), newer.next], [["4", "5", "6"], "6"]);
  await client.query("DELETE FROM task WHERE id <= 8");
  const none = await listTasks(client, table, plan, once);
  assert.deepEqual([ids(none), none.next], [[], null]);
  assert.ok(none.scanned < 30_000);
});

test("the task that waits with a key is found by the index of keys, however many others wait", async () => {
  await client.query(
    `INSERT INTO task (input, key) VALUES ('SELECT 1', 'report');
     INSERT INTO task (input, key, plan) SELECT 'SELECT 2', 'report ' || i, now() + i % 2 * interval '1 day' FROM generate_series(1, 45000) AS i`,
  );
  const request = { filter: { states: ["PLAN"] as const, key: "report" }, limit: 3, characters: 10 };
  const found = await listTasks(client, table, request);
  assert.deepEqual([ids(found), found.next], [["1"], null]);
  assert.ok(found.scanned < 45_000, String(found.scanned));
  const other = await listTasks(client, table, { ...request, filter: { ...request.filter, group: "none" } });
  assert.deepEqual([ids(other), other.next], [[], null]);
});

test("the defaults of a table's columns are read if they are constant", async () => {
  await client.query(
    `CREATE DOMAIN span AS interval;
     ALTER TABLE task ADD COLUMN span span DEFAULT coalesce(nullif(current_setting('pg_task.timeout', true), ''), '1 s')::span;
     ALTER TABLE task ADD COLUMN fixed text DEFAULT 'it''s', ADD COLUMN none integer, ADD COLUMN moment timestamptz DEFAULT now(),
       ADD COLUMN flag boolean DEFAULT true, ADD COLUMN list jsonb DEFAULT '[1]'::jsonb, ADD COLUMN below integer DEFAULT -5`,
  );
  // As on pg-task's own connections, where the names of users' types are qualified.
  await client.query("SET search_path = pg_catalog, pg_temp");
  const defaults = await readColumnDefaults(client, table);
  assert.equal(defaults.get("span"), "00:00:01");
  const own = ["fixed", "none", "flag", "list", "below"].map((name) => defaults.get(name));
  assert.deepEqual(own, ["it's", null, true, [1], -5]);
  for (const name of ["moment", "id", "plan"]) assert.equal(defaults.has(name), false, name);
  assert.equal(defaults.get("group"), "group");
  assert.equal(defaults.get("timeout"), "00:00:00");
  await client.query("SET pg_task.timeout TO '5 s'");
  assert.equal((await readColumnDefaults(client, table)).get("timeout"), "00:00:05");
  await client.query("RESET pg_task.timeout; RESET search_path");
});
