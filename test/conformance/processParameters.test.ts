import assert from "node:assert/strict";
import { createDatabase } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { startProcess, type TestProcess } from "../support/process.js";
import { failing, saboteurOption, type Sabotage } from "../support/saboteur.js";
import { insertTask, waitForRun, waitForState } from "../support/waitFor.js";

const database = await createDatabase();
const other = await createDatabase();
const client = await database.connect();
const otherClient = await other.connect();
const onDatabase = `DATABASE ${database.target.database}`;

async function start(config: object, url = database.url): Promise<TestProcess> {
  const program = await startProcess({
    config: { url, ...config },
    env: { NODE_OPTIONS: saboteurOption },
    forked: true,
  });
  await program.line("ready");
  return program;
}

async function sabotage(program: TestProcess, order: Sabotage): Promise<void> {
  const already = program.messages.filter((message) => message === failing).length;
  program.child.send({ sabotage: order });
  await program.until(
    () => program.messages.filter((message) => message === failing).length > already,
    "a thread to fail",
  );
}

// The limits are long enough for a thread to start on a busy machine, so that only injected faults exceed them.

/** Makes the manager hang. Returns how long the supervisor waited for its acknowledgement, in ms. */
async function measureManagerTimeout(program: TestProcess): Promise<number> {
  await sabotage(program, { thread: "manager", how: "block" });
  program.child.kill("SIGHUP");
  const { reason } = await program.line(/^manager died/);
  return Number(/(?:within|for) (\d+) ms/.exec(String(reason))?.[1]);
}

/** Does the same as `measureManagerTimeout` for an executor thread. */
async function measureExecutorTimeout(program: TestProcess): Promise<number> {
  await waitForState(client, await insertTask(client, "SELECT 1"), "DONE");
  await sabotage(program, { thread: "executor", how: "block" });
  const id = await insertTask(client, "SELECT 2");
  const { reason } = await program.line("executor thread terminated");
  await waitForState(client, id, "DONE");
  return Number(/within (\d+) ms/.exec(String(reason))?.[1]);
}

async function withDatabase(setting: string, work: () => Promise<void>): Promise<void> {
  await client.query(`ALTER ${onDatabase} SET ${setting}`);
  try {
    await work();
  } finally {
    await client.query(`ALTER ${onDatabase} RESET ALL`);
  }
}

test("§2 pg_conf.close of the file limits how long a manager may take to acknowledge its parameters", async () => {
  const program = await start({ "pg_conf.close": 6234 });
  assert.equal(await measureManagerTimeout(program), 6234);
  await program.line("serving table", 2);
  assert.equal((await program.end()).code, 0);
});

test("§2 pg_conf.close of the control database overrides the file's", async () => {
  await withDatabase("pg_conf.close = 6235", async () => {
    const program = await start({ "pg_conf.close": 50_000 });
    assert.equal(await measureManagerTimeout(program), 6235);
    await program.line("serving table", 2);
    assert.equal((await program.end()).code, 0);
  });
});

test("§2 pg_work.close of the file limits how long an executor may take to acknowledge its parameters", async () => {
  const program = await start({ "pg_work.close": 7234 });
  assert.equal(await measureExecutorTimeout(program), 7234);
  assert.equal((await program.end()).code, 0);
});

test("§2 pg_work.close of the database overrides the file's", async () => {
  await withDatabase("pg_work.close = 7235", async () => {
    const program = await start({ "pg_work.close": 50_000 });
    assert.equal(await measureExecutorTimeout(program), 7235);
    assert.equal((await program.end()).code, 0);
  });
});

for (const [level, file, database_] of [
  ["the file", 1, null],
  ["the control database", 3600, 1],
] as const) {
  test(`§2 pg_conf.restart of ${level} limits the pause before a failed manager is restarted`, async () => {
    const setting = `pg_conf.restart = ${database_ === null ? "''" : database_}`;
    await withDatabase(setting, async () => {
      const program = await start({ "pg_conf.restart": file });
      for (let death = 1; death <= 6; death += 1) {
        await sabotage(program, { thread: "manager", how: "throw" });
        await program.line("serving table", death + 1);
      }
      const pauses = program.linesMatching(/^manager died/).map((line) => Number(line["pauseMs"]));
      // Without the parameter, the sixth delay would be at least 2.4 seconds.
      assert.ok(
        pauses.every((ms) => ms <= 1000),
        String(pauses),
      );
      assert.equal((await program.end()).code, 0);
    });
  });
}

test("§2 pg_task.idle is the number of empty checks after which the executors stop", async () => {
  const program = await start({ "pg_task.sleep": 20, "pg_task.idle": 200, "pg_conf.log": "debug" });
  const id = await insertTask(client, "SELECT 1");
  await waitForState(client, id, "DONE");
  await program.line("executor threads stopped");
  const { rows } = await client.query<{ ms: number }>(
    "SELECT extract(epoch FROM clock_timestamp() - stop)::float8 * 1000 AS ms FROM task WHERE id = $1",
    [id],
  );
  // With the defaults, deep sleep would begin after 1.2 seconds. There is no upper limit, because the machine may be
  // busy.
  assert.ok((rows[0]?.ms ?? 0) > 3500, String(rows[0]?.ms));
  assert.equal((await program.end()).code, 0);
});

test("§2 pg_conf.grace is how long running tasks may take to finish at a stop", async () => {
  const [short, long] = [await start({ "pg_conf.grace": 50 }), await start({ "pg_conf.grace": 600_000 }, other.url)];
  const input = "SELECT pg_advisory_lock_shared(7)";
  for (const session of [client, otherClient]) await session.query("SELECT pg_advisory_lock(7)");
  const id = await insertTask(client, input);
  const otherId = await insertTask(otherClient, input);
  await waitForRun(client, id);
  await waitForRun(otherClient, otherId);
  long.child.kill("SIGTERM");
  assert.equal((await short.end()).code, 0);
  await waitForState(client, id, "PLAN");
  await waitForRun(otherClient, otherId);
  for (const session of [client, otherClient]) await session.query("SELECT pg_advisory_unlock(7)");
  await waitForState(otherClient, otherId, "DONE");
  assert.deepEqual(await long.exit, { code: 0, signal: null });
  await client.query("DELETE FROM task");
});
