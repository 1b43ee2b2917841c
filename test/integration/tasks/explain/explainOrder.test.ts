import assert from "node:assert/strict";
import { cli } from "../../../support/cli.js";
import { until } from "../../../support/changes.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { Tasks } from "../../../support/tasks.js";

interface Reason {
  readonly code: string;
  readonly text: string;
}

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
await pgTask.start({ url: database.url, "pg_task.sleep": 50 });

/** Returns the reasons that `why` reports for a task. */
async function explain(id: string): Promise<Reason[]> {
  const { stdout } = await cli(["why", id, "--json"], { env: { DATABASE_URL: database.url } });
  return JSON.parse(stdout).reasons;
}

test("reports the tasks for whose end a task waits, and the error before a retry", async () => {
  const [first = ""] = await tasks.insert({ input: "SELECT 1", plan: "infinity", group: "explained first" });
  const [second = ""] = await tasks.insert({ input: "SELECT 2", after: `{${first}}`, group: "explained second" });
  await until(client, `SELECT wait FROM task WHERE id = ${second} AND wait = 0`, (rows) => rows.length === 1);
  const [waits] = await explain(second);
  assert.deepEqual([waits?.code, waits?.text], ["waits-for-others", `it waits for the end of ${first} (PLAN)`]);
  const { stdout } = await cli(["run-now", second], { env: { DATABASE_URL: database.url } });
  assert.match(stdout, /^\d+\trefused\t.*it waits for other tasks/m);
  const [failing = ""] = await tasks.insert({
    input: "SELECT 1/0",
    retry: 3,
    backoff: "1 hour",
    group: "explained retry",
  });
  await until(client, `SELECT attempt FROM task WHERE id = ${failing} AND attempt = 1`, (rows) => rows.length === 1);
  const [retry] = await explain(failing);
  assert.equal(retry?.code, "retry");
  assert.match(
    retry?.text ?? "",
    /^it has failed, and its retry 1 of 3 is planned for .*: ERROR: {2}division by zero$/,
  );
});
