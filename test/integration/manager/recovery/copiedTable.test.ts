import assert from "node:assert/strict";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { insertTask, waitForRun, waitForState } from "../../../support/tasks.js";

const [served, servedCopy] = [new PgTask(), new PgTask()];
const [database, copy] = [await createDatabase(), await createDatabase()];
const [client, copyClient] = [await database.connect(), await copy.connect()];

test("a restored copy runs its lost tasks, and leaves those that run in the original alone", async () => {
  await client.query("CREATE TABLE effect (task bigint); SELECT pg_advisory_lock(1)");
  await served.start({ url: database.url });
  const input = "INSERT INTO effect VALUES (1); COMMIT; SELECT pg_advisory_lock_shared(1)";
  const id = await insertTask(client, input);
  await waitForRun(client, id);
  const { rows } = await client.query<{ row: string }>("SELECT to_jsonb(t)::text AS row FROM task AS t");
  await copyClient.query("CREATE TABLE effect (task bigint)");
  await copyClient.query(
    `INSERT INTO task (id, "group", input, state, owner, pid, take, start)
     SELECT id, "group", input, state, owner, pid, take, start FROM jsonb_populate_record(NULL::task, $1::jsonb)`,
    [rows[0]?.row],
  );
  await servedCopy.start({ url: copy.url, "pg_conf.frozen": 100 });
  assert.equal((await waitForState(copyClient, id, "DONE")).crash, 0);
  await client.query("SELECT pg_advisory_unlock(1)");
  assert.equal((await waitForState(client, id, "DONE")).crash, 0);
  const { rows: effects } = await client.query("SELECT FROM effect");
  assert.equal(effects.length, 1);
});
