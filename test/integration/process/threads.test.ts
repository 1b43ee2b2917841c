import assert from "node:assert/strict";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, it } from "node:test";
import type { Client } from "../../../src/shared/postgres/client.js";
import { createDatabase, type TestDatabase, serverMajor } from "../../support/database.js";
import type { LogLine } from "../../support/logLines.js";
import { startProcess, type TestProcess } from "../../support/process.js";
import { saboteurOption } from "../../support/saboteur.js";
import { insertTask, waitForRow, waitForRun, waitForState } from "../../support/tasks.js";
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

const entry = ({ target: { database: data, user } }: TestDatabase) => ({ data, user });

/** Starts pg-task so that the test can make its threads fail. */
const startSabotaged = (config: object): Promise<TestProcess> =>
  startProcess({ config: { url: database.url, ...config }, sabotaged: true, until: "ready" });

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
    await program.sabotage({ thread: "manager", how: death === 2 ? "exit" : "throw" });
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
  await program.sabotage({ thread: "manager", how: "throw" });
  await program.line(/^manager died/, 4);
  await program.stop();
});

it("runs the tasks of a dead thread again, whichever thread it was and however it died", async () => {
  // With a small heap, a thread soon runs out of memory.
  const env = { NODE_OPTIONS: `${saboteurOption} --max-old-space-size=80` };
  const program = await startProcess({ config: { url: database.url }, env, sabotaged: true, until: "ready" });
  const rescued: string[] = [];
  for (const how of ["throw", "exit", "fill its memory"] as const) {
    for (const thread of ["executor", "manager"] as const) {
      const unlock = await lock(client);
      const id = await insertTask(client, waits);
      const { owner } = await waitForRun(client, id);
      await program.sabotage({ thread, how });
      await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'WORK' AND owner <> $2", [id, owner]);
      await unlock();
      assert.equal((await waitForState(client, id, "DONE")).crash, thread === "executor" ? 1 : 0);
      rescued.push(id);
      const rescue = await program.line("orphaned tasks rescued", rescued.length);
      assert.deepEqual([rescue["tasks"], rescue["ids"]], [1, [id]]);
    }
  }
  await program.stop();
});

it("keeps the crash count when the process dies, and does not increase it", async () => {
  const config = { url: database.url, "pg_task.crash": 2 };
  const first = await startProcess({ config, until: "ready" });
  const unlock = await lock(client);
  // The first run ends its session at once. The second run waits for the lock before it does the same.
  const id = await insertTask(
    client,
    `SELECT pg_advisory_xact_lock_shared(${key}) FROM task WHERE id::text = current_setting('pg_task.id') AND crash > 0;
     SELECT pg_terminate_backend(pg_backend_pid())`,
  );
  const crashed = "SELECT owner FROM task WHERE id = $1 AND state = 'WORK' AND crash = 1";
  const { owner } = await waitForRow<{ owner: string }>(client, crashed, [id]);
  await first.end("SIGKILL");
  const second = await startProcess({ config });
  await waitForRow(client, `${crashed} AND owner <> $2`, [id, owner]);
  await unlock();
  assert.equal((await waitForState(client, id, "FAIL")).crash, 2);
  await second.stop();
});

it("leaves other managers and their tasks alone when a manager thread dies", async () => {
  const program = await startSabotaged({ "pg_task.json": [entry(database), entry(other)] });
  const unlock = await lock(otherClient);
  const id = await insertTask(otherClient, waits);
  const { owner } = await waitForRun(otherClient, id);
  await program.sabotage({ thread: 1, how: "throw" });
  await program.line("serving table", 3);
  assert.equal(program.linesMatching(/^manager died/).length, 1);
  assert.equal((await waitForRun(otherClient, id)).owner, owner);
  await unlock();
  await waitForState(otherClient, id, "DONE");
  await waitForState(client, await insertTask(client, "SELECT 1"), "DONE");
  await program.stop();
});

it("runs the tasks of a dead executor thread again, and leaves those of other threads alone", async () => {
  const program = await startSabotaged({ "pg_conf.threads": 2 });
  const unlock = await lock(client);
  await client.query(`INSERT INTO task (input, "group") SELECT $1, g FROM generate_series(1, 20) AS g`, [waits]);
  await waitForRow(client, "SELECT FROM task WHERE state = 'WORK' HAVING count(*) = 20");
  await client.query("CREATE TEMPORARY TABLE before AS SELECT id, owner FROM task");
  // Thread 1 is the manager, thread 2 the first executor thread.
  await program.sabotage({ thread: 2, how: "throw" });
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
  await program.stop();
});

it("replaces a manager thread that hangs, and runs its tasks again", async () => {
  const program = await startSabotaged({ "pg_conf.close": 6000 });
  const unlock = await lock(client);
  const id = await insertTask(client, waits);
  const { owner, pid } = await waitForRun(client, id);
  await program.sabotage({ thread: "manager", how: "block" });
  const died = await program.line(/^manager died/);
  assert.match(String(died["reason"]), /no heartbeat for 6000 ms/);
  // Before PostgreSQL 14, a backend notices only at the end of the statement that its client is gone.
  if ((await serverMajor()) < 14) await client.query("SELECT pg_terminate_backend($1)", [pid]);
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'WORK' AND owner <> $2", [id, owner]);
  await unlock();
  assert.equal((await waitForState(client, id, "DONE")).crash, 0, "it is not the task's fault");
  await program.stop();
});

for (const failure of ["process.exit(3)", "throw new Error('sabotage')"]) {
  it(`logs once that executor threads fail by ${failure}, and recovers when they start`, async () => {
    const flag = join(await temporaryFolder(), "flag");
    await writeFile(flag, "");
    const source = `
      import { existsSync } from "node:fs";
      import { isMainThread } from "node:worker_threads";
      // The file of the thread is known only when its code runs.
      if (!isMainThread) setImmediate(() => {
        if (!/manager.thread\\.cjs$/.test(process.argv[1]) && existsSync(process.env.FAIL_FLAG)) ${failure};
      });`;
    const config = { url: database.url, "pg_work.restart": 1, "pg_conf.log": "debug" };
    const env = { NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(source)}`, FAIL_FLAG: flag };
    const program = await startProcess({ config, env, until: "ready" });
    const id = await insertTask(client, "SELECT 1");
    await program.line("cannot open a session, tasks wait");
    const paused = "opening of sessions paused";
    await program.line(paused, 7);
    // Without pg_work.restart, the seventh delay would be at least 4.8 seconds.
    assert.ok(Math.max(...program.linesMatching(paused).map(pauseMs)) <= 1000);
    await rm(flag);
    assert.equal((await waitForState(client, id, "DONE")).crash, 0);
    assert.equal(program.linesMatching("cannot open a session, tasks wait").length, 1);
    await program.stop();
  });
}
