import assert from "node:assert/strict";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { readGroups } from "../../../../src/tasks/queries/groups.js";
import { readSituation } from "../../../../src/tasks/explain/taskSituation.js";
import { test } from "../../../support/limitedTest.js";
import { serve } from "../../../support/serve.js";
import { only } from "../../../support/tasks.js";

/** Two groups with the same hash. */
const [paused, free] = ["n744", "n171856"];
const table = taskTable("public", "task");

const { database, client, tasks } = await serve({ "pg_task.sleep": 1000 });

async function insert(group: string, count: number, max = 0): Promise<string[]> {
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, "group", max) SELECT 'SELECT 1', $1, $2 FROM generate_series(1, $3) RETURNING id`,
    [group, max, count],
  );
  return rows.map(({ id }) => id);
}

test("the two groups have the same hash", async () => {
  const { rows } = await client.query<{ same: boolean }>("SELECT hashtext($1) = hashtext($2) AS same", [paused, free]);
  assert.ok(only(rows).same);
});

for (const max of [0, 3]) {
  test(`a pause stops the group of its name, not another one of the same hash, with max ${max}`, async () => {
    await client.query(`INSERT INTO task_pause ("group") VALUES ($1)`, [paused]);
    const waiting = await insert(paused, 20, max);
    const ids: string[] = [];
    for (let each = 0; each < 10; each += 1) {
      ids.push(...(await insert(free, 2, max)));
      waiting.push(...(await insert(paused, 2, max)));
    }
    await tasks.ended(...ids);
    await tasks.ended(...(await insert(free, 3, max + 1)));
    // The tasks of the paused group still wait.
    await tasks.until(waiting, ({ state }) => state === "PLAN");
    await client.query("DELETE FROM task_pause");
    await tasks.ended(...waiting);
  });
}

test("a task behind thousands of tasks of a paused group is found, and so is each of several", async () => {
  await client.query(`INSERT INTO task_pause ("group") VALUES ($1)`, [paused]);
  const waiting = await insert(paused, 12_000);
  await tasks.ended(...(await insert(free, 3)));
  await client.query(`INSERT INTO task_pause ("group") VALUES ($1)`, [free]);
  const both = await insert(free, 1);
  await tasks.run("SELECT 1", { plan: new Date(Date.now() + 500).toISOString() });
  assert.equal((await tasks.row(both[0] ?? "")).state, "PLAN");
  await client.query(`DELETE FROM task_pause WHERE "group" = $1`, [free]);
  await tasks.ended(...both);
  await client.query("DELETE FROM task WHERE id = ANY ($1)", [waiting]);
  await client.query("DELETE FROM task_pause");
});

test("what users see distinguishes the two groups", async () => {
  await client.query("DELETE FROM task");
  await client.query(`INSERT INTO task_pause ("group") VALUES ($1), ('held')`, [paused]);
  const gate = await database.connect();
  await gate.query("SELECT pg_advisory_lock(1)");
  await insert(paused, 5);
  const [running = ""] = await tasks.insert({
    input: "SELECT FROM pg_advisory_xact_lock(1)",
    group: free,
  });
  await tasks.running(running);
  // A task with a key must be alone in its session, so it is queued in none.
  const [next = ""] = await tasks.insert({ input: "SELECT 1", group: free, key: "next" });
  const situation = await readSituation(client, table, next);
  assert.deepEqual([situation?.ahead, situation?.groupRuns], [0, 1]);
  const { groups } = await readGroups(client, table, { limit: 10, ended: false });
  const told = new Map(groups.map(({ group, due, paused: isPaused }) => [group, [due.value, isPaused]]));
  assert.deepEqual(Object.fromEntries(told), {
    held: [0, true],
    [free]: [1, false],
    [paused]: [5, true],
  });
  await gate.query("SELECT pg_advisory_unlock(1)");
  await tasks.ended(running, next);
});
