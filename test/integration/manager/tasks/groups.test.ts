import assert from "node:assert/strict";
import { test } from "../../../support/limitedTest.js";
import { serve } from "../../../support/serve.js";

const { client, tasks } = await serve({ "pg_task.sleep": 200, "pg_conf.max": 8 });

test("a group at its limit delays neither another group nor a task that moves to one", async () => {
  const first = await tasks.insert({ input: "SELECT pg_sleep(60)", group: "full" });
  const [running] = await tasks.until(first, (row) => row.state === "WORK");
  const [waiting = "", moved = ""] = await tasks.insert(
    { input: "SELECT 1", group: "full" },
    { input: "SELECT 1", group: "full" },
  );
  assert.equal((await tasks.run("SELECT 2", { group: "other" })).state, "DONE");
  await client.query(`UPDATE task SET "group" = 'empty' WHERE id = $1`, [moved]);
  assert.equal((await tasks.end(moved)).state, "DONE");
  // It may already be queued behind the running task.
  assert.equal((await tasks.row(waiting)).start, null);
  await client.query("SELECT pg_cancel_backend($1)", [running?.pid]);
  assert.equal((await tasks.end(waiting)).state, "DONE");
});
