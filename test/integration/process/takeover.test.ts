import assert from "node:assert/strict";
import { beforeEach, it, type TestContext } from "node:test";
import { lockClasses } from "../../../src/shared/postgres/advisoryLocks.js";
import { createDatabase, serverMajor } from "../../support/database.js";
import { processesOfFile, type ProcessOptions, type TestProcess } from "../../support/process.js";
import { failing, saboteurOption, type Sabotage } from "../../support/saboteur.js";
import { insertTask, waitForRow, waitForRun, waitForState } from "../../support/waitFor.js";

const startProcess = await processesOfFile();
const database = await createDatabase();
const client = await database.connect();
const same: ProcessOptions = { config: { url: database.url }, forked: true };

beforeEach(() => client.query("DELETE FROM task"));

let last: TestProcess | null = null;

/** Starts a standby beside the leader that the test before has left, or beside a new one. */
async function startPair(): Promise<{ leader: TestProcess; standby: TestProcess }> {
  const leader = last ?? (await startProcess(same));
  await leader.line("ready");
  const standby = await startProcess(same);
  await standby.line("standby");
  return { leader, standby };
}

/** Inserts a task, waits until it is DONE, and reports how long this took. */
async function reportTimeToNextTask(context: TestContext, what: string): Promise<void> {
  const before = performance.now();
  await waitForState(client, await insertTask(client, "SELECT 1", what), "DONE");
  context.diagnostic(`${what}: the next task was done after ${Math.round(performance.now() - before)} ms`);
}

for (const [what, signal, running] of [
  ["a clean stop", "SIGTERM", false],
  ["SIGKILL", "SIGKILL", false],
  ["SIGKILL with statements running", "SIGKILL", true],
] as const) {
  it(`the standby runs the next task after ${what} of the leader`, async (context) => {
    const { leader, standby } = await startPair();
    if (running) {
      const ids = await Promise.all(
        Array.from({ length: 4 }, (_, n) => insertTask(client, "SELECT pg_sleep(600)", `long${n}`)),
      );
      for (const id of ids) await waitForRun(client, id);
    }
    leader.child.kill(signal);
    await reportTimeToNextTask(context, what);
    await standby.line("ready");
    await leader.exit;
    await client.query("UPDATE task SET state = 'STOP' WHERE input ~ 'pg_sleep'");
    last = standby;
  });
}

it("logs ready once, however often it becomes leader", async () => {
  const { leader, standby } = await startPair();
  const leaderPid = `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2
    AND classid = ${lockClasses.supervisor} AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`;
  /** Terminates the leader's connection, and waits until another connection has the lock. */
  const switchLeader = async (): Promise<void> => {
    const { pid } = await waitForRow<{ pid: number }>(client, leaderPid);
    await client.query("SELECT pg_terminate_backend($1)", [pid]);
    await waitForRow(client, `${leaderPid} AND pid <> ${pid}`);
  };
  const leads = () => [leader, standby].map((each) => each.linesMatching("became leader").length);
  // Either process may get the lock, so the test repeats this until each of them has become leader twice.
  while (leads().some((times) => times < 2)) {
    await switchLeader();
    await waitForState(client, await insertTask(client, "SELECT 1"), "DONE");
  }
  assert.equal((await leader.end()).code, 0);
  assert.equal((await standby.end()).code, 0);
  for (const each of [leader, standby]) {
    assert.equal(each.linesMatching("ready").length, 1);
    assert.deepEqual(each.messages, ["ready"]);
  }
});

it("replaces a manager thread that hangs, and runs its tasks again", async () => {
  const program = await startProcess({
    config: { url: database.url, "pg_conf.close": 6000 },
    env: { NODE_OPTIONS: saboteurOption },
    forked: true,
  });
  await program.line("ready");
  await client.query("SELECT pg_advisory_lock(1)");
  const id = await insertTask(client, "SELECT pg_advisory_lock_shared(1)");
  const { owner, pid } = await waitForRun(client, id);
  const order: Sabotage = { thread: "manager", how: "block" };
  program.child.send({ sabotage: order });
  await program.message(failing);
  const died = await program.line(/^manager died/);
  assert.match(String(died["reason"]), /no heartbeat for 6000 ms/);
  // Before PostgreSQL 14, a backend notices only at the end of the statement that its client is gone.
  if ((await serverMajor()) < 14) await client.query("SELECT pg_terminate_backend($1)", [pid]);
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'WORK' AND owner <> $2", [id, owner]);
  await client.query("SELECT pg_advisory_unlock(1)");
  assert.equal((await waitForState(client, id, "DONE")).crash, 0, "it is not the task's fault");
  assert.equal((await program.end()).code, 0);
});
