import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { freePort } from "../../../src/embedded/port.js";
import type { Client } from "../../../src/shared/postgres/client.js";
import { connectTo } from "../../support/connectTo.js";
import { test } from "../../support/limitedTest.js";
import { RestartableServer } from "../../support/restartableServer.js";
import { PgTask } from "../../support/pgTask.js";
import { startProcess } from "../../support/process.js";
import { saboteurOption, type Sabotage } from "../../support/saboteur.js";
import { insertTask, waitForRow, waitForRun, waitForState } from "../../support/waitFor.js";

const pgTask = new PgTask();
const server = await RestartableServer.create(await freePort());
await server.start();
const config = { url: server.url, "pg_task.crash": 2 };

/** A running task, and the connection that holds the advisory lock for which the task waits. */
interface BlockedTask {
  readonly id: string;
  readonly owner: string | null;
  readonly pid: number | null;
  readonly gate: Client;
}

async function startBlockedTask(): Promise<BlockedTask> {
  const gate = await connectTo(server.url);
  await gate.query("SELECT pg_advisory_lock(1)");
  const id = await insertTask(gate, "SELECT 'ran' FROM pg_advisory_xact_lock_shared(1)");
  const { owner, pid } = await waitForRun(gate, id);
  return { id, owner, pid, gate };
}

/** Waits until the task runs again, releases its lock, and checks its result. */
async function expectRescue(
  t: TestContext,
  blocked: BlockedTask,
  fault: string,
  since: number,
  blamed: boolean,
): Promise<void> {
  const { gate, id, owner } = blocked;
  await waitForRow(gate, "SELECT FROM task WHERE id = $1 AND (state = 'DONE' OR (state = 'WORK' AND owner <> $2))", [
    id,
    owner,
  ]);
  t.diagnostic(`${fault}: ${Math.round(performance.now() - since)} ms`);
  await gate.query("SELECT pg_advisory_unlock_all()");
  const { crash, output } = await waitForState(gate, id, "DONE");
  assert.deepEqual([output, crash], ["ran", blamed ? 1 : 0]);
  await gate.end();
}

test("after a thread died, its task runs again, whichever thread it was and however it died", async (t) => {
  const program = await startProcess({
    config,
    // With a small heap, a thread soon runs out of memory.
    env: { NODE_OPTIONS: `${saboteurOption} --max-old-space-size=80` },
    forked: true,
  });
  await program.line("ready");
  const rescued: string[] = [];
  for (const how of ["throw", "exit", "fill its memory"] as const) {
    for (const thread of ["executor", "manager"] as const) {
      const blocked = await startBlockedTask();
      const since = performance.now();
      const order: Sabotage = { thread, how };
      program.child.send({ sabotage: order });
      await expectRescue(t, blocked, `${thread} thread, ${how}`, since, thread === "executor");
      rescued.push(blocked.id);
      const rescue = await program.line("orphaned tasks rescued", rescued.length);
      assert.deepEqual([rescue["tasks"], rescue["ids"]], [1, [blocked.id]]);
    }
  }
  assert.equal((await program.end()).code, 0);
});

test("after the backend of a session was terminated, its task runs again", async (t) => {
  await pgTask.start(config);
  const blocked = await startBlockedTask();
  const since = performance.now();
  await blocked.gate.query("SELECT pg_terminate_backend($1)", [blocked.pid]);
  await expectRescue(t, blocked, "pg_terminate_backend of a session", since, true);
  assert.equal((await pgTask.line("session lost"))["id"], blocked.id);
});

for (const role of ["pg_work", "pg_conf"]) {
  test(`after the backend of ${role} was terminated, running tasks continue and new ones run`, async (t) => {
    const blocked = await startBlockedTask();
    const since = performance.now();
    await blocked.gate.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE $1", [
      `${role}%`,
    ]);
    const id = await insertTask(blocked.gate, "SELECT 1", "another");
    await waitForState(blocked.gate, id, "DONE");
    t.diagnostic(`pg_terminate_backend of ${role}: ${Math.round(performance.now() - since)} ms`);
    if (role === "pg_work") {
      const { owner } = await waitForRun(blocked.gate, blocked.id);
      assert.equal(owner, blocked.owner, "a live run of a lost manager is not rescued");
    }
    await blocked.gate.query("SELECT pg_advisory_unlock_all()");
    assert.equal((await waitForState(blocked.gate, blocked.id, "DONE")).crash, 0);
    await blocked.gate.end();
  });
}

test("a task that repeatedly ends its own session fails, and no other task is affected", async () => {
  const client = await connectTo(server.url);
  const poison = await insertTask(client, "SELECT pg_terminate_backend(pg_backend_pid())");
  const others: string[] = [];
  for (let each = 0; each < 20; each += 1) {
    others.push(await insertTask(client, "SELECT 1", `g ${each % 3}`));
  }
  await waitForState(client, poison, "FAIL");
  for (const id of others) assert.equal((await waitForState(client, id, "DONE")).crash, 0);
  const { rows } = await client.query("SELECT error, crash FROM task WHERE id = $1", [poison]);
  const ended = await pgTask.logged(({ msg, id }) => msg === "session lost" && id === poison);
  assert.match(String(ended["reason"]), /terminating connection due to administrator command/);
  assert.deepEqual(rows, [
    { error: `ERROR:  task took its own session down 2 times: ${String(ended["reason"])}`, crash: 2 },
  ]);
  const line = await pgTask.line("crash limit reached, task failed");
  assert.deepEqual([line["id"], line["crash"]], [poison, 2]);
  await client.end();
  await pgTask.stop();
});

test("the crash count survives the death of the process, which does not increase it", async (t) => {
  const first = await startProcess({ config });
  await first.line("ready");
  const gate = await connectTo(server.url);
  await gate.query("SELECT pg_advisory_lock(2)");
  // The first run ends its session at once. The second run waits for the lock before it does the same.
  const id = await insertTask(
    gate,
    `SELECT pg_advisory_xact_lock_shared(2) FROM task WHERE id::text = current_setting('pg_task.id') AND crash > 0;
     SELECT pg_terminate_backend(pg_backend_pid())`,
  );
  const { owner } = await waitForRow<{ owner: string }>(
    gate,
    "SELECT owner FROM task WHERE id = $1 AND state = 'WORK' AND crash = 1",
    [id],
  );
  await first.end("SIGKILL");
  const since = performance.now();
  const second = await startProcess({ config });
  await waitForRow(gate, "SELECT FROM task WHERE id = $1 AND state = 'WORK' AND crash = 1 AND owner <> $2", [
    id,
    owner,
  ]);
  t.diagnostic(`process SIGKILLed and started again: ${Math.round(performance.now() - since)} ms`);
  await gate.query("SELECT pg_advisory_unlock_all()");
  assert.equal((await waitForState(gate, id, "FAIL")).crash, 2);
  await gate.end();
  assert.equal((await second.end()).code, 0);
});
