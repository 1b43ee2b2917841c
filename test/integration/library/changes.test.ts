import assert from "node:assert/strict";
import { after, it } from "node:test";
import { Client, Pool } from "pg";
import { TaskClient, type TaskChange } from "../../../src/library/index.js";
import { endPool } from "../../support/endPool.js";
import { createDatabase } from "../../support/database.js";
import { closeGate, waitAt } from "../../support/gates.js";
import { PgTask } from "../../support/pgTask.js";

const closing: (() => Promise<unknown>)[] = [];
const pgTask = new PgTask();
after(() => Promise.all(closing.map((close) => close())));
const database = await createDatabase();
const { url } = database;
await pgTask.start({ url, "pg_task.sleep": 100 });
const tasks = new TaskClient(url);
closing.push(() => tasks.end());

/**
 * Begins to follow changes. The iterator has looked at the table when this resolves: it has seen the change of a task
 * that is added for this purpose.
 */
async function follow(
  options: Parameters<TaskClient["changes"]>[0],
  client = tasks,
): Promise<{
  readonly seen: TaskChange[];
  readonly until: (wanted: (change: TaskChange) => boolean) => Promise<void>;
  readonly end: () => Promise<void>;
}> {
  const changes = client.changes(options);
  const seen: TaskChange[] = [];
  const until = async (wanted: (change: TaskChange) => boolean): Promise<void> => {
    if (seen.some(wanted)) return;
    for (;;) {
      const { value, done } = await changes.next();
      if (done === true) throw new Error("the iterator has ended");
      seen.push(value);
      if (wanted(value)) return;
    }
  };
  const first = changes.next();
  const marker = { input: "SELECT", group: options?.group ?? "marker", data: "marker", plan: "2100-01-01" };
  const ids: string[] = [];
  const stop = setInterval(() => void tasks.add(marker).then((id) => ids.push(id)), 20);
  const { value } = await first;
  clearInterval(stop);
  if (value !== undefined) assert.deepEqual([value.previous, value.state], [null, "PLAN"]);
  return { seen, until, end: async () => void (await changes.return()) };
}

it("yields each state of a task that is added later, and of one that was waiting", async () => {
  const open = await closeGate(database, "states");
  const waiting = await tasks.add({ input: waitAt("states"), group: "states", plan: "2100-01-01", delete: false });
  const { seen, until, end } = await follow({ group: "states" });
  const added = await tasks.add({ input: "SELECT 1", group: "states", max: 1 });
  const other = await tasks.add({ input: "SELECT 1", group: "other" });
  await until(({ id, state }) => id === added && state === "DONE");
  const client = await database.connect();
  await client.query("UPDATE task SET plan = now() WHERE id = $1", [waiting]);
  await until(({ id, state }) => id === waiting && state === "WORK");
  await open();
  await until(({ id, state }) => id === waiting && state === "DONE");
  await end();
  assert.ok(!seen.some(({ id }) => id === other));
  for (const id of [added, waiting]) {
    const changes = seen.filter((change) => change.id === id);
    for (const [n, { previous }] of changes.entries()) {
      if (n > 0) assert.equal(previous, changes[n - 1]?.state);
      else assert.equal(previous, id === added ? null : "PLAN");
    }
    assert.equal(changes.at(-1)?.state, "DONE");
  }
});

it("takes dates as times", async () => {
  const { seen, until, end } = await follow({ since: new Date("2099-01-01"), until: new Date("2101-01-01") });
  const outside = await tasks.addMany(
    ["2098-01-01", "2101-01-01"].map((day) => ({ input: "SELECT", plan: new Date(day) })),
  );
  const inside = await tasks.add({ input: "SELECT", plan: new Date("2099-01-01") });
  await until(({ id }) => id === inside);
  await end();
  assert.ok(!seen.some(({ id }) => outside.includes(id)));
});

it("yields a task whose transaction commits after later ids have been seen", async () => {
  const { seen, until, end } = await follow({ group: "late" });
  const pool = new Pool({ connectionString: url, max: 1 });
  closing.push(() => endPool(pool));
  const late = await pool.connect();
  await late.query("BEGIN");
  const first = await tasks.add({ input: "SELECT", group: "late", plan: "2100-01-01" }, { client: late });
  const second = await tasks.add({ input: "SELECT", group: "late", plan: "2100-01-01" });
  await until(({ id }) => id === second);
  assert.ok(!seen.some(({ id }) => id === first));
  // Two more looks at the table, in which the transaction still runs.
  for (const data of ["x", "y"]) {
    const next = await tasks.add({ input: "SELECT", group: "late", plan: "2100-01-01", data });
    await until(({ id }) => id === next);
  }
  await late.query("COMMIT");
  late.release();
  await until(({ id }) => id === first);
  await end();
  assert.equal(seen.filter(({ id }) => id === first).length, 1);
});

it("yields the end of each of many tasks once, however their transactions interleave", async () => {
  const { seen, until, end } = await follow({ group: "many" });
  const pool = new Pool({ connectionString: url, max: 8 });
  closing.push(() => endPool(pool));
  const committed: string[] = [];
  const rolledBack: string[] = [];
  const produce = async (producer: number): Promise<void> => {
    for (let round = 0; round < 10; round += 1) {
      const client = await pool.connect();
      await client.query("BEGIN");
      const task = { input: "SELECT 1", group: "many", max: 20 };
      const ids = await tasks.addMany([task, task, task, task, task], { client });
      const fails = (producer + round) % 3 === 0;
      await client.query(fails ? "ROLLBACK" : "COMMIT");
      (fails ? rolledBack : committed).push(...ids);
      client.release();
    }
  };
  await Promise.all(Array.from({ length: 8 }, (_, producer) => produce(producer)));
  for (const id of committed) await until((change) => change.id === id && change.state === "DONE");
  await end();
  assert.ok(rolledBack.length > 100 && committed.length > 200);
  assert.deepEqual(
    seen.filter(({ id }) => rolledBack.includes(id)),
    [],
  );
  for (const id of committed) {
    const changes = seen.filter((change) => change.id === id);
    assert.equal(changes.filter(({ state }) => state === "DONE").length, 1);
    for (const [n, { previous }] of changes.entries()) assert.equal(previous, n === 0 ? null : changes[n - 1]?.state);
  }
});

it("yields the state of given tasks at first, and ends when all have ended", async () => {
  const [done = "", deleted = ""] = await tasks.addMany([
    { input: "SELECT 1", group: "given" },
    { input: "SELECT", group: "given", plan: "2100-01-01" },
  ]);
  await tasks.wait(done);
  const seen: TaskChange[] = [];
  for await (const change of tasks.changes({ ids: [done, deleted, 123_456_789] })) {
    seen.push(change);
    if (seen.length === 3) await tasks.delete(deleted);
  }
  assert.deepEqual(seen, [
    { id: done, previous: null, state: "DONE" },
    { id: deleted, previous: null, state: "PLAN" },
    { id: "123456789", previous: null, state: null },
    { id: deleted, previous: "PLAN", state: null },
  ]);
});

it("throws the reason of its signal, and CONNECTION_CLOSED when the client is ended", async () => {
  const controller = new AbortController();
  const changes = tasks.changes({ group: "none", signal: controller.signal });
  const next = changes.next();
  controller.abort();
  await assert.rejects(next, { name: "AbortError" });
  assert.deepEqual(await changes.next(), { value: undefined, done: true });
  await assert.rejects(tasks.changes({ signal: AbortSignal.abort(new Error("no")) }).next(), /no/);
  const ours = new TaskClient(url);
  const ended = assert.rejects(ours.changes({ group: "none" }).next(), { code: "CONNECTION_CLOSED" });
  await ours.end();
  await ended;
});

it("goes on over a pool when its connection is lost, without missing a change", async () => {
  const pool = new Pool({ connectionString: url, application_name: "library changes", max: 1 });
  pool.on("error", () => {});
  closing.push(() => endPool(pool));
  const { until, end } = await follow({ group: "drop" }, new TaskClient(pool));
  const client = await database.connect();
  const ids: string[] = [];
  for (let round = 0; round < 5; round += 1) {
    await client.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'library changes'",
    );
    const id = await tasks.add({ input: "SELECT 1", group: "drop" });
    ids.push(id);
    await until((change) => change.id === id && change.state === "DONE");
  }
  await end();
  assert.equal(ids.length, 5);
});

it("fails with CONNECTION_LOST over a client when its connection is lost", async () => {
  const client = new Client({ connectionString: url, application_name: "library follower" });
  client.on("error", () => {});
  await client.connect();
  const changes = new TaskClient(client).changes({ group: "lost" });
  const failed = assert.rejects(changes.next(), { code: "CONNECTION_LOST", message: /connection to the server lost/ });
  const other = await database.connect();
  await other.query(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'library follower'",
  );
  await failed;
});
