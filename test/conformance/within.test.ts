import assert from "node:assert/strict";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { until } from "../support/tasks.js";

const { client, tasks } = await serve({ "pg_task.delete": false, "pg_task.sqlstate": "" });

const chain = (steps: readonly unknown[], more = ""): Promise<string[]> =>
  tasks.value<string[]>(`SELECT ARRAY(SELECT id::text FROM task_chain($1::jsonb${more}) AS id)`, [
    JSON.stringify(steps),
  ]);

test("§4 within ends the step that runs when the time of the chain is over, and no later one starts", async () => {
  const ids = await chain(
    [{ input: "SELECT pg_sleep(0.2)", within: "3 seconds" }, "SELECT pg_sleep(600)", "SELECT 3"],
    ", fail => 'SELECT 4'",
  );
  const [first, second, third, last] = await tasks.ended(...ids);
  assert.deepEqual([first?.state, second?.state, third?.state, last?.state], ["DONE", "FAIL", "GONE", "DONE"]);
  assert.match(second?.error ?? "", /canceling statement due to statement timeout/);
  assert.ok(
    await tasks.holds(ids[1] ?? "", `stop >= (SELECT start FROM task WHERE id = ${ids[0]}) + interval '3 seconds'`),
  );
  assert.ok(await tasks.holds(ids[1] ?? "", "start < deadline"));
  assert.ok(await tasks.holds(ids[3] ?? "", "within IS NULL AND deadline IS NULL"));
});

test("§4 a step that waits until the time is over never starts, unless somebody retries it", async () => {
  await client.query("INSERT INTO task_pause (\"group\") VALUES ('held')");
  const [first = "", second = ""] = await chain([
    { input: "SELECT 1", within: "200 ms" },
    { input: "SELECT 2", group: "held" },
  ]);
  await tasks.end(first);
  await until(
    client,
    `SELECT FROM task WHERE id = ${second} AND deadline <= clock_timestamp()`,
    (rows) => rows.length > 0,
  );
  await client.query("DELETE FROM task_pause");
  const { state, error } = await tasks.end(second);
  assert.equal(state, "GONE");
  assert.equal(error, "ERROR:  the time limit of its chain is over");
  await client.query("UPDATE task SET state = 'PLAN', plan = now() WHERE id = $1", [second]);
  await until(client, `SELECT FROM task WHERE id = ${second} AND state = 'DONE'`, (rows) => rows.length > 0);
});

test("§4 a chain that is fast enough, and a timeout that is shorter, are not changed", async () => {
  const fast = await chain([{ input: "SELECT 1", within: "1 hour" }, "SELECT 2"]);
  for (const { state } of await tasks.ended(...fast)) assert.equal(state, "DONE");
  const id = await tasks.add("SELECT pg_sleep(600)", { within: "1 hour", timeout: "100 ms" });
  const { state, error } = await tasks.end(id);
  assert.equal(state, "FAIL");
  assert.match(error ?? "", /statement timeout/);
});

test("§4 within limits all tries of a task together", async () => {
  const id = await tasks.add("SELECT pg_sleep(0.2); SELECT 1/0", {
    within: "1 second",
    retry: 1_000_000,
    backoff: "10 ms",
    sqlstate: "{22012,57014}",
  });
  const { state } = await tasks.end(id);
  assert.ok(["FAIL", "GONE"].includes(state));
  assert.ok(await tasks.holds(id, "attempt BETWEEN 1 AND 20 AND stop >= created + interval '1 second'"));
});

test("§4 refuses a time that is not above 0", async () => {
  await assert.rejects(
    client.query("INSERT INTO task (input, within) VALUES ('SELECT 1', '0')"),
    /within must be more than 0, not 00:00:00/,
  );
  await assert.rejects(
    client.query("INSERT INTO task (input, within) VALUES ('SELECT 1', '1001 years')"),
    /within must be at most 1000 years/,
  );
});
