import assert from "node:assert/strict";
import { createDatabase } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { projectText } from "../support/project.js";
import { eventually } from "../support/tasks.js";

const page = projectText("docs/scaling.md");

test("docs/scaling.md splits a table by group: all tasks of a group are in one table, and all run", async () => {
  const example = /^```text\n(CREATE FUNCTION add_task.*?)^```/ms.exec(page)?.[1];
  assert.ok(example !== undefined, "the page has the function");
  const database = await createDatabase("empty");
  const client = await database.connect();
  const entries = ["task_0", "task_1"].map((table) => ({ url: database.url, table }));
  const pgTask = new PgTask();
  await pgTask.start({ url: database.url, "pg_task.delete": false, "pg_task.json": entries });
  await client.query(example);
  const { rows } = await client.query<{ id: string | null }>(
    "SELECT add_task('SELECT ' || i, 'group ' || i % 20) AS id FROM generate_series(1, 100) AS i",
  );
  assert.ok(rows.every(({ id }) => id !== null));
  const both = `SELECT 0 AS place, "group", state FROM task_0 UNION ALL SELECT 1, "group", state FROM task_1`;
  const counts = `SELECT count(*)::integer AS tasks, count(DISTINCT "group")::integer AS groups,
    count(DISTINCT (place, "group"))::integer AS places, count(DISTINCT place)::integer AS tables,
    count(*) FILTER (WHERE state <> 'DONE')::integer AS open FROM (${both}) AS t`;
  const found = await eventually<{ open: number }>(client, counts, ([row]) => row?.open === 0);
  assert.deepEqual(found, [{ tasks: 100, groups: 20, places: 20, tables: 2, open: 0 }]);
});
