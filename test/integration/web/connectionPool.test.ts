import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { beforeEach, mock } from "node:test";
import { Connections } from "../../../src/web/data/connectionPool.js";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { only } from "../../support/tasks.js";

const database = await createDatabase("empty");
const client = await database.connect();

/** A question that has its connection until it is told to let go. */
interface Held {
  readonly begun: Promise<unknown>;
  readonly answer: Promise<number>;
  letGo(): void;
}

function hold(connections: Connections): Held {
  const signals = new EventEmitter();
  const [begun, over] = [once(signals, "begun"), once(signals, "over")];
  const answer = connections.read(async (its) => {
    signals.emit("begun");
    await over;
    const { rows } = await its.query<{ one: number }>("SELECT 1 AS one");
    return only(rows).one;
  });
  return { begun, answer, letGo: () => void signals.emit("over") };
}

async function open(): Promise<number> {
  const { rowCount } = await client.query(
    "SELECT FROM pg_stat_activity WHERE application_name = 'pg_task web' AND datname = current_database()",
  );
  return rowCount ?? 0;
}

async function asleep(): Promise<number> {
  const { rowCount } = await client.query(
    "SELECT FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(4)' AND datname = current_database()",
  );
  return rowCount ?? 0;
}

// Time passes as the tests say.
beforeEach(() => {
  mock.timers.reset();
  mock.timers.enable({ apis: ["setTimeout"] });
});

test("a question that has waited for its turn has all of its time then", async () => {
  const connections = new Connections(database.target);
  const first = [hold(connections), hold(connections)];
  await Promise.all(first.map(({ begun }) => begun));
  const late = hold(connections);
  mock.timers.tick(5_000);
  for (const each of first) each.letGo();
  assert.deepEqual(await Promise.all(first.map(({ answer }) => answer)), [1, 1]);
  await late.begun;
  mock.timers.tick(5_000);
  late.letGo();
  assert.equal(await late.answer, 1);
  await connections.close();
});

test("a question that has waited for too long is told that others do, and nobody is cut off", async () => {
  const connections = new Connections(database.target);
  const before = [hold(connections), hold(connections)];
  const next = [hold(connections), hold(connections)];
  const last = hold(connections);
  await Promise.all(before.map(({ begun }) => begun));
  mock.timers.tick(3_000);
  for (const each of before) each.letGo();
  await Promise.all(next.map(({ begun }) => begun));
  mock.timers.tick(3_000);
  await assert.rejects(last.answer, { code: "BUSY" });
  // Those of the test before may just be ending.
  while ((await open()) !== 2);
  for (const each of next) each.letGo();
  assert.deepEqual(await Promise.all(next.map(({ answer }) => answer)), [1, 1]);
  assert.equal(await connections.read(open), 2);
  await connections.close();
});

test("who waits for a server that turns out to be silent is told so at once", async () => {
  const connections = new Connections(database.target);
  const ask = async () => await connections.read((its) => its.query("SELECT pg_sleep(4)"));
  const asked = [ask(), ask()];
  while ((await asleep()) < 2);
  mock.timers.tick(5_000);
  asked.push(ask(), ask(), ask());
  const told = Promise.all(
    asked.map((each) => assert.rejects(each, { message: /the server does not answer/ })),
  );
  mock.timers.tick(1_000);
  await told;
  const again = hold(connections);
  await again.begun;
  again.letGo();
  assert.equal(await again.answer, 1);
  await connections.close();
});
