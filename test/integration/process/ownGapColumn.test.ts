import assert from "node:assert/strict";
import { createVersionOne } from "../../support/versionOne.js";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { PgTask } from "../../support/pgTask.js";
import { only, Tasks } from "../../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase("empty");
const client = await database.connect();

test("a column gap of the user is left as it is, and limits nothing", async () => {
  await createVersionOne(client, "public");
  await client.query("ALTER TABLE task ADD COLUMN gap text DEFAULT 'wide'");
  const tasks = await Tasks.create(client);
  await pgTask.start({ url: database.url, "pg_task.gap": "1 hour", "pg_task.delete": false });
  const ids = await tasks.insert(...Array.from({ length: 3 }, () => ({ input: "SELECT 1", group: "own", max: 9 })));
  const rows = await tasks.ended(...ids);
  assert.deepEqual(new Set(rows.map(({ state }) => state)), new Set(["DONE"]));
  const found = await client.query<{ gaps: string[] }>("SELECT array_agg(DISTINCT gap) AS gaps FROM task");
  assert.deepEqual(only(found.rows).gaps, ["wide"]);
});
