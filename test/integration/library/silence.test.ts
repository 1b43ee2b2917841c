import assert from "node:assert/strict";
import { once } from "node:events";
import { after, it } from "node:test";
import { Client, Pool } from "pg";
import { TaskClient } from "../../../src/library/index.js";
import { createDatabase } from "../../support/database.js";
import { endPool } from "../../support/endPool.js";
import { TcpProxy } from "../../support/tcpProxy.js";

const database = await createDatabase();
const direct = new TaskClient(database.url);
after(() => direct.end());
const proxy = await TcpProxy.start(database.target.port, database.target.host);
const proxied = new URL(database.url);
proxied.hostname = "127.0.0.1";
proxied.port = String(proxy.port);
const url = proxied.href;

const later = { input: "SELECT", plan: "2100-01-01" };
/** Long enough for an answer on a busy machine, as each connection that is not frozen has to answer within it. */
const answerTimeoutMs = 1_500;
const silent = { code: "CONNECTION_LOST", retryable: true, message: /no answer within 1500 ms$/ };

/** Opens all connections of a URL's client, which the pool then keeps. */
async function openAll(tasks: TaskClient): Promise<string[]> {
  return await Promise.all([1, 2, 3, 4].map(() => tasks.add(later)));
}

it("wait goes on over another connection when its own has fallen silent, whatever number of them has", async () => {
  const ours = new TaskClient(url, { answerTimeoutMs, reconnectMs: 0 });
  await openAll(ours);
  const patient = new TaskClient(url, { answerTimeoutMs });
  const [id = ""] = await openAll(patient);
  const waiting = patient.wait(id);
  const failing = assert.rejects(ours.wait(id), silent);
  assert.equal(proxy.freeze("pg-task client"), 8);
  await direct.stop(id);
  assert.equal((await waiting).state, "STOP");
  await failing;
  await Promise.all([patient.end(), ours.end()]);
});

it("add fails in time, and the next one uses a connection that answers", async () => {
  const ours = new TaskClient(url, { answerTimeoutMs });
  await openAll(ours);
  assert.equal(proxy.freeze("pg-task client"), 4);
  await assert.rejects(ours.add(later), silent);
  assert.match(await ours.add(later), /^\d+$/);
  // Several statements, in a transaction.
  const [first = ""] = await openAll(ours);
  assert.ok(proxy.freeze("pg-task client") > 0);
  await assert.rejects(ours.addMany([{ ...later, after: [first] }, later]), silent);
  await ours.end();
});

it("end destroys connections that the server does not close", async () => {
  const ours = new TaskClient(url);
  await openAll(ours);
  assert.equal(proxy.freeze("pg-task client"), 4);
  await ours.end();
});

it("destroys a silent connection of the caller's pool instead of giving it back", async () => {
  const pool = new Pool({ connectionString: url, application_name: "callers", max: 1 });
  after(() => endPool(pool));
  const ours = new TaskClient(pool, { answerTimeoutMs });
  await ours.add(later);
  assert.equal(proxy.freeze("callers"), 1);
  const removed = once(pool, "remove");
  await assert.rejects(ours.add(later), silent);
  await removed;
  assert.equal(pool.totalCount, 0);
  assert.match(await ours.add(later), /^\d+$/);
});

it("destroys a silent connection of the caller, whose transaction is then rolled back", async () => {
  const client = new Client({ connectionString: url, application_name: "callers" });
  await client.connect();
  const ours = new TaskClient(client, { answerTimeoutMs });
  await client.query("BEGIN");
  const id = await ours.add(later);
  // Nobody listens to "error", as many programs do not: this must not end the process.
  const ended = new Promise((resolve) => client.once("end", resolve));
  assert.equal(proxy.freeze("callers"), 1);
  await assert.rejects(ours.add(later), silent);
  await ended;
  await assert.rejects(ours.add(later), { code: "CONNECTION_LOST" });
  assert.equal(await direct.get(id), null);
});

it("waits as long as is needed with Infinity", async () => {
  const holder = await database.connect();
  await holder.query("BEGIN");
  await holder.query(
    "INSERT INTO task (input, plan, key) VALUES ('SELECT', 'infinity', 'first'), ('SELECT', 'infinity', 'second')",
  );
  const impatient = new TaskClient(url, { answerTimeoutMs: 50 });
  await assert.rejects(impatient.add({ ...later, key: "first" }), { code: "CONNECTION_LOST" });
  await impatient.end();
  const patient = new TaskClient(url, { answerTimeoutMs: Infinity });
  const adding = patient.add({ ...later, key: "second" });
  await holder.query("ROLLBACK");
  assert.match(await adding, /^\d+$/);
  await patient.end();
});
