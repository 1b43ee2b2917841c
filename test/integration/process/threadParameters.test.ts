import assert from "node:assert/strict";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { startProcess, type TestProcess } from "../../support/process.js";
import { insertTask, waitForState } from "../../support/tasks.js";

/** Parameters that limit how long the process waits for its threads, and how long it pauses after they fail. */

const database = await createDatabase();
const client = await database.connect();
const onDatabase = `DATABASE ${database.target.database}`;

/** Makes an executor thread hang. Returns how long the manager waited for its acknowledgement, in ms. */
async function measureExecutorTimeout(program: TestProcess): Promise<number> {
  await waitForState(client, await insertTask(client, "SELECT 1"), "DONE");
  await program.sabotage({ thread: "executor", how: "block" });
  const id = await insertTask(client, "SELECT 2");
  const { reason } = await program.line("executor thread terminated");
  await waitForState(client, id, "DONE");
  return Number(/within (\d+) ms/.exec(String(reason))?.[1]);
}

/** Does the same as `measureExecutorTimeout` for a manager and the supervisor. */
async function measureManagerTimeout(program: TestProcess): Promise<number> {
  await program.sabotage({ thread: "manager", how: "block" });
  program.child.kill("SIGHUP");
  const { reason } = await program.line(/^manager died/);
  await program.line("serving table", 2);
  return Number(/(?:within|for) (\d+) ms/.exec(String(reason))?.[1]);
}

async function assertLimits(config: object, limits: { readonly conf: number; readonly work: number }): Promise<void> {
  const program = await startProcess({ config: { url: database.url, ...config }, sabotaged: true, until: "ready" });
  assert.equal(await measureExecutorTimeout(program), limits.work);
  assert.equal(await measureManagerTimeout(program), limits.conf);
  for (let death = 2; death <= 6; death += 1) {
    await program.sabotage({ thread: "manager", how: "throw" });
    await program.line("serving table", death + 1);
  }
  const pauses = program.linesMatching(/^manager died/).map((line) => Number(line["pauseMs"]));
  assert.ok(pauses.length >= 6, String(pauses));
  // Without pg_conf.restart, the sixth pause would be at least 2.4 seconds.
  assert.ok(Math.max(...pauses) <= 1000, String(pauses));
  // It also stops although an executor thread hangs.
  await waitForState(client, await insertTask(client, "SELECT 1"), "DONE");
  await program.sabotage({ thread: "executor", how: "block" });
  await program.stop();
}

// The limits are long enough for a thread to start on a busy machine, so that only injected faults exceed them.

test("§2 pg_conf.close and pg_work.close of the file limit how long threads may take to acknowledge their parameters, and its pg_conf.restart the pause before a failed manager is restarted", async () => {
  await assertLimits(
    { "pg_conf.close": 6234, "pg_work.close": 7234, "pg_conf.restart": 1 },
    { conf: 6234, work: 7234 },
  );
});

test("§2 pg_conf.close, pg_work.close and pg_conf.restart of the database override the file's", async () => {
  for (const setting of ["pg_conf.close = 6235", "pg_work.close = 7235", "pg_conf.restart = 1"]) {
    await client.query(`ALTER ${onDatabase} SET ${setting}`);
  }
  await assertLimits(
    { "pg_conf.close": 50_000, "pg_work.close": 50_000, "pg_conf.restart": 3600 },
    { conf: 6235, work: 7235 },
  );
});
