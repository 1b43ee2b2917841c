import assert from "node:assert/strict";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { PgTask } from "../../support/pgTask.js";
import { insertTask, waitForRow } from "../../support/waitFor.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
await pgTask.start({ url: database.url, "pg_task.output": "2000MB" });

test("a limit of more than 256 MB has the effect of a limit of 256 MB", async () => {
  const id = await insertTask(client, "SELECT repeat('x', 1000000) FROM generate_series(1, 300)", "large");
  const row = await waitForRow(
    client,
    `SELECT split_part(error, E'\\n', 1) AS error, length(output) AS length FROM task
     WHERE id = $1 AND state = 'FAIL'`,
    [id],
  );
  assert.deepEqual(row, {
    error: "ERROR:  output exceeds 268435456 bytes",
    length: 268 * 1_000_001 - 1,
  });
});
