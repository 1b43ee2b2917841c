import assert from "node:assert/strict";
import { eventually, until } from "../../support/tasks.js";
import { test } from "../../support/limitedTest.js";
import { serve } from "../../support/serve.js";

/**
 * Kinds of tasks, and what is expected of them. `#` stands for the task's number. The output and the error are regular
 * expressions for the server.
 */
const kinds: readonly (readonly [
  input: string,
  state: "DONE" | "FAIL",
  output: string,
  error?: string,
  timeout?: string,
])[] = [
  ["SELECT # AS a", "DONE", "^#$"],
  ["INSERT INTO effect VALUES (#)", "DONE", "^INSERT 0 1$"],
  ["SELECT # / 0", "FAIL", "^$", "^ERROR:  division by zero"],
  ["SELECT pg_sleep(60), #", "FAIL", "^$", "^ERROR:  canceling statement due to statement timeout", "5 ms"],
  ["CREATE TABLE made# (i) AS VALUES (#); SELECT i FROM made#; DROP TABLE made#", "DONE", "^SELECT 1\n#\nDROP TABLE$"],
  ["VACUUM small", "DONE", "^VACUUM$"],
  ["COPY (VALUES (#, 'x')) TO STDOUT", "DONE", "^#\tx$"],
  ["DO $do$ BEGIN PERFORM pg_advisory_lock(#); RAISE 'no #'; END $do$", "FAIL", "^$", "^ERROR:  no #\n"],
  [
    "BEGIN; INSERT INTO effect VALUES (-#); COMMIT; SELECT 1 AS a; SELECT 2, #",
    "DONE",
    "^BEGIN\nINSERT 0 1\nCOMMIT\n1\n",
  ],
  ["SELECT repeat('#,', 4000)", "DONE", "^(#,){200}"],
];

const total = 10_000;
const clients = 4;

const { pgTask, database, client, tasks } = await serve(
  { "pg_task.idle": 2, "pg_conf.max": 8, "pg_conf.log": "debug" },
  `CREATE TABLE effect (i int); CREATE TABLE small (i int);
   CREATE TABLE kind (kind int PRIMARY KEY, input text, state text, output text, error text, timeout interval)`,
);
for (const [index, [input, state, output, error = null, timeout = "0"]] of kinds.entries()) {
  await client.query("INSERT INTO kind VALUES ($1, $2, $3, $4, $5, $6)", [index, input, state, output, error, timeout]);
}

/** Inserts one client's share of the tasks (those whose number leaves this remainder), several in each transaction. */
async function insertShare(share: number): Promise<void> {
  const producer = await database.connect();
  for (let from = 0; from < total; from += 500) {
    await producer.query(
      `INSERT INTO task (input, "group", max, data, timeout)
       SELECT replace(k.input, '#', n::text), 'g' || n % 100, n % 3, n::text, k.timeout
       FROM generate_series($1::int, $1::int + 499) AS n JOIN kind AS k ON k.kind = n / ${clients} % ${kinds.length}
       WHERE n % ${clients} = $2`,
      [from, share],
    );
  }
}

test("ten thousand tasks of ten kinds from concurrent producers all get the expected result", async () => {
  await Promise.all(Array.from({ length: clients }, (_, share) => insertShare(share)));
  await until<{ left: string }>(
    client,
    "SELECT count(*) AS left FROM task WHERE state IN ('PLAN', 'TAKE', 'WORK')",
    ([row]) => row?.left === "0",
  );
  const { rows: states } = await client.query(
    "SELECT state::text AS state, count(*)::int AS tasks FROM task GROUP BY 1 ORDER BY 1",
  );
  assert.deepEqual(states, [
    { state: "DONE", tasks: 7000 },
    { state: "FAIL", tasks: 3000 },
  ]);
  const { rows: wrong } = await client.query(
    `SELECT t.input, t.state::text AS state, left(t.output, 200) AS output, t.error
     FROM task AS t JOIN kind AS k ON k.kind = t.data::int / ${clients} % ${kinds.length}
     WHERE t.state::text <> k.state
        OR t.output !~ replace(k.output, '#', t.data)
        OR (t.error IS NULL) <> (k.error IS NULL)
        OR t.error !~ replace(k.error, '#', t.data)
        OR t.start IS NULL OR t.stop < t.start OR t.owner IS NOT NULL OR t.crash > 0
     LIMIT 3`,
  );
  assert.deepEqual(wrong, []);
});

test("each of the ten thousand tasks took effect once", async () => {
  const { rows } = await client.query("SELECT count(*)::int AS effects, count(DISTINCT i)::int AS tasks FROM effect");
  assert.deepEqual(rows, [{ effects: 2000, tasks: 2000 }]);
});

test("under load no group exceeds its limit", async () => {
  const { rows } = await client.query(
    `SELECT a.id FROM task AS a JOIN task AS b ON b.hash = a.hash AND b.id <> a.id
       AND b.start <= a.start AND b.stop > a.start
     GROUP BY a.id, a.max HAVING count(*) > a.max`,
  );
  assert.deepEqual(rows, []);
});

test("after all tasks only the connection of the supervisor and the one that watches the table are left", async () => {
  await pgTask.logged((line) => line.msg === "executor threads stopped");
  const rows = await eventually<{ application_name: string }>(
    client,
    `SELECT application_name FROM pg_stat_activity
     WHERE datname = current_database() AND application_name <> 'test' ORDER BY 1`,
    (found) => found.length === 2 && found[1]?.application_name === "pg_work sleeping",
  );
  assert.equal(rows[0]?.application_name, "pg_conf");
  assert.equal((await tasks.run("SELECT 1")).output, "1");
});
