import assert from "node:assert/strict";
import { cli } from "../../../support/cli.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { insertTask, waitForState } from "../../../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();

/** All tables of pg-task, and by what a replica identifies their rows. */
const all = {
  task: "key",
  task_after: "key",
  task_group_failures: "key",
  task_home: "key",
  task_ledger_1: "full",
  task_ledger_2: "full",
  task_outbox: "key",
  task_owed: "key",
  task_pause: "key",
  task_turn: "key",
  task_webhooks: "key",
};

async function identities(): Promise<unknown> {
  const { rows } = await client.query<{ identities: unknown }>(
    `SELECT json_object_agg(relname, CASE WHEN relreplident = 'f' THEN 'full'
       WHEN relreplident = 'd' AND EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND indisprimary) THEN 'key'
       ELSE 'none' END) AS identities
     FROM pg_class AS c WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND relname <> 'effect'`,
  );
  return rows[0]?.identities;
}

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
  assert.deepEqual(await identities(), all);
  await pgTask.stop();
  await client.query(
    "DROP TABLE task_after, task_group_failures, task_home, task_ledger_1, task_ledger_2, task_outbox, task_owed, task_pause, task_turn, task_webhooks",
  );
  await pgTask.start({ url: database.url });
  assert.deepEqual(await identities(), all);
  await pgTask.stop();
});
