import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createDatabase } from "../../../../support/database.js";
import { doctor } from "../../../../support/doctor.js";
import { cli } from "../../../../support/cli.js";
import { partitionedById, partitionedByPlan } from "../../../../support/foreignTables.js";
import { test } from "../../../../support/limitedTest.js";
import { PgTask } from "../../../../support/pgTask.js";
import { only, waitForRow } from "../../../../support/tasks.js";
import { temporaryFolder } from "../../../../support/temporaryFolder.js";

const pgTask = new PgTask();
const database = await createDatabase("empty");
const client = await database.connect();

const insert = async (schema: string, columns: string, values: string): Promise<string> =>
  only(
    (await client.query<{ id: string }>(`INSERT INTO ${schema}.task (${columns}) VALUES (${values}) RETURNING id`))
      .rows,
  ).id;

test("in a table that is partitioned by id, tasks wait for others and are tried again", async () => {
  await client.query(partitionedById("ids"));
  await pgTask.start({ url: database.url, "pg_task.schema": "ids", "pg_task.sleep": 50 });
  const first = await insert("ids", "input, retry, backoff", "'SELECT 1/0', 2, '1 ms'");
  const second = await insert("ids", 'input, after, upon, "group"', `'SELECT 2', '{${first}}', 'fail', 'second'`);
  await waitForRow(client, "SELECT FROM ids.task WHERE id = $1 AND state = 'DONE'", [second]);
  const { rows } = await client.query("SELECT state::text AS state, attempt FROM ids.task WHERE id = $1", [first]);
  assert.deepEqual(rows, [{ state: "FAIL", attempt: 2 }]);
  await pgTask.stop();
});

test("in a table that is partitioned by plan, after is refused with the reason, and check and doctor say so", async () => {
  await client.query(partitionedByPlan("plans"));
  await pgTask.start({ url: database.url, "pg_task.schema": "plans", "pg_task.sleep": 50 });
  const first = await insert("plans", "input, plan", "'SELECT 1', '2029-01-01'");
  const refusal = {
    code: "0A000",
    message: "after cannot be used: the table is partitioned by plan",
    hint: "A task that waits for others is planned for infinity, which can belong to another partition.",
  };
  await assert.rejects(insert("plans", "input, after", `'SELECT 2', '{${first}}'`), refusal);
  const second = await insert("plans", "input, plan", "'SELECT 2', '2029-01-01'");
  await assert.rejects(client.query(`UPDATE plans.task SET after = '{${first}}' WHERE id = ${second}`), refusal);
  const cwd = await temporaryFolder();
  await writeFile(join(cwd, "pg_task.json"), JSON.stringify({ url: database.url, "pg_task.schema": "plans" }));
  const { lines } = await doctor({}, cwd);
  assert.equal(
    lines.find(({ name }) => name === "order")?.text,
    "no task can wait for others (after): the table is partitioned by plan",
  );
  const { stdout } = await cli(["check"], { cwd });
  assert.match(stdout, /table +task +exists: no task can wait for others \(after\): the table is partitioned by plan/);
});

test("in a table that is partitioned by plan, a retry may move the task to another partition", async () => {
  await pgTask.stop();
  await pgTask.start({
    url: database.url,
    "pg_task.schema": "plans",
    "pg_task.sleep": 50,
    "pg_task.ceiling": "100 years",
  });
  const id = await insert("plans", "input, retry, backoff", "'SELECT 1/0', 1, '20 years'");
  await waitForRow(client, `SELECT FROM plans."Later on" WHERE id = $1 AND attempt = 1 AND state = 'PLAN'`, [id]);
  await client.query(`UPDATE plans.task SET plan = now(), input = 'SELECT 1' WHERE id = ${id}`);
  await waitForRow(client, "SELECT FROM plans.before WHERE id = $1 AND state = 'DONE'", [id]);
});
