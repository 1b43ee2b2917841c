import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { freePort } from "../../../src/embedded/port.js";
import type { Client } from "../../../src/shared/postgres/client.js";
import { connectTo } from "../../support/connectTo.js";
import { test } from "../../support/limitedTest.js";
import { OwnServer } from "../../support/ownServer.js";
import { startProcess, type ProcessOptions, type TestProcess } from "../../support/process.js";
import type { Sabotage } from "../../support/saboteur.js";
import { insertTask, waitForRow, waitForState } from "../../support/waitFor.js";

const server = await OwnServer.at(await freePort());
await server.start();
const saboteur = new URL("../../support/saboteur.js", import.meta.url).href;
const config = { url: server.url };
const forked: ProcessOptions = { config, forked: true };
/** So little memory that a thread soon has none left. */
const sabotaged: ProcessOptions = {
  config,
  env: { NODE_OPTIONS: `--import ${saboteur} --max-old-space-size=80` },
  forked: true,
};

/** A task that runs until the test lets it, and the connection that holds it. */
interface Held {
  readonly id: string;
  readonly owner: string | null;
  readonly pid: number | null;
  gate: Client;
}

async function hold(): Promise<Held> {
  const gate = await connectTo(server.url);
  await gate.query("SELECT pg_advisory_lock(1)");
  const id = await insertTask(gate, "SELECT 'ran' FROM pg_advisory_xact_lock_shared(1)");
  const { owner, pid } = await waitForState(gate, id, "WORK");
  return { id, owner, pid, gate };
}

/** Waits until the task runs again, lets it, and checks how it ended. */
async function rescued(
  t: TestContext,
  held: Held,
  fault: string,
  since: number,
  blamed: boolean,
): Promise<void> {
  const { gate, id, owner } = held;
  await waitForRow(
    gate,
    "SELECT FROM task WHERE id = $1 AND (state = 'DONE' OR (state = 'WORK' AND owner <> $2))",
    [id, owner],
  );
  t.diagnostic(`${fault}: ${Math.round(performance.now() - since)} ms`);
  await gate.query("SELECT pg_advisory_unlock_all()");
  const { crash, output } = await waitForState(gate, id, "DONE");
  assert.deepEqual([output, crash], ["ran", blamed ? 1 : 0]);
  await gate.end();
}

function sabotage(program: TestProcess, order: Sabotage): void {
  program.child.send({ sabotage: order });
}

for (const how of ["throw", "exit", "fill its memory"] as const) {
  for (const thread of ["executor", "manager"] as const) {
    test(`the ${thread}'s thread dies (${how}): its task runs again`, async (t) => {
      const program = await startProcess(sabotaged);
      await program.line("ready");
      const held = await hold();
      const since = performance.now();
      sabotage(program, { thread, how });
      await rescued(t, held, `${thread} thread, ${how}`, since, thread === "executor");
      await program.line("orphaned tasks rescued");
      const said = program.said("orphaned tasks rescued")[0];
      assert.deepEqual([said?.["tasks"], said?.["ids"]], [1, [held.id]]);
      assert.equal((await program.end()).code, 0);
    });
  }
}

test("the process is killed and started again: its task runs again", async (t) => {
  const first = await startProcess(forked);
  await first.line("ready");
  const held = await hold();
  await first.end("SIGKILL");
  const since = performance.now();
  const second = await startProcess(forked);
  await rescued(t, held, "process SIGKILLed and started again", since, false);
  assert.equal((await second.end()).code, 0);
});

for (const running of [true, false]) {
  test(`the process is killed with a standby waiting, ${running ? "a task running" : "idle"}`, async (t) => {
    const first = await startProcess(forked);
    await first.line("ready");
    const second = await startProcess(forked);
    await second.line("standby");
    const held = running ? await hold() : null;
    const since = performance.now();
    await first.end("SIGKILL");
    await second.line("ready");
    t.diagnostic(`standby ready: ${Math.round(performance.now() - since)} ms`);
    if (held !== null) await rescued(t, held, "process SIGKILLed, standby", since, false);
    else {
      const client = await connectTo(server.url);
      await waitForState(client, await insertTask(client, "SELECT 1"), "DONE");
      await client.end();
    }
    assert.equal((await second.end()).code, 0);
  });
}

test("an executor's server process is ended: its task runs again", async (t) => {
  const program = await startProcess(forked);
  await program.line("ready");
  const held = await hold();
  const since = performance.now();
  await held.gate.query("SELECT pg_terminate_backend($1)", [held.pid]);
  await rescued(t, held, "pg_terminate_backend of an executor", since, true);
  assert.equal((await program.line("session lost"))["id"], held.id);
  assert.equal((await program.end()).code, 0);
});

for (const role of ["pg_work", "pg_conf"]) {
  test(`the server process of ${role} is ended: what runs goes on, and a new task runs`, async (t) => {
    const program = await startProcess(forked);
    await program.line("ready");
    const held = await hold();
    const since = performance.now();
    await held.gate.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE $1",
      [`${role}%`],
    );
    const id = await insertTask(held.gate, "SELECT 1", "another");
    await waitForState(held.gate, id, "DONE");
    t.diagnostic(`pg_terminate_backend of ${role}: ${Math.round(performance.now() - since)} ms`);
    if (role === "pg_work") {
      const { owner } = await waitForState(held.gate, held.id, "WORK");
      assert.equal(owner, held.owner, "a live run of a lost manager is not rescued");
    }
    await held.gate.query("SELECT pg_advisory_unlock_all()");
    assert.equal((await waitForState(held.gate, held.id, "DONE")).crash, 0);
    await held.gate.end();
    assert.equal((await program.end()).code, 0);
  });
}

for (const how of ["fast", "immediate", "killed"] as const) {
  test(`the server is restarted (${how}): its task runs again`, async (t) => {
    const program = await startProcess(forked);
    await program.line("ready");
    const held = await hold();
    if (how === "fast") await server.stop();
    else await server.crash(how === "killed" ? "SIGKILL" : "SIGQUIT");
    await server.start();
    const since = performance.now();
    held.gate = await connectTo(server.url);
    await rescued(t, held, `server restarted, ${how}`, since, false);
    assert.equal((await program.end()).code, 0);
  });
}

test("a task that ends its session each time is FAIL and says so, and draws in no other", async () => {
  const program = await startProcess({ config: { ...config, "pg_task.crash": 2 } });
  await program.line("ready");
  const client = await connectTo(server.url);
  const poison = await insertTask(client, "SELECT pg_terminate_backend(pg_backend_pid())");
  const others: string[] = [];
  for (let each = 0; each < 20; each += 1) {
    others.push(await insertTask(client, "SELECT 1", `g ${each % 3}`));
  }
  await waitForState(client, poison, "FAIL");
  for (const id of others) assert.equal((await waitForState(client, id, "DONE")).crash, 0);
  const { rows } = await client.query("SELECT error, crash FROM task WHERE id = $1", [poison]);
  assert.deepEqual(rows, [{ error: "ERROR:  task took its own session down 2 times", crash: 2 }]);
  const said = await program.line("task took its own session down too often, it is FAIL");
  assert.deepEqual([said["id"], said["crash"]], [poison, 2]);
  await client.end();
  assert.equal((await program.end()).code, 0);
});

test("what a task's own deaths have come to is not forgotten when the process dies, whose death does not count", async () => {
  const crash = { config: { ...config, "pg_task.crash": 2 } };
  const first = await startProcess(crash);
  await first.line("ready");
  const gate = await connectTo(server.url);
  await gate.query("SELECT pg_advisory_lock(2)");
  // Its second run waits first.
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
  const second = await startProcess(crash);
  await second.line("ready");
  await waitForRow(
    gate,
    "SELECT FROM task WHERE id = $1 AND state = 'WORK' AND crash = 1 AND owner <> $2",
    [id, owner],
  );
  await gate.query("SELECT pg_advisory_unlock_all()");
  assert.equal((await waitForState(gate, id, "FAIL")).crash, 2);
  await gate.end();
  assert.equal((await second.end()).code, 0);
});
