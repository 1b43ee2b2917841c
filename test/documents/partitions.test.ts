import assert from "node:assert/strict";
import type { Client } from "../../src/shared/postgres/client.js";
import { createDatabase, serverMajor } from "../support/database.js";
import { documentedBlocks } from "../support/documentedPage.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { projectText } from "../support/project.js";
import { eventually, waitForRow } from "../support/tasks.js";

const page = projectText("docs/partitions.md");
const [create = "", next = "", canGo = "", detach = "", drop = ""] = documentedBlocks(page).map(({ sql }) => sql);
const attach = /^```text\n(ALTER.*?)^```/ms.exec(page)?.[1] ?? "";

const pgTask = new PgTask();
const database = await createDatabase("empty");
const client = await database.connect();
const detached = (await serverMajor()) < 14 ? detach.replace(" CONCURRENTLY", "") : detach;

const isFree = async (on: Client): Promise<boolean | undefined> =>
  (await on.query<{ can_go: boolean }>(canGo)).rows[0]?.can_go;

const partitions = async (): Promise<string[]> => {
  const { rows } = await client.query<{ name: string }>(
    "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = 'task'::regclass ORDER BY 1",
  );
  return rows.map(({ name }) => name);
};

/** Waits until all tasks with inputs like this have ended. */
async function ended(input: string): Promise<void> {
  const open = "SELECT FROM task WHERE input LIKE $1 AND state IN ('PLAN', 'TAKE', 'WORK')";
  await eventually(client, open, (rows) => rows.length === 0, [input]);
}

test("docs/partitions.md: the table is served, with tasks in two partitions", async () => {
  await client.query(create);
  await pgTask.start({ url: database.url, "pg_task.delete": false, "pg_task.sleep": 100 });
  assert.deepEqual(pgTask.linesMatching(/unavailable/), []);
  await client.query("SELECT setval('task_id_seq', 999990)");
  await client.query("INSERT INTO task (input) SELECT 'SELECT ' || n FROM generate_series(1, 20) AS n");
  await ended("SELECT %");
  const { rows } = await client.query(
    "SELECT count(*) FILTER (WHERE id <= 1000000)::int AS old, count(*)::int AS both FROM task WHERE state = 'DONE'",
  );
  assert.deepEqual(rows, [{ old: 10, both: 20 }]);
});

test("docs/partitions.md: the next partition is made ahead, once, and served", async () => {
  await client.query(next);
  await client.query(next);
  assert.deepEqual(await partitions(), ["task_1", "task_2", "task_3"]);
  await pgTask.reload();
  await waitForRow(client, "SELECT FROM pg_trigger WHERE tgrelid = 'task_3'::regclass AND tgname = 'task_wake_up'");
  await client.query("SELECT setval('task_id_seq', 2000000)");
  await client.query("INSERT INTO task (input, plan) VALUES ('SELECT 30', now()), ('SELECT 31', 'infinity')");
  await waitForRow(client, "SELECT FROM task_3 WHERE input = 'SELECT 30' AND state = 'DONE'");
  await waitForRow(client, "SELECT FROM task_3 WHERE input = 'SELECT 31' AND state = 'PLAN' AND NOT ready");
});

test("docs/partitions.md: the oldest goes when its rows are final, old, and no longer needed", async () => {
  assert.equal(await isFree(client), false, "too young");
  await client.query("UPDATE task_1 SET start = start - interval '31 days', stop = stop - interval '31 days'");
  assert.equal(await isFree(client), true);
  await client.query("UPDATE task SET plan = 'infinity', state = 'PLAN' WHERE id = 999991");
  assert.equal(await isFree(client), false, "one waits");
  await client.query("UPDATE task SET state = 'STOP' WHERE id = 999991");
  await client.query("INSERT INTO task_after (predecessor, task) VALUES (999992, 2000002)");
  assert.equal(await isFree(client), false, "one is waited for");
  await client.query("DELETE FROM task_after");
  assert.equal(await isFree(client), true);

  await client.query(detached);
  assert.equal(await isFree(client), true);
  await client.query(attach);
  assert.deepEqual(await partitions(), ["task_1", "task_2", "task_3"]);
  await client.query(detached);
  await client.query(drop);
  assert.deepEqual(await partitions(), ["task_2", "task_3"]);

  await client.query("INSERT INTO task (input, after) VALUES ('SELECT 40', '{999991}')");
  await waitForRow(client, "SELECT FROM task WHERE input = 'SELECT 40' AND state = 'DONE'");
  assert.deepEqual(pgTask.linesMatching(/unavailable|rejected/), []);
});
