import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { afterEach, beforeEach, mock } from "node:test";
import { ConnectionPool } from "../../../../src/web/data/connectionPool.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { only } from "../../../support/tasks.js";

const database = await createDatabase("empty");
const client = await database.connect();

/** A request that keeps its connection until `finish` is called. */
interface PendingRequest {
  readonly started: Promise<unknown>;
  readonly answer: Promise<number>;
  finish(): void;
}

function startRequest(pool: ConnectionPool): PendingRequest {
  const signals = new EventEmitter();
  const [started, finished] = [once(signals, "started"), once(signals, "finish")];
  const answer = pool.read(async (connection) => {
    signals.emit("started");
    await finished;
    const { rows } = await connection.query<{ one: number }>("SELECT 1 AS one");
    return only(rows).one;
  });
  return { started, answer, finish: () => void signals.emit("finish") };
}

async function countConnections(): Promise<number> {
  const { rowCount } = await client.query(
    "SELECT FROM pg_stat_activity WHERE application_name = 'pg_task web' AND datname = current_database()",
  );
  return rowCount ?? 0;
}

async function countSleeping(): Promise<number> {
  const { rowCount } = await client.query(
    "SELECT FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(4)' AND datname = current_database()",
  );
  return rowCount ?? 0;
}

beforeEach(() => mock.timers.enable({ apis: ["setTimeout"] }));
afterEach(() => mock.timers.reset());

test("the time limit of a request starts when it gets a connection", async () => {
  const pool = new ConnectionPool(database.target, { isControl: false });
  const first = [startRequest(pool), startRequest(pool)];
  await Promise.all(first.map(({ started }) => started));
  const late = startRequest(pool);
  mock.timers.tick(5_000);
  for (const each of first) each.finish();
  assert.deepEqual(await Promise.all(first.map(({ answer }) => answer)), [1, 1]);
  await late.started;
  mock.timers.tick(5_000);
  late.finish();
  assert.equal(await late.answer, 1);
  await pool.close();
});

test("a request that waits too long for a connection fails with BUSY, and running requests continue", async () => {
  const pool = new ConnectionPool(database.target, { isControl: false });
  const before = [startRequest(pool), startRequest(pool)];
  const next = [startRequest(pool), startRequest(pool)];
  const last = startRequest(pool);
  await Promise.all(before.map(({ started }) => started));
  mock.timers.tick(3_000);
  for (const each of before) each.finish();
  await Promise.all(next.map(({ started }) => started));
  mock.timers.tick(3_000);
  await assert.rejects(last.answer, { code: "BUSY" });
  // Connections of the previous test may still be closing.
  while ((await countConnections()) !== 2);
  for (const each of next) each.finish();
  assert.deepEqual(await Promise.all(next.map(({ answer }) => answer)), [1, 1]);
  assert.equal(await pool.read(countConnections), 2);
  await pool.close();
});

test("requests that wait for a server fail at once when it turns out to be unresponsive", async () => {
  const pool = new ConnectionPool(database.target, { isControl: false });
  const ask = async () => await pool.read((connection) => connection.query("SELECT pg_sleep(4)"));
  const requests = [ask(), ask()];
  while ((await countSleeping()) < 2);
  mock.timers.tick(5_000);
  requests.push(ask(), ask(), ask());
  const rejections = Promise.all(
    requests.map((each) => assert.rejects(each, { message: /the server does not answer/ })),
  );
  mock.timers.tick(1_000);
  await rejections;
  const again = startRequest(pool);
  await again.started;
  again.finish();
  assert.equal(await again.answer, 1);
  await Promise.all([pool.close(), pool.close()]);
  await pool.close();
});
