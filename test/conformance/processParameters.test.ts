import assert from "node:assert/strict";
import { createDatabase } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { startPgTask } from "../support/pgTask.js";
import { insertTask, waitForRun, waitForState } from "../support/tasks.js";

// Those whose effect shows only when a thread fails are tested in integration/process/threadParameters.

const database = await createDatabase();
const other = await createDatabase();
const client = await database.connect();
const otherClient = await other.connect();

test("§2 pg_task.idle is the number of empty checks after which the executors stop", async () => {
  const pgTask = await startPgTask({
    url: database.url,
    "pg_task.sleep": 10,
    "pg_task.idle": 200,
    "pg_conf.log": "debug",
  });
  const id = await insertTask(client, "SELECT 1");
  await waitForState(client, id, "DONE");
  await pgTask.line("executor threads stopped");
  const { rows } = await client.query<{ ms: number }>(
    "SELECT extract(epoch FROM clock_timestamp() - stop)::float8 * 1000 AS ms FROM task WHERE id = $1",
    [id],
  );
  // With the defaults, deep sleep would begin after 0.6 seconds. There is no upper limit, because the machine may be
  // busy.
  assert.ok((rows[0]?.ms ?? 0) > 1750, String(rows[0]?.ms));
  await pgTask.stop();
});

test("§2 pg_conf.grace is how long running tasks may take to finish at a stop", async () => {
  const short = await startPgTask({ url: database.url, "pg_conf.grace": 50 });
  const long = await startPgTask({ url: other.url, "pg_conf.grace": 600_000 });
  const input = "SELECT pg_advisory_lock_shared(7)";
  for (const session of [client, otherClient]) await session.query("SELECT pg_advisory_lock(7)");
  const id = await insertTask(client, input);
  const otherId = await insertTask(otherClient, input);
  await waitForRun(client, id);
  await waitForRun(otherClient, otherId);
  const stopped = long.stop();
  await short.stop();
  await waitForState(client, id, "PLAN");
  await waitForRun(otherClient, otherId);
  for (const session of [client, otherClient]) await session.query("SELECT pg_advisory_unlock(7)");
  await waitForState(otherClient, otherId, "DONE");
  await stopped;
});
