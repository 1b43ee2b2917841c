import assert from "node:assert/strict";
import { cli } from "../../../support/cli.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { insertTask, waitForState } from "../../../support/waitFor.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();

test("with a publication FOR ALL TABLES, pauses end and tasks run", async () => {
  await client.query("CREATE PUBLICATION everything FOR ALL TABLES");
  await pgTask.start({ url: database.url });
  const env = { DATABASE_URL: database.url };
  assert.equal((await cli(["pause"], { env })).code, 0);
  const id = await insertTask(client, "CREATE TABLE effect ()");
  const { code, stderr } = await cli(["resume"], { env });
  assert.equal(code, 0, stderr);
  await waitForState(client, id, "DONE");
  await client.query("UPDATE task_ledger_1 SET id = id; DELETE FROM task_ledger_1; DELETE FROM task_ledger_2");
  const { rows } = await client.query(
    `SELECT relname FROM pg_class AS c WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname LIKE 'task%'
       AND relreplident <> 'f' AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND indisprimary)`,
  );
  assert.deepEqual(rows, []);
  await pgTask.stop();
});
