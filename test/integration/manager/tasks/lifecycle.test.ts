import assert from "node:assert/strict";
import { test } from "../../../support/limitedTest.js";
import { eventually } from "../../../support/tasks.js";
import { serve } from "../../../support/serve.js";

const { pgTask, database, client, tasks } = await serve({ "pg_task.sleep": 200 });

test("an inserted task runs, and its row shows the result", async () => {
  const row = await tasks.run("SELECT 1 AS a, 2 AS b", { data: "mine" });
  assert.equal(row.state, "DONE");
  assert.equal(row.output, "a\tb\n1\t2");
  assert.equal(row.error, null);
  assert.equal(row.owner, null);
  assert.equal(row.data, "mine");
  assert.equal(row.crash, 0);
  assert.ok(row.plan <= (row.take ?? ""));
  assert.ok((row.take ?? "") <= (row.start ?? ""));
  assert.ok((row.start ?? "") <= (row.stop ?? ""));
});

test("supervisor, manager and sessions have different application names", async () => {
  await tasks.run("SELECT 1");
  const rows = await eventually<{ application_name: string }>(
    client,
    `SELECT DISTINCT application_name FROM pg_stat_activity
     WHERE datname = current_database() AND application_name <> 'test' ORDER BY 1`,
    (found) => found.length === 3,
  );
  assert.deepEqual(
    rows.map((row) => row.application_name),
    ["pg_conf", "pg_task public task", "pg_work public task 200"],
  );
});

test("ready is logged once, with pid and server but without password", () => {
  const ready = pgTask.lines.filter((line) => line.msg === "ready");
  assert.equal(ready.length, 1);
  assert.equal(ready[0]?.["pid"], pgTask.pid);
  assert.equal(ready[0]?.["url"], database.url);
});
