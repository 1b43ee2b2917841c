import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { eventually } from "../../support/changes.js";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { startProcess } from "../../support/process.js";
import { suspend } from "../../support/suspend.js";
import { Tasks } from "../../support/tasks.js";

const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
await client.query("CREATE TABLE effect (task bigint)");

test("a large output survives that the process reads nothing for a while", async () => {
  const gate = await database.connect();
  await gate.query("SELECT pg_advisory_lock(1)");
  const program = await startProcess({ config: { url: database.url } });
  await program.line("ready");
  const effect = "INSERT INTO effect VALUES (current_setting('pg_task.id')::bigint)";
  const [id = ""] = await tasks.insert({
    input: `${effect}; COMMIT; SELECT pg_advisory_lock_shared(1); SELECT repeat('x', 60000000)`,
    atomic: false,
  });
  const waiting = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'";
  const [backend] = await eventually<{ pid: number }>(client, waiting, (rows) => rows.length === 1);
  await suspend(program.pid);
  await gate.query("SELECT pg_advisory_unlock(1)");
  const alive = `SELECT FROM pg_stat_activity WHERE pid = ${backend?.pid}`;
  await eventually(client, `${alive} AND wait_event = 'ClientWrite'`, (rows) => rows.length === 1);
  // There is no event to wait for: the server's kernel used to give up the connection after ten seconds.
  await sleep(14_000);
  const { rowCount } = await client.query(alive);
  process.kill(program.pid, "SIGCONT");
  assert.equal(rowCount, 1);
  const [row] = await tasks.ended(id);
  assert.deepEqual({ state: row?.state, crash: row?.crash }, { state: "DONE", crash: 0 });
  assert.equal((await client.query("SELECT FROM effect WHERE task = $1", [id])).rowCount, 1);
  await program.end();
});
