import assert from "node:assert/strict";
import { test } from "../../../support/limitedTest.js";
import type { LogLine } from "../../../support/logLines.js";
import { serve } from "../../../support/serve.js";

const options = { "pg_task.sleep": 30, "pg_conf.grace": 300 };
const { pgTask, database, client, tasks } = await serve(
  options,
  `
  CREATE TABLE counter (name text PRIMARY KEY, n int NOT NULL DEFAULT 0);
  INSERT INTO counter VALUES ('held');
  CREATE FUNCTION count_up() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN UPDATE public.counter SET n = n + 1 WHERE name = 'held'; RETURN NULL; END $$;
  CREATE FUNCTION give_up() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = TG_ARGV[0]; END $$`,
);
const configuration = { url: database.url, ...options };
const holder = await database.connect();

/** Returns the log lines of a manager that has to wait for a row or to skip it. */
function complaints(from: number): readonly LogLine[] {
  return pgTask.lines
    .slice(from)
    .filter(({ level, msg }) => level === "error" || msg === "manager unavailable, retrying");
}

/** The identity of a backend that never existed. */
const nobody = "2147483647 2001-01-01T00:00:00.000000";

/**
 * Makes changes of rows that match `when` wait for a locked row of another table. Returns a function that unlocks that
 * row.
 */
async function holding(when: string): Promise<() => Promise<void>> {
  await client.query(
    `CREATE TRIGGER count AFTER UPDATE ON task FOR EACH ROW WHEN (${when}) EXECUTE FUNCTION count_up()`,
  );
  await holder.query("BEGIN");
  await holder.query("UPDATE counter SET n = 0");
  return async () => {
    await holder.query("COMMIT");
  };
}

/** Makes changes of rows that match `when` fail with this SQLSTATE. Returns a function that ends this. */
async function failing(when: string, code: string): Promise<() => Promise<void>> {
  await client.query(
    `CREATE TRIGGER count BEFORE UPDATE ON task FOR EACH ROW WHEN (${when}) EXECUTE FUNCTION give_up('${code}')`,
  );
  return async () => void (await client.query("DROP TRIGGER count ON task"));
}

for (const [what, hold] of [
  ["a lock", holding],
  ["40001", (when: string) => failing(when, "40001")],
  ["57014", (when: string) => failing(when, "57014")],
] as const) {
  const drop = "DROP TRIGGER IF EXISTS count ON task";

  test(`tasks whose start a trigger blocks with ${what} delay no other, and start later`, async () => {
    const from = pgTask.lines.length;
    const go = await hold("OLD.state = 'PLAN' AND NEW.owner IS NOT NULL AND NEW.data = 'start'");
    const held = await tasks.insert(
      { input: "SELECT 1", data: "start" },
      { input: "SELECT 1", data: "start", group: "held" },
      { input: "SELECT 1", data: "start", group: "other" },
    );
    const others = await tasks.insert(
      { input: "SELECT 2" },
      { input: "SELECT 2", group: "other" },
      { input: "SELECT 2", group: "third" },
    );
    await tasks.ended(...others);
    assert.equal((await tasks.run("SELECT 3")).output, "3");
    assert.ok((await tasks.until(held, ({ state }) => state === "PLAN")).length === 3);
    await go();
    await tasks.ended(...held);
    assert.deepEqual(complaints(from), []);
    await client.query(drop);
  });

  test(`a result that a trigger blocks with ${what} delays no other, and is written later`, async () => {
    const from = pgTask.lines.length;
    const go = await hold("NEW.state = 'DONE' AND NEW.data = 'result'");
    const [held = "", ...others] = await tasks.insert(
      { input: "SELECT 1", data: "result", repeat: "1 hour", group: "a" },
      { input: "SELECT 2", group: "b" },
      { input: "SELECT 3", group: "c" },
      { input: "SELECT 4", group: "c" },
    );
    await tasks.ended(...others);
    assert.equal((await tasks.run("SELECT 3")).output, "3");
    assert.equal((await tasks.row(held)).state, "WORK");
    await go();
    const row = await tasks.end(held);
    assert.deepEqual([row.state, row.output, row.error], ["DONE", "1", null]);
    const { rows } = await client.query("SELECT FROM task WHERE parent = $1", [held]);
    assert.equal(rows.length, 1);
    assert.deepEqual(complaints(from), []);
    await client.query(drop);
  });

  test(`expiring and marking due that a trigger blocks with ${what} delay no other`, async () => {
    const from = pgTask.lines.length;
    const go = await hold("(NEW.state = 'GONE' OR NEW.ready) AND NEW.data = 'late'");
    const old = { input: "SELECT 1", plan: "2001-01-01", active: "1 day" };
    const plan = new Date(Date.now() + 300).toISOString();
    const [gone = "", ...rest] = await tasks.insert(
      { ...old, data: "late" },
      { ...old },
      { input: "SELECT 2", plan },
      { input: "SELECT 3", plan, data: "late", group: "late" },
    );
    const due = rest.pop() ?? "";
    await tasks.ended(...rest);
    assert.equal((await tasks.row(gone)).state, "PLAN");
    assert.equal((await tasks.row(due)).state, "PLAN");
    await go();
    assert.equal((await tasks.end(gone)).state, "GONE");
    assert.equal((await tasks.end(due)).output, "3");
    assert.deepEqual(complaints(from), []);
    await client.query(drop);
  });

  test(`a rescue that a trigger blocks with ${what} delays no other`, async () => {
    await pgTask.stop();
    const from = pgTask.lines.length;
    const go = await hold("NEW.owner IS NULL AND NEW.data = 'lost'");
    const lost = { input: "SELECT 1", state: "WORK", owner: nobody, group: "lost" };
    const [held = "", free = "", behind = ""] = await tasks.insert(
      { ...lost, data: "lost" },
      { ...lost, group: "another" },
      { input: "SELECT 2", group: "lost" },
    );
    await pgTask.start(configuration);
    await tasks.ended(free, behind);
    assert.equal((await tasks.row(held)).state, "WORK");
    await go();
    assert.equal((await tasks.end(held)).output, "1");
    assert.deepEqual(complaints(from), []);
    await client.query(drop);
  });
}

test("a thousand tasks that a trigger keeps from becoming due delay no later one", async (context) => {
  const from = pgTask.lines.length;
  const go = await holding("NEW.ready AND NEW.data = 'many'");
  const heldSince = performance.now();
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, data, "group", plan)
     SELECT 'SELECT 1', 'many', n % 10, clock_timestamp() + '200 ms' FROM generate_series(1, 1200) AS n RETURNING id`,
  );
  const others = await tasks.insert(
    { input: "SELECT 2", plan: new Date(Date.now() + 600).toISOString() },
    { input: "SELECT 3", plan: new Date(Date.now() + 1_200).toISOString() },
  );
  for (const { plan, start } of await tasks.ended(...others))
    context.diagnostic(`waited ${Date.parse(`${start}Z`) - Date.parse(`${plan}Z`)} ms`);
  const since = performance.now();
  await go();
  const heldMs = performance.now() - heldSince;
  await tasks.ended(...rows.map(({ id }) => id));
  context.diagnostic(`ran ${Math.round(performance.now() - since)} ms after the lock was gone`);
  // The manager names rows that have had to wait for ten seconds, as they have on a slow machine.
  if (heldMs < 10_000) assert.deepEqual(complaints(from), []);
  await client.query("DROP TRIGGER count ON task");
});

test("a thousand results that a trigger blocks delay no other", async (context) => {
  const from = pgTask.lines.length;
  const go = await holding("NEW.state = 'DONE' AND NEW.data = 'results'");
  const heldSince = performance.now();
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, data, "group", max)
     SELECT 'SELECT 1', 'results', n % 10, 100 FROM generate_series(1, 1000) AS n RETURNING id`,
  );
  for (let n = 0; n < 5; n += 1) {
    const { plan, stop } = await tasks.run("SELECT 2");
    context.diagnostic(`took ${Date.parse(`${stop}Z`) - Date.parse(`${plan}Z`)} ms`);
  }
  const since = performance.now();
  await go();
  const heldMs = performance.now() - heldSince;
  await tasks.ended(...rows.map(({ id }) => id));
  context.diagnostic(`written ${Math.round(performance.now() - since)} ms after the lock was gone`);
  if (heldMs < 10_000) assert.deepEqual(complaints(from), []);
  await client.query("DROP TRIGGER count ON task");
});

test("a result that waits for a trigger's lock is written at a stop as soon as the lock is free", async () => {
  const go = await holding("NEW.state = 'DONE' AND NEW.data = 'stop'");
  const [held = ""] = await tasks.insert({ input: "SELECT 1", data: "stop", group: "stop" });
  await tasks.run("SELECT 2", { group: "stop" });
  const stopped = pgTask.stop();
  await go();
  await stopped;
  const row = await tasks.row(held);
  assert.deepEqual([row.state, row.output], ["DONE", "1"]);
  await client.query("DROP TRIGGER count ON task");
  await pgTask.start(configuration);
});

test("tasks whose trigger needs a row that others lock in turn run in the end", async () => {
  await client.query(`
    DROP TRIGGER IF EXISTS count ON task;
    CREATE TRIGGER count AFTER UPDATE OF state ON task FOR EACH STATEMENT EXECUTE FUNCTION count_up()`);
  const over = new AbortController();
  const write = async (): Promise<void> => {
    const writer = await database.connect();
    while (!over.signal.aborted) {
      await writer.query("BEGIN");
      await writer.query("UPDATE counter SET n = n + 1");
      await writer.query("SELECT pg_sleep(0.01)");
      await writer.query("COMMIT");
    }
  };
  const writers = Promise.all([write(), write(), write(), write()]);
  const planned = Array.from({ length: 60 }, (_, index) => ({
    input: "SELECT 1",
    group: `turn ${index}`,
  }));
  for (const { state } of await tasks.ended(...(await tasks.insert(...planned)))) assert.equal(state, "DONE");
  over.abort();
  await writers;
  await client.query("DROP TRIGGER count ON task");
});

test("a slow trigger that delays all tasks is logged", async () => {
  await client.query(`
    CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(5.1); RETURN NEW; END $$;
    CREATE TRIGGER linger BEFORE UPDATE ON task FOR EACH ROW
      WHEN (NEW.data = 'slow' AND NEW.state = 'DONE') EXECUTE FUNCTION linger()`);
  const from = pgTask.lines.length;
  await tasks.run("SELECT 1", { data: "slow" });
  const line = await pgTask.logged(({ msg }) => msg === "slow cycle", from);
  assert.ok(Number(line["ms"]) > 5_000);
});
