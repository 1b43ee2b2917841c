import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { after, it } from "node:test";
import { Pool } from "pg";
import { TaskClient, type SqlPool, type SqlPoolClient } from "../../../src/library/index.js";
import { endPool } from "../../support/endPool.js";
import { createDatabase } from "../../support/database.js";

const closing: (() => Promise<unknown>)[] = [];
after(() => Promise.all(closing.map((close) => close())));
const { url } = await createDatabase();
const tasks = new TaskClient(url);
closing.push(() => tasks.end());

function openPool(max?: number): Pool {
  const pool = new Pool({ connectionString: url, ...(max === undefined ? {} : { max }) });
  closing.push(() => endPool(pool));
  return pool;
}

/** Returns the pool with another way to take a client out of it. */
const withConnect = (pool: Pool, connect: () => Promise<SqlPoolClient>): SqlPool => ({
  connect,
  get totalCount() {
    return pool.totalCount;
  },
  get idleCount() {
    return pool.idleCount;
  },
  get waitingCount() {
    return pool.waitingCount;
  },
});

const later = { input: "SELECT", plan: "2100-01-01" };
const busy = { code: "CONNECTION_BUSY", retryable: true };

it("changes looks at the table soon after an outage, however long it was", async (context) => {
  const pool = openPool();
  const now = performance.now.bind(performance);
  let aheadMs = 0;
  context.mock.method(performance, "now", () => now() + aheadMs);
  let isDown = false;
  const events = new EventEmitter();
  const outage = once(events, "outage");
  const flaky = withConnect(pool, async () => {
    if (!isDown) return await pool.connect();
    isDown = false;
    aheadMs += 3_600_000;
    events.emit("outage");
    throw new Error("connect ECONNREFUSED");
  });
  const ours = new TaskClient(flaky, { reconnectMs: Infinity });
  const id = await tasks.add(later);
  const changes = ours.changes({ ids: [id] });
  assert.deepEqual(await changes.next(), { value: { id, previous: null, state: "PLAN" }, done: false });
  isDown = true;
  const next = changes.next();
  await outage;
  // The first look after the outage, which finds no change. The next one follows after a pause.
  await once(pool, "release");
  await tasks.stop(id);
  assert.deepEqual(await next, { value: { id, previous: "PLAN", state: "STOP" }, done: false });
});

it("with an exhausted pool, every call fails in time, and the pool's queue does not grow", async () => {
  const pool = openPool(1);
  const ours = new TaskClient(pool, { acquireTimeoutMs: 20 });
  const held = await pool.connect();
  for (let round = 0; round < 5; round += 1) {
    await assert.rejects(ours.add("SELECT"), busy);
    await assert.rejects(ours.wait(1), busy);
    await assert.rejects(ours.list().next(), busy);
    await assert.rejects(ours.changes().next(), busy);
    assert.equal(pool.waitingCount, 1);
  }
  await Promise.all([assert.rejects(ours.wait(1), busy), assert.rejects(ours.list().next(), busy)]);
  assert.equal(pool.waitingCount, 2);
  const controller = new AbortController();
  const ended = assert.rejects(ours.changes({ signal: controller.signal }).next(), /enough/);
  controller.abort(new Error("enough"));
  await ended;
  assert.equal(pool.waitingCount, 2);
  held.release();
  // This request is behind the other two in the queue, whose clients have returned to the pool.
  const last = await pool.connect();
  last.release();
  assert.deepEqual([pool.totalCount, pool.idleCount, pool.waitingCount], [1, 1, 0]);
});

it("a call takes over the request that an earlier one has left in the pool's queue", async () => {
  const pool = openPool(1);
  const ours = new TaskClient(pool, { acquireTimeoutMs: 20 });
  const held = await pool.connect();
  await assert.rejects(ours.add("SELECT"), busy);
  const adding = ours.add("SELECT");
  assert.equal(pool.waitingCount, 1);
  held.release();
  assert.match(await adding, /^\d+$/);
  assert.deepEqual([pool.totalCount, pool.idleCount, pool.waitingCount], [1, 1, 0]);
});

it("a connection that is not opened in time is an outage, and goes to the pool if it is opened later", async () => {
  const pool = openPool();
  // From now on, the pool has a client at hand.
  await pool.query("SELECT");
  const events = new EventEmitter();
  const opened = once(events, "opened");
  let requests = 0;
  const slow = withConnect(pool, async () => {
    requests += 1;
    if (requests === 1) await opened;
    return await pool.connect();
  });
  const id = await tasks.add(later);
  const ours = new TaskClient(slow, { acquireTimeoutMs: 20 });
  const first = await ours.list().next();
  assert.ok(first.done !== true);
  assert.equal(first.value.id, id);
  assert.equal(requests, 2);
  const impatient = new TaskClient(
    withConnect(pool, async () => await new Promise<never>(() => {})),
    {
      acquireTimeoutMs: 20,
      reconnectMs: 0,
    },
  );
  await assert.rejects(impatient.wait(id), { code: "CONNECTION_FAILED", message: /: it was not opened within 20 ms$/ });
  const released = once(pool, "release");
  events.emit("opened");
  await released;
  assert.equal(pool.idleCount, pool.totalCount);
});

it("a connection returns to the pool when no request to cancel can reach it any more", async () => {
  const pool = openPool();
  const gate = new EventEmitter();
  let connects = 0;
  let idle: number | null = null;
  const slow = withConnect(pool, async () => {
    connects += 1;
    if (connects === 2) {
      const opened = once(gate, "open");
      gate.emit("asked");
      await opened;
      idle = pool.idleCount;
    }
    const client = await pool.connect();
    gate.emit("connected", Reflect.get(client, "processID"));
    return client;
  });
  const locker = await openPool().connect();
  await locker.query("BEGIN; LOCK TABLE task IN ACCESS EXCLUSIVE MODE");
  const controller = new AbortController();
  const connected = once(gate, "connected");
  const adding = new TaskClient(slow).add({ ...later, group: "aborted late" }, { signal: controller.signal });
  const until = async (query: string, parameters: readonly unknown[] = []): Promise<void> => {
    while ((await locker.query(query, [...parameters])).rowCount === 0);
  };
  const [pid] = await connected;
  await until("SELECT FROM pg_locks WHERE pid = $1 AND NOT granted", [pid]);
  const asked = once(gate, "asked");
  controller.abort();
  await asked;
  await locker.query("COMMIT");
  await until(`SELECT FROM task WHERE "group" = 'aborted late'`);
  locker.release();
  gate.emit("open");
  await adding;
  assert.equal(idle, 0);
});
