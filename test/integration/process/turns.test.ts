import assert from "node:assert/strict";
import { cli } from "../../support/cli.js";
import { connectTo } from "../../support/connectTo.js";
import { test } from "../../support/limitedTest.js";
import { processesOfFile } from "../../support/process.js";
import { RestartableServer } from "../../support/restartableServer.js";
import { insertTask, rowsOf, waitForRow, waitForState } from "../../support/tasks.js";
import { assertTurns, insertTurnTasks } from "../../support/turnTasks.js";

const startProcess = await processesOfFile();
const server = await RestartableServer.started();
const options = { config: { url: server.url, "pg_task.sleep": 50, "pg_task.delete": false } };
const seed = Number(process.env["SEED"] ?? Math.floor(Math.random() * 1e6));

test("a chain that runs alone goes on alone after a crash between two of its steps", async () => {
  const program = await startProcess(options);
  await program.line("ready");
  const client = await connectTo(server.url);
  // The second step cannot be released before its row is free, so that the process is killed between the two.
  await client.query("BEGIN");
  const ids = await rowsOf<{ id: string }>(
    client,
    `SELECT task_chain('[{"input": "SELECT 1", "alone": "table", "plan": "2100-01-01"}, "SELECT pg_sleep(0.3)"]') AS id`,
  );
  await client.query("COMMIT");
  const [first = "", second = ""] = ids.map(({ id }) => id);
  await waitForRow(client, `SELECT FROM task WHERE id = ${second} AND wait = 0`);
  const locker = await connectTo(server.url);
  await locker.query("BEGIN");
  await locker.query("SELECT FROM task WHERE id = $1 FOR UPDATE", [second]);
  await client.query("UPDATE task SET plan = now() WHERE id = $1", [first]);
  await waitForState(client, first, "DONE");
  await program.end("SIGKILL");
  const other = await insertTask(client, "SELECT 2");
  const next = await startProcess(options);
  await next.line("ready");
  await waitForRow(client, "SELECT FROM task_turn WHERE begun");
  const { stdout } = await cli(["status"], { cwd: next.cwd });
  assert.ok(stdout.includes(`\n  alone      task ${first} runs alone in the table\n`), stdout);
  await locker.query("ROLLBACK");
  await locker.end();
  await waitForState(client, second, "DONE");
  await waitForState(client, other, "DONE");
  const [order] = await rowsOf<{ apart: boolean }>(
    client,
    `SELECT o.start >= s.stop AS apart FROM task AS o, task AS s WHERE o.id = ${other} AND s.id = ${second}`,
  );
  assert.equal(order?.apart, true);
  await next.end("SIGTERM");
  await client.end();
});

test(`nothing runs beside a chain that runs alone while processes and sessions are killed (SEED=${seed})`, async () => {
  let program = await startProcess(options);
  await program.line("ready");
  const client = await connectTo(server.url);
  const producer = await connectTo(server.url);
  for (let each = 0; each < 4; each += 1) {
    const standby = await startProcess(options);
    await standby.line("standby");
    const inserted = insertTurnTasks(producer, seed + each, 40);
    await waitForRow(client, "SELECT FROM task WHERE state IN ('TAKE', 'WORK') LIMIT 1");
    await client.query(
      "SELECT pg_terminate_backend(split_part(owner, ' ', 1)::integer) FROM task WHERE state = 'WORK' AND owner IS NOT NULL ORDER BY id LIMIT 1",
    );
    await waitForRow(client, "SELECT FROM task_turn LIMIT 1");
    await program.end("SIGKILL");
    program = standby;
    await inserted;
  }
  await assertTurns(client);
  await Promise.all([client.end(), producer.end()]);
});
