import assert from "node:assert/strict";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { startProcess } from "../../support/process.js";
import { rowsOf, Tasks, until } from "../../support/tasks.js";

const database = await createDatabase();
const client = await database.connect();
await Tasks.create(client);
const config = { url: database.url, "pg_task.sleep": 50 };

/** After this many failures in a row. */
const suspend = 40;

test("failures are counted exactly once when the process is killed again and again", async () => {
  const first = await startProcess({ config, until: "ready" });
  await client.query(
    `INSERT INTO task (input, key, "group", repeat, suspend) VALUES ('SELECT 1/0', 'often', 'often', '5 ms', ${suspend});
     INSERT INTO task (input, "group", suspend) SELECT 'SELECT 1/0', 'many', ${suspend} FROM generate_series(1, 3 * ${suspend})`,
  );
  let killed = first;
  for (const fails of [10, 20, 30]) {
    const failed = `SELECT FROM task WHERE key = 'often' AND state = 'FAIL'`;
    await until(client, failed, ({ length }) => length >= fails);
    await killed.end("SIGKILL");
    killed = await startProcess({ config, until: "ready" });
  }
  const paused = "SELECT FROM task WHERE key = 'often' AND plan = 'infinity'";
  await until(client, paused, ({ length }) => length === 1);
  await until(client, `SELECT FROM task_pause WHERE "group" = 'many'`, ({ length }) => length === 1);
  await killed.stop();
  // Each row has the number of the runs that had failed before it.
  const chain = await rowsOf<{ state: string; failures: number | null }>(
    client,
    "SELECT state::text AS state, failures FROM task WHERE key = 'often' ORDER BY id",
  );
  assert.deepEqual(
    chain,
    Array.from({ length: suspend + 1 }, (_, n) => ({
      state: n < suspend ? "FAIL" : "PLAN",
      failures: n === 0 ? null : n,
    })),
  );
  const [counted] = await rowsOf<{ failed: number; kept: number }>(
    client,
    `SELECT count(*) FILTER (WHERE state = 'FAIL')::integer AS failed,
       coalesce((SELECT sum(failures) FROM task_group_failures), 0)::integer AS kept FROM task WHERE "group" = 'many'`,
  );
  // What was claimed when the group was paused has run, and counts for the next pause.
  assert.equal(((counted?.failed ?? 0) - (counted?.kept ?? 0)) % suspend, 0);
});
