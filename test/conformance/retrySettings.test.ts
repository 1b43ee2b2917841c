import assert from "node:assert/strict";
import { test } from "../support/limitedTest.js";
import { only } from "../support/tasks.js";
import { serve } from "../support/serve.js";

const { client, tasks } = await serve({
  "pg_task.sqlstate": "22,!22023",
  "pg_task.ceiling": "20 ms",
  "pg_task.retry": 2,
  "pg_task.backoff": "1 day",
});

async function attempts(input: string, sqlstate: string | null = null): Promise<number> {
  const { id, state } = await tasks.run(input, { group: input + String(sqlstate), sqlstate });
  assert.equal(state, "FAIL");
  return only(
    (await client.query<{ attempt: number }>("SELECT coalesce(attempt, 0) AS attempt FROM task WHERE id = $1", [id]))
      .rows,
  ).attempt;
}

test("pg_task.sqlstate says which errors are retried, and pg_task.ceiling limits the pause", async () => {
  assert.equal(await attempts("SELECT 1/0"), 2);
  assert.equal(await attempts("DO $$BEGIN RAISE SQLSTATE '22023'; END$$"), 0);
  assert.equal(await attempts("SELECT * FROM there_is_none"), 0);
});

test("the task's own list takes precedence over pg_task.sqlstate", async () => {
  assert.equal(await attempts("SELECT * FROM there_is_none", "{42P01}"), 2);
  assert.equal(await attempts("SELECT 1/0", "{42P01}"), 0);
});
