import assert from "node:assert/strict";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, it } from "node:test";
import type { Client } from "../../../src/shared/postgres/client.js";
import { createDatabase, onServer, type TestDatabase } from "../../support/database.js";
import type { LogLine } from "../../support/logLines.js";
import { startPgTask } from "../../support/pgTask.js";
import { startProcess, type TestProcess } from "../../support/process.js";
import { failing, saboteurOption, type Sabotage } from "../../support/saboteur.js";
import { insertTask, waitForRow, waitForRun, waitForState } from "../../support/waitFor.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";

const database = await createDatabase();
const other = await createDatabase();
const client = await database.connect();
const otherClient = await other.connect();

/** Key of the advisory lock for which tasks wait. */
const key = 1;

beforeEach(async () => {
  await client.query("DELETE FROM task");
  await otherClient.query("DELETE FROM task");
});

const entry = ({ target }: TestDatabase, more: object = {}) => ({
  data: target.database,
  user: target.user,
  ...more,
});

/** Starts pg-task so that the test can make its threads fail. */
async function startSabotaged(config: object, ready = "ready"): Promise<TestProcess> {
  const program = await startProcess({
    config: { url: database.url, ...config },
    env: { NODE_OPTIONS: saboteurOption },
    forked: true,
  });
  await program.line(ready);
  return program;
}

async function sabotage(program: TestProcess, order: Sabotage): Promise<void> {
  const before = program.messages.filter((message) => message === failing).length;
  program.child.send({ sabotage: order });
  await program.until(
    () => program.messages.filter((message) => message === failing).length > before,
    "a thread to fail",
  );
}

async function lock(session: Client): Promise<() => Promise<unknown>> {
  await session.query("SELECT pg_advisory_lock($1)", [key]);
  return () => session.query("SELECT pg_advisory_unlock($1)", [key]);
}

const waits = `SELECT pg_advisory_lock_shared(${key})`;
const pauseMs = (line: LogLine) => Number(line["pauseMs"]);

it("restarts a manager whose thread died, after increasing pauses", async () => {
  const program = await startSabotaged({});
  const unlock = await lock(client);
  const id = await insertTask(client, waits);
  const { owner } = await waitForRun(client, id);
  for (let death = 1; death <= 3; death += 1) {
    await sabotage(program, { thread: "manager", how: death === 2 ? "exit" : "throw" });
    await program.line(/^manager died/, death);
    await program.line("serving table", death + 1);
  }
  const pauses = program.linesMatching(/^manager died/).map(pauseMs);
  assert.deepEqual(
    pauses,
    pauses.toSorted((a, b) => a - b),
  );
  assert.ok((pauses[0] ?? 0) < (pauses[2] ?? 0), String(pauses));
  await unlock();
  const later = await waitForState(client, id, "DONE");
  assert.notEqual(later.owner, owner);
  assert.equal(later.crash, 0);
  assert.equal(program.linesMatching("ready").length, 1);
  // It also stops while a manager waits to be restarted.
  await sabotage(program, { thread: "manager", how: "throw" });
  await program.line(/^manager died/, 4);
  assert.deepEqual(await program.end(), { code: 0, signal: null });
});

it("leaves other managers and their tasks alone when a manager thread dies", async () => {
  const program = await startSabotaged({ "pg_task.json": [entry(database), entry(other)] });
  const unlock = await lock(otherClient);
  const id = await insertTask(otherClient, waits);
  const { owner } = await waitForRun(otherClient, id);
  await sabotage(program, { thread: 1, how: "throw" });
  await program.line("serving table", 3);
  assert.equal(program.linesMatching(/^manager died/).length, 1);
  assert.equal((await waitForRun(otherClient, id)).owner, owner);
  await unlock();
  await waitForState(otherClient, id, "DONE");
  await waitForState(client, await insertTask(client, "SELECT 1"), "DONE");
  assert.equal((await program.end()).code, 0);
});

it("runs the tasks of a dead executor thread again, and leaves those of other threads alone", async () => {
  const program = await startSabotaged({ "pg_conf.threads": 2 });
  const unlock = await lock(client);
  await client.query(`INSERT INTO task (input, "group") SELECT $1, g FROM generate_series(1, 20) AS g`, [waits]);
  await waitForRow(client, "SELECT FROM task WHERE state = 'WORK' HAVING count(*) = 20");
  await client.query("CREATE TEMPORARY TABLE before AS SELECT id, owner FROM task");
  // Thread 1 is the manager, thread 2 the first executor thread.
  await sabotage(program, { thread: 2, how: "throw" });
  await program.line("executor thread died");
  await waitForRow(client, "SELECT FROM task WHERE state = 'WORK' AND crash = 1 HAVING count(*) = 16");
  const { rows } = await client.query(
    `SELECT count(*)::int AS tasks, crash, task.owner = before.owner AS undisturbed
     FROM task JOIN before USING (id) GROUP BY 2, 3 ORDER BY 2`,
  );
  assert.deepEqual(rows, [
    { tasks: 4, crash: 0, undisturbed: true },
    { tasks: 16, crash: 1, undisturbed: false },
  ]);
  await unlock();
  await waitForRow(client, "SELECT FROM task WHERE state = 'DONE' HAVING count(*) = 20");
  assert.equal((await program.end()).code, 0);
});

it("terminates an executor thread that hangs, runs its tasks in another, and stops although one hangs", async () => {
  const program = await startSabotaged({ "pg_work.close": 6000 });
  await waitForState(client, await insertTask(client, "SELECT 1"), "DONE");
  await sabotage(program, { thread: "executor", how: "block" });
  const id = await insertTask(client, "SELECT 2");
  await program.line("executor thread terminated");
  await waitForState(client, id, "DONE");
  await sabotage(program, { thread: "executor", how: "block" });
  assert.deepEqual(await program.end(), { code: 0, signal: null });
});

for (const failure of ["process.exit(3)", "throw new Error('sabotage')"]) {
  it(`logs once that executor threads fail by ${failure}, and recovers when they start`, async () => {
    const flag = join(await temporaryFolder(), "flag");
    await writeFile(flag, "");
    const source = `
      import { existsSync } from "node:fs";
      import { isMainThread, workerData } from "node:worker_threads";
      const isExecutor = !isMainThread && !(workerData?.buffer instanceof SharedArrayBuffer);
      if (isExecutor && existsSync(process.env.FAIL_FLAG)) ${failure}`;
    const program = await startProcess({
      config: { url: database.url, "pg_work.restart": 1, "pg_conf.log": "debug" },
      env: {
        NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(source)}`,
        FAIL_FLAG: flag,
      },
    });
    await program.line("ready");
    const id = await insertTask(client, "SELECT 1");
    await program.line("cannot open a session, tasks wait");
    const paused = "opening of sessions paused";
    await program.line(paused, 7);
    const pauses = program.linesMatching(paused).map((line) => Number(line["pauseMs"]));
    // Without pg_work.restart, the seventh delay would be at least 4.8 seconds.
    assert.ok(
      pauses.every((ms) => ms <= 1000),
      String(pauses),
    );
    await rm(flag);
    assert.equal((await waitForState(client, id, "DONE")).crash, 0);
    assert.equal(program.linesMatching("cannot open a session, tasks wait").length, 1);
    assert.equal((await program.end()).code, 0);
  });
}

it("serves the other entries, and retries the one whose database is missing", async () => {
  const missing = `${database.target.database}_later`;
  const program = await startPgTask({
    url: database.url,
    "pg_conf.restart": 1,
    "pg_task.json": [{ data: missing, user: "postgres", create: false }, entry(database), entry(other)],
  });
  const wait = await program.line("role or database unavailable, retrying");
  assert.match(String(wait["reason"]), new RegExp(`database.*${missing}`));
  for (const each of [client, otherClient]) {
    await waitForState(each, await insertTask(each, "SELECT 1"), "DONE");
  }
  await onServer((server) => server.query(`CREATE DATABASE ${missing} TEMPLATE test_template`));
  await program.line("serving table", 3);
  assert.equal(program.linesMatching("role or database unavailable, retrying").length, 1);
  await program.stop();
  await onServer((server) => server.query(`DROP DATABASE ${missing}`));
});
