import assert from "node:assert/strict";
import { afterEach } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { Tasks, until } from "../../../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
const config = { url: database.url, "pg_task.sleep": 200, "pg_task.delete": false, "pg_task.share": "/" };

afterEach(async () => {
  await client.query("UPDATE task SET state = 'STOP' WHERE state IN ('PLAN', 'TAKE', 'WORK')");
  await pgTask.stop();
  await client.query("TRUNCATE task");
});

const stopOne = `UPDATE task SET state = 'STOP' WHERE id = (SELECT id FROM task WHERE state = 'WORK' AND "group" = 'a/0' LIMIT 1)`;

/** Inserts tasks of these users at once: all of a user in one group, or each in a group of its own. */
async function insert(users: readonly string[], count: number, input: string, kind: "wide" | "serial"): Promise<void> {
  await client.query(
    `INSERT INTO task ("group", max, input)
     SELECT u || '/' || CASE WHEN $4 THEN 0 ELSE i END, CASE WHEN $4 THEN 1000 ELSE 0 END, $3
     FROM unnest($1::text[]) AS u, generate_series(1, $2::integer) AS i ORDER BY u, i`,
    [users, count, input, kind === "wide"],
  );
}

const runningOf = `SELECT split_part("group", '/', 1) AS "user", count(*)::integer AS runs FROM task WHERE state = 'WORK' GROUP BY 1 ORDER BY 1`;

type Runs = readonly { readonly user: string; readonly runs: number }[];

const byUser = (rows: Runs): Record<string, number> =>
  Object.fromEntries(rows.map(({ user, runs: count }) => [user, count]));

const runs = (expected: Readonly<Record<string, number>>) =>
  until<Runs[number]>(client, runningOf, (rows) => isDeepStrictEqual(byUser(rows), expected));

/** Frees one of the sessions of `a`. It goes to `a` again if the manager does not know the other tasks yet. */
async function yieldTo(expected: Readonly<Record<string, number>>, sessions: number): Promise<void> {
  const areBusy = (rows: Runs): boolean => rows.reduce((sum, { runs: count }) => sum + count, 0) === sessions;
  for (;;) {
    await client.query(stopOne);
    const found = byUser(await until<Runs[number]>(client, runningOf, areBusy));
    if (found["a"] === (expected["a"] ?? 0) + 1) continue;
    assert.deepEqual(found, expected);
    return;
  }
}

test("a user with running tasks leaves the last sessions to others, in however many groups", async () => {
  for (const kind of ["wide", "serial"] as const) {
    await pgTask.start({ ...config, "pg_conf.max": 8 });
    await insert(["a"], 40, "SELECT pg_sleep(600)", kind);
    await runs({ a: 6 });
    const [one = "", two = ""] = await tasks.insert(
      { input: "SELECT pg_sleep(600)", group: "b/1" },
      { input: "SELECT pg_sleep(600)", group: "b/2" },
    );
    await tasks.running(one);
    // The second task of user b leaves the last session to user c.
    for (const group of ["c/1", "c/2", "c"]) assert.equal((await tasks.run("SELECT 1", { group })).state, "DONE");
    assert.equal((await tasks.row(two)).start, null);
    await client.query("UPDATE task SET state = 'STOP' WHERE state IN ('PLAN', 'TAKE', 'WORK')");
    await pgTask.stop();
  }
});

test("users get sessions by their weights, whatever the max of their tasks", async () => {
  const weighted = { ...config, "pg_conf.reserve": 0, "pg_task.weights": { b: 2, c: 4 } };
  await pgTask.start({ ...weighted, "pg_conf.max": 7 });
  await insert(["a"], 20, "SELECT pg_sleep(600)", "wide");
  await runs({ a: 7 });
  await insert(["b"], 20, "SELECT pg_sleep(600)", "serial");
  await insert(["c"], 20, "SELECT pg_sleep(600)", "serial");
  for (const expected of [
    { a: 6, b: 1 },
    { a: 5, b: 1, c: 1 },
    { a: 4, b: 1, c: 2 },
  ])
    await yieldTo(expected, 7);
  // More sessions are shared out in the same way.
  await pgTask.reload({ ...weighted, "pg_conf.max": 28 });
  await runs({ a: 4, b: 8, c: 16 });
});

test("with one session, users take turns", async () => {
  await pgTask.start({ ...config, "pg_conf.max": 1 });
  await insert(["a"], 40, "SELECT pg_sleep(0.05)", "serial");
  await until(client, "SELECT FROM task WHERE state = 'DONE' LIMIT 1", (rows) => rows.length > 0);
  await insert(["b"], 5, "SELECT pg_sleep(0.05)", "wide");
  await until(client, `SELECT FROM task WHERE state = 'DONE' AND "group" = 'b/0'`, (rows) => rows.length === 5);
  const { rows } = await client.query<{ ahead: number }>(
    `SELECT count(*)::integer AS ahead FROM task WHERE "group" LIKE 'a/%'
     AND start BETWEEN (SELECT min(start) FROM task WHERE "group" = 'b/0') AND (SELECT max(start) FROM task WHERE "group" = 'b/0')`,
  );
  const ahead = rows[0]?.ahead ?? 0;
  assert.ok(ahead >= 2 && ahead <= 8, `${ahead} tasks of user a between five of user b`);
});

test("a reload divides the tasks that run already, and ends the division", async () => {
  const { "pg_task.share": _, ...undivided } = config;
  await pgTask.start({ ...undivided, "pg_conf.max": 8 });
  await insert(["a"], 40, "SELECT pg_sleep(600)", "wide");
  await runs({ a: 6 });
  await pgTask.reload({ ...config, "pg_conf.max": 8 });
  await tasks.run("SELECT 1", { group: "b" });
  // Without shares, a group that runs nothing gets a reserved session. With them, the user must run nothing.
  const [other = ""] = await tasks.insert({ input: "SELECT pg_sleep(600)", group: "a/1" });
  await tasks.run("SELECT 1", { group: "b" });
  assert.equal((await tasks.row(other)).start, null);
  await pgTask.reload({ ...undivided, "pg_conf.max": 8 });
  await tasks.running(other);
});
