import assert from "node:assert/strict";
import { it } from "node:test";
import { withConnectionTo } from "../../support/connectTo.js";
import { PgTask, startPgTask } from "../../support/pgTask.js";
import { makeReplica, promote, waitForReplay } from "../../support/replica.js";
import { RestartableServer } from "../../support/restartableServer.js";
import { TcpProxy } from "../../support/tcpProxy.js";
import {
  recordEffect as effect,
  valueOf,
  insertTask,
  waitForRow,
  waitForRun,
  waitForState,
} from "../../support/tasks.js";
import { token, Web } from "../../support/web.js";
import { problemSchema } from "../../../src/web/api/model.js";
import { taskListSchema } from "../../../src/web/api/taskSchemas.js";

const program = new PgTask();
const [a, b] = [await RestartableServer.create(), await RestartableServer.create()];
await a.start();
const proxy = await TcpProxy.start(a.port);
const url = `postgresql://postgres@127.0.0.1:${proxy.port}/postgres`;

await program.start({ url });
await withConnectionTo(a.url, (client) => client.query("CREATE TABLE effect (task bigint)"));
await makeReplica(a, b);
await b.start();
await waitForReplay(a, b);

it("reads from a standby, and refuses every change there", async () => {
  const id = await withConnectionTo(a.url, (client) => insertTask(client, "SELECT 1", { plan: "infinity" }));
  await waitForReplay(a, b);
  const other = await startPgTask({
    url: a.url,
    "pg_conf.name": "other",
    "pg_task.json": [{ url: b.url }],
    "pg_http.listen": "127.0.0.1:0",
    "pg_http.token": token,
  });
  const web = await Web.connect(other);
  const path = `/api/tables/${await web.tableId()}`;
  const { tasks } = await web.get(taskListSchema, `${path}/tasks`);
  assert.deepEqual(
    tasks.map((task) => task.id),
    [id],
  );
  for (const [target, body] of [
    ["changes", { change: "stop", ids: [id] }],
    [`tasks/${id}/run-now`, {}],
    ["tasks", { input: "SELECT 1" }],
    ["pause", {}],
    ["resume", {}],
  ] as const) {
    const { status, value } = await web.post(`${path}/${target}`, body);
    const { code, detail } = problemSchema.parse(value);
    assert.deepEqual(
      [status, code, detail],
      [409, "READ_ONLY", "this server is a standby or read-only: only the primary takes changes"],
      target,
    );
  }
  await other.stop();
});

it("follows an address that moves to a standby, and waits there until it is the primary", async (context) => {
  const running = await withConnectionTo(a.url, async (client) => {
    const id = await insertTask(client, `SELECT pg_sleep(0.2); ${effect}`);
    await waitForRun(client, id);
    await waitForReplay(a, b);
    return id;
  });
  proxy.moveTo(b.port);
  await a.crash();
  const from = performance.now();
  await proxy.connected("pg_conf", 6);
  context.diagnostic(`four attempts at the standby took ${Math.round(performance.now() - from)} ms`);
  const standby = /the server is a standby$/;
  const refused = program.lines.filter(({ reason }) => standby.test(String(reason)));
  assert.deepEqual(
    new Set(refused.map(({ msg, code }) => `${msg}: ${String(code)}`)),
    new Set([
      "control connection failed, retrying: CONNECTION_READ_ONLY",
      "manager unavailable, retrying: CONNECTION_READ_ONLY",
    ]),
  );
  assert.equal(refused.length, 2);
  await promote(b);
  await withConnectionTo(b.url, async (client) => {
    await waitForState(client, running, "DONE");
    await waitForState(client, await insertTask(client, effect), "DONE");
    assert.equal(await valueOf(client, "SELECT count(*)::int AS effects FROM effect"), 2);
  });
  assert.equal(program.lines.filter(({ reason }) => standby.test(String(reason))).length, 2);
});

it("leaves a server that lives on, when its address leads to another one and a session is needed", async () => {
  await makeReplica(b, a);
  await a.start();
  await waitForReplay(b, a);
  await withConnectionTo(b.url, async (old) => {
    await old.query("SELECT pg_advisory_lock(1)");
    const blocked = await insertTask(old, `SELECT pg_advisory_lock_shared(1); ${effect}`, { group: "blocked" });
    await waitForRun(old, blocked);
    await waitForReplay(b, a);
    await promote(a);
    proxy.moveTo(a.port);
    // The connections to the old server stay open. This task needs another session there, which reaches the new one.
    const served = program.linesMatching("serving table").length;
    const left = await insertTask(old, effect, { group: "left behind" });
    await program.line("serving table", served + 1);
    const reasons = program.lines.filter(({ code }) => code === "CONNECTION_MOVED").map(({ msg }) => msg);
    assert.deepEqual(reasons, ["manager unavailable, retrying"]);
    await withConnectionTo(a.url, async (client) => {
      await waitForState(client, blocked, "DONE");
      await waitForState(client, await insertTask(client, effect), "DONE");
      assert.equal(await valueOf(client, "SELECT count(*)::int AS effects FROM effect"), 4);
    });
    // Nothing is claimed on the old server any more.
    await waitForRow(
      old,
      "SELECT WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name ~ '^pg_task ')",
    );
    assert.equal((await waitForState(old, left, "PLAN")).owner, null);
    const { rows } = await old.query("SELECT count(*)::int AS effects FROM effect");
    assert.deepEqual(rows, [{ effects: 2 }]);
  });
});

it("waits for a server that turned read-only, says so once, and goes on when it can be written again", async () => {
  const readOnly = await startPgTask({
    url: `${a.url}?target_session_attrs=read-write`,
    "pg_conf.name": "another",
    "pg_task.table": "other",
  });
  await withConnectionTo(a.url, async (client) => {
    const set = async (value: string): Promise<void> => {
      await client.query(`ALTER SYSTEM SET default_transaction_read_only = ${value}`);
      await client.query("SELECT pg_reload_conf()");
    };
    await set("on");
    const { rows } = await client.query<{ id: string }>("INSERT INTO other (input) VALUES ($1) RETURNING id", [effect]);
    const refused = /its sessions are read-only \(default_transaction_read_only is on\)$/;
    await readOnly.until(() => readOnly.lines.some(({ reason }) => refused.test(String(reason))), "the reason");
    await set("off");
    await waitForRow(client, "SELECT FROM other WHERE id = $1 AND state = 'DONE'", [rows[0]?.id]);
    assert.equal(readOnly.lines.filter(({ reason }) => refused.test(String(reason))).length, 1);
  });
  await readOnly.stop();
  await program.stop();
});
