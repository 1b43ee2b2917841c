import assert from "node:assert/strict";
import { once } from "node:events";
import { after, it } from "node:test";
import { Client, Pool } from "pg";
import { parseOutput, TaskClient } from "../../../src/library/index.js";
import { endPool } from "../../support/endPool.js";
import { createDatabase } from "../../support/database.js";
import { closeGate, waitAt } from "../../support/gates.js";
import { PgTask } from "../../support/pgTask.js";
import { TcpProxy } from "../../support/tcpProxy.js";

const closing: (() => Promise<unknown>)[] = [];
const pgTask = new PgTask();
after(() => Promise.all(closing.map((close) => close())));
const database = await createDatabase();
const { url } = database;
await pgTask.start({ url, "pg_task.sleep": 100 });
const tasks = new TaskClient(url);
closing.push(() => tasks.end());

it("resolves with the outcome, whatever it is", async () => {
  const [done = "", fail = "", gone = "", stop = ""] = await tasks.addMany([
    { input: "SELECT 42 AS answer", group: "1" },
    { input: "SELECT 1/0", group: "2" },
    { input: "SELECT", group: "3", plan: "2000-01-01", active: "1 second" },
    { input: "SELECT", group: "4", plan: "2100-01-01" },
  ]);
  await tasks.stop(stop);
  assert.deepEqual(await tasks.wait(done), { id: done, state: "DONE", output: "42", error: null });
  const failed = await tasks.wait(fail);
  assert.equal(failed.state, "FAIL");
  assert.match(failed.error ?? "", /^ERROR: {2}division by zero\n/);
  assert.deepEqual(await tasks.wait(gone), { id: gone, state: "GONE", output: null, error: "ERROR:  task not active" });
  assert.deepEqual(await tasks.wait(stop), { id: stop, state: "STOP", output: null, error: null });
});

it("returns the rows of outputs, whatever the task's settings are", async () => {
  const statements =
    "SELECT 1 AS n, E'a\\t\\n''\"\\\\' AS t, NULL AS nil, '' AS empty; CREATE TEMP TABLE once (); SELECT true AS yes";
  const row = { n: "1", t: "a\t\n'\"\\", nil: null, empty: "" };
  for (const format of [
    { quote: '"', escape: '"' },
    { quote: "'", escape: "\\", delimiter: ",", null: "" },
    { quote: '"', escape: "\\", string: false },
  ]) {
    const id = await tasks.add({ input: statements, ...format });
    assert.equal((await tasks.wait(id)).state, "DONE");
    const task = await tasks.get(id);
    assert.ok(task !== null);
    assert.deepEqual(parseOutput(task), [row, { 1: "CREATE TABLE" }, { 1: "t" }], JSON.stringify(format));
  }
});

it("waits for many tasks with one connection", async () => {
  const pool = new Pool({ connectionString: url, max: 1 });
  closing.push(() => endPool(pool));
  const ours = new TaskClient(pool);
  const ids = await ours.addMany(Array.from({ length: 200 }, (_, n) => ({ input: `SELECT ${n}`, max: 10 })));
  const controller = new AbortController();
  const warnings: Error[] = [];
  const onWarning = (warning: Error): void => void warnings.push(warning);
  process.on("warning", onWarning);
  const outcomes = await Promise.all(ids.map((id) => ours.wait(id, { signal: controller.signal })));
  process.off("warning", onWarning);
  assert.deepEqual(warnings, []);
  assert.deepEqual(
    outcomes.map(({ output }) => output),
    ids.map((_, n) => String(n)),
  );
});

async function drain(iterator: AsyncIterable<unknown>): Promise<void> {
  for await (const each of iterator) assert.ok(each !== undefined);
}

it("does not start, or stops, when its signal is aborted, and leaves the task alone", async () => {
  const open = await closeGate(database, "aborted");
  const id = await tasks.add({ input: waitAt("aborted"), delete: false });
  await assert.rejects(tasks.wait(id, { signal: AbortSignal.abort(new Error("too late")) }), /too late/);
  const controller = new AbortController();
  const waiting = tasks.wait(id, { signal: controller.signal });
  controller.abort();
  await assert.rejects(waiting, { name: "AbortError" });
  // Any value can be a reason, and is passed on as it is.
  for (const reason of ["why", null, { code: 7 }]) {
    const ending = new AbortController();
    const signal = ending.signal;
    const calls = [
      tasks.wait(id, { signal }),
      tasks.wait(id, { signal: AbortSignal.abort(reason) }),
      drain(tasks.changes({ ids: [id], signal })),
      drain(tasks.list({ signal: AbortSignal.abort(reason) })),
    ];
    const settled = Promise.allSettled<unknown>(calls);
    ending.abort(reason);
    assert.deepEqual(
      await settled,
      calls.map(() => ({ status: "rejected", reason })),
    );
  }
  const untouched = tasks.wait(id);
  await open();
  assert.equal((await untouched).state, "DONE");
});

it("fails with TASK_MISSING if the row is deleted meanwhile, or was never there", async () => {
  const open = await closeGate(database, "deleted");
  const id = await tasks.add(waitAt("deleted"));
  const pool = new Pool({ connectionString: url });
  closing.push(() => endPool(pool));
  const polled = once(pool, "release");
  const waiting = new TaskClient(pool).wait(id);
  const missing = assert.rejects(waiting, {
    code: "TASK_MISSING",
    message: /was deleted while its end was waited for/,
  });
  for await (const { state } of tasks.changes({ ids: [id] })) if (state === "WORK") break;
  await polled;
  await open();
  await missing;
  await assert.rejects(tasks.wait(1_000_000), { code: "TASK_MISSING", message: /no task 1000000 in "public"\."task"/ });
});

it("fails with CONNECTION_CLOSED when the client is ended", async () => {
  const ours = new TaskClient(url);
  const id = await ours.add({ input: "SELECT", plan: "2100-01-01" });
  const waiting = ours.wait(id);
  const failed = assert.rejects(waiting, { code: "CONNECTION_CLOSED" });
  await ours.end();
  await failed;
});

/** Ends every backend with this application name. Resolves when at least one was ended. */
async function terminate(name: string): Promise<void> {
  const client = await database.connect();
  for (let ended = 0; ended === 0;) {
    const { rowCount } = await client.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database()",
      [name],
    );
    ended = rowCount ?? 0;
  }
}

it("goes on over a pool when its connection is lost", async () => {
  const open = await closeGate(database, "lost");
  const pool = new Pool({ connectionString: url, application_name: "library wait", max: 1 });
  pool.on("error", () => {});
  closing.push(() => endPool(pool));
  const ours = new TaskClient(pool);
  const id = await ours.add({ input: waitAt("lost"), delete: false });
  const waiting = ours.wait(id);
  await terminate("library wait");
  await open();
  assert.equal((await waiting).state, "DONE");
});

it("fails with CONNECTION_LOST over a client when its connection is lost", async () => {
  const client = new Client({ connectionString: url, application_name: "library client" });
  client.on("error", () => {});
  await client.connect();
  const ours = new TaskClient(client);
  const id = await ours.add({ input: "SELECT", plan: "2100-01-01" });
  const failed = assert.rejects(ours.wait(id), { code: "CONNECTION_LOST", message: /connection to the server lost/ });
  await terminate("library client");
  await failed;
});

it("gives up when the server stays away for longer than reconnectMs", async () => {
  const { host, port, user, database: name } = database.target;
  const proxy = await TcpProxy.start(port, host);
  const pool = new Pool({ connectionString: `postgresql://${user}@127.0.0.1:${proxy.port}/${name}`, max: 1 });
  pool.on("error", () => {});
  const ours = new TaskClient(pool, { reconnectMs: 200 });
  const id = await ours.add({ input: "SELECT", plan: "2100-01-01" });
  const failed = assert.rejects(ours.wait(id), { family: "CONNECTION" });
  proxy.refuse();
  await failed;
  await endPool(pool);
});

it("runs a task that was joined only when the transaction that joined it has committed", async () => {
  const client = new Client({ connectionString: url });
  await client.connect();
  closing.push(() => client.end());
  await client.query("CREATE TABLE doc (version integer)");
  await client.query("INSERT INTO doc VALUES (1)");
  // While the group is paused, the task waits although it is due.
  await client.query(`INSERT INTO task_pause ("group") VALUES ('joined')`);
  const request = { input: "SELECT version FROM doc", key: "index", group: "joined" };
  const id = await tasks.add(request);
  await client.query("BEGIN");
  await client.query("UPDATE doc SET version = 2");
  assert.equal(await tasks.add(request, { client, ifKeyTaken: "join" }), id);
  const later = await tasks.add({ input: "SELECT 1", group: "joined" });
  const other = await database.connect();
  await other.query(`DELETE FROM task_pause WHERE "group" = 'joined'`);
  // The manager has passed the task, whose row is locked.
  assert.equal((await tasks.wait(later)).state, "DONE");
  assert.equal((await tasks.get(id))?.state, "PLAN");
  await client.query("COMMIT");
  assert.equal((await tasks.wait(id)).output, "2");
});
