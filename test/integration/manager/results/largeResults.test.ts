import assert from "node:assert/strict";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { TcpProxy } from "../../../support/tcpProxy.js";
import { insertTask, waitForRow, waitForState } from "../../../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const config = { url: database.url };

/** While the table `gate` is empty, writing a large output blocks. */
await client.query(`
  CREATE TABLE gate (open boolean);
  CREATE FUNCTION wait_for_gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    WHILE NOT EXISTS (SELECT FROM public.gate) LOOP PERFORM pg_sleep(0.01); END LOOP;
    RETURN NEW;
  END $$;
  CREATE TRIGGER wait_for_gate BEFORE UPDATE ON task FOR EACH ROW
    WHEN (length(NEW.output) > 1000000) EXECUTE FUNCTION wait_for_gate()`);

const large = "SELECT repeat('x', 3000000)";
const writing = `SELECT FROM pg_stat_activity WHERE application_name = 'pg_work output' AND wait_event = 'PgSleep'
  AND datname = current_database()`;

test("other tasks run and end while a large output is written", async () => {
  await pgTask.start(config);
  const ids = [await insertTask(client, large), await insertTask(client, large, { group: "other" })];
  await waitForRow(client, writing);
  for (let time = 0; time < 3; time += 1) {
    await waitForState(client, await insertTask(client, "SELECT 1", { group: `neighbour ${time}` }), "DONE");
  }
  for (const id of ids) assert.equal((await waitForState(client, id, "WORK")).output, null);
  await client.query("INSERT INTO gate VALUES (true)");
  for (const id of ids) {
    assert.equal((await waitForState(client, id, "DONE")).output, "x".repeat(3_000_000));
  }
  await client.query("TRUNCATE gate");
  await pgTask.stop();
});

test("a large output is written again after its connection or the manager's is lost", async () => {
  await pgTask.start(config);
  for (const lost of ["pg_work output", "pg_work public%"]) {
    const id = await insertTask(client, large);
    await waitForRow(client, writing);
    await client.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
       WHERE application_name LIKE $1 AND datname = current_database()`,
      [lost],
    );
    await waitForRow(client, writing);
    await client.query("INSERT INTO gate VALUES (true)");
    const row = await waitForState(client, id, "DONE");
    assert.deepEqual([row.output?.length, row.crash], [3_000_000, 0]);
    await client.query("TRUNCATE gate");
  }
  await pgTask.stop();
});

test("a half-open connection for large outputs delays no other output", async () => {
  const { target } = database;
  const proxy = await TcpProxy.start(target.port, target.host);
  const url = `postgresql://${target.user}@127.0.0.1:${proxy.port}/${target.database}`;
  await pgTask.start({ url });
  const first = await insertTask(client, large);
  await waitForRow(client, writing);
  assert.equal(proxy.freeze("pg_work output"), 1);
  await client.query("INSERT INTO gate VALUES (true)");
  assert.equal((await waitForState(client, first, "DONE")).output?.length, 3_000_000);
  const next = await insertTask(client, large);
  assert.equal((await waitForState(client, next, "DONE")).output?.length, 3_000_000);
  await client.query("TRUNCATE gate");
  await pgTask.stop();
});

test("a stop waits until large outputs are written", async () => {
  await pgTask.start(config);
  const id = await insertTask(client, large);
  await waitForRow(client, writing);
  const stopped = pgTask.stop();
  await waitForRow(client, writing);
  await client.query("INSERT INTO gate VALUES (true)");
  await stopped;
  assert.equal((await waitForState(client, id, "DONE")).output?.length, 3_000_000);
  await client.query("TRUNCATE gate");
});
