import assert from "node:assert/strict";
import { backendPid, type Client } from "../../src/shared/postgres/client.js";
import { test } from "../support/limitedTest.js";
import { projectText } from "../support/project.js";
import { serve } from "../support/serve.js";
import { until, maxConcurrent, only, statesOf, valueOf } from "../support/tasks.js";

const { database, client, tasks } = await serve({ "pg_task.delete": false });

const conflict = "ON CONFLICT (key) WHERE key IS NOT NULL AND ready IS NOT NULL";

/** A rule whose times lie so far apart that none comes during the tests. */
const yearly = "0 0 1 1 *";

/** A schedule with this rule whose first run is due. */
const due = { rule: yearly, zone: "UTC", plan: "2001-01-01Z", active: "1000 years" };

const idsOf = (key: string): Promise<string[]> =>
  tasks.value("SELECT coalesce(array_agg(id::text ORDER BY id), '{}') FROM task WHERE key = $1", [key]);

/** Inserts a task with this key and group that waits, in a transaction that stays open. */
async function insertOpen(key: string): Promise<{ readonly id: string; readonly producer: Client }> {
  const producer = await database.connect();
  await producer.query("BEGIN");
  const insert = `INSERT INTO task (input, key, plan, "group") VALUES ('SELECT 2', $1, '2100-01-01Z', $1) RETURNING id`;
  return { id: await valueOf(producer, insert, [key]), producer };
}

/** Queries again and again, without a pause, until the first row satisfies the condition. */
async function promptly<Row extends object>(query: string, wanted: (row: Row) => boolean): Promise<Row> {
  for (;;) {
    const [row] = (await client.query<Row>(query)).rows;
    if (row !== undefined && wanted(row)) return row;
  }
}

test("a key of 2,000 bytes that cannot be compressed is accepted", async () => {
  const key = Array.from({ length: 125 }, (_, index) => String(Math.sin(index)).padEnd(16, "x").slice(-16)).join("");
  assert.equal(key.length, 2000);
  assert.equal((await tasks.run("SELECT 1", { key, group: "long" })).state, "DONE");
});

test("at most one task of a key waits, whichever of many producers comes first", async () => {
  const producers = await Promise.all(Array.from({ length: 8 }, () => database.connect()));
  const insert = `INSERT INTO task (input, key, plan, "group") VALUES ('SELECT 1', $1, 'infinity', 'many') ON CONFLICT DO NOTHING`;
  for (let round = 0; round < 20; round += 1) {
    const key = `many ${round}`;
    const counts = await Promise.all(producers.map(async (each) => (await each.query(insert, [key])).rowCount ?? 0));
    assert.equal(
      counts.reduce((sum, count) => sum + count, 0),
      1,
    );
    assert.equal((await idsOf(key)).length, 1);
  }
  await assert.rejects(client.query(insert.replace(" ON CONFLICT DO NOTHING", ""), ["many 0"]), {
    code: "23505",
    constraint: "task_key_idx",
  });
});

test("throttle: after a run, the key is free again", async () => {
  const insert = `INSERT INTO task (input, key, "group") VALUES ('SELECT 1', 'throttle', 'throttle') ON CONFLICT DO NOTHING RETURNING id`;
  for (let round = 0; round < 3; round += 1) assert.equal(only(await tasks.endedOf(insert)).state, "DONE");
});

test("debounce with an upper bound: the plan moves, but not beyond the bound", async () => {
  const insert = `INSERT INTO task AS t (input, key, plan, "group") VALUES ('SELECT 1', 'debounce', now() + $1::interval, 'debounce')
    ${conflict} DO UPDATE SET plan = least(excluded.plan, t.created + interval '1 day') RETURNING id, plan = created + interval '1 day' AS bounded, plan > now() + interval '12 hours' AS moved`;
  const id = await tasks.value(insert.replace(/RETURNING.*/, "RETURNING id"), ["1 hour"]);
  for (const [interval, bounded, moved] of [
    ["1 hour", false, false],
    ["13 hours", false, true],
    ["2 days", true, true],
  ])
    assert.deepEqual(await tasks.rows(insert, [interval]), [{ id, bounded, moved }]);
});

test("a due task starts although producers add to it all the time, and nothing is lost", async () => {
  await client.query("CREATE TABLE added (item int)");
  const producers = await Promise.all(Array.from({ length: 4 }, () => database.connect()));
  const insert = `INSERT INTO task AS t (input, key, args, "group") VALUES (
      $$INSERT INTO added SELECT jsonb_array_elements_text(current_setting('pg_task.args')::jsonb)::int$$, 'constant', jsonb_build_array($1::int), 'constant')
    ${conflict} DO UPDATE SET args = t.args || excluded.args`;
  const items: number[] = [];
  const hasRun = new AbortController();
  const produce = async (producer: Client): Promise<void> => {
    while (!hasRun.signal.aborted) {
      items.push(items.length);
      await producer.query(insert, [items.length - 1]);
    }
  };
  const ended = producers.map(produce);
  await until(client, "SELECT FROM task WHERE key = 'constant' AND state = 'DONE'", (rows) => rows.length > 4);
  hasRun.abort();
  await Promise.all(ended);
  const rows = await tasks.ended(...(await idsOf("constant")));
  assert.ok(rows.every(({ state }) => state === "DONE") && maxConcurrent(rows) === 1);
  const { rows: added } = await client.query<{ item: number }>("SELECT item FROM added ORDER BY item");
  assert.deepEqual(
    added.map(({ item }) => item),
    items,
  );
});

test("re-index: a task that is inserted while another one of its key runs starts when that one ends", async () => {
  const { id: first, open: release } = await tasks.held({ key: "doc 7", group: "reindex 1" });
  const second = await tasks.add("SELECT 1", { key: "doc 7", group: "reindex 2" });
  // A later task of the same group is not kept from starting.
  assert.equal((await tasks.run("SELECT 1", { group: "reindex 2" })).state, "DONE");
  assert.equal((await tasks.row(second)).state, "PLAN");
  await release();
  const rows = await tasks.ended(first, second);
  assert.deepEqual(statesOf(rows), ["DONE", "DONE"]);
  assert.equal(maxConcurrent(rows), 1);
});

test("of each key one runs at a time, whatever max allows", async () => {
  const keys = Array.from({ length: 5 }, (_, index) => `race ${index}`);
  const producers = await Promise.all(keys.map(() => database.connect()));
  await Promise.all(
    producers.map(async (each, producer) => {
      for (let round = 0; round < 40; round += 1) {
        await each.query(
          `INSERT INTO task (input, key, "group", max) VALUES ('SELECT pg_sleep(0.002)', $1, $2, 10) ON CONFLICT DO NOTHING`,
          [keys[(producer + round) % keys.length], `race ${round % 2}`],
        );
      }
    }),
  );
  for (const key of keys) {
    const rows = await tasks.ended(...(await idsOf(key)));
    assert.deepEqual([rows.every(({ state }) => state === "DONE"), maxConcurrent(rows)], [true, 1]);
  }
});

for (const [what, end] of [
  ["fails", "SELECT 1/0"],
  ["ends its session", "SELECT pg_terminate_backend(pg_backend_pid())"],
] as const) {
  test(`the waiting task starts when the running one ${what}`, async () => {
    const key = `one that ${what}`;
    const { id: first, open: release } = await tasks.held({ key, group: key }, end);
    const second = await tasks.add("SELECT 1", { key, group: `${key} 2` });
    await release();
    const [one, two] = await tasks.ended(first, second);
    assert.equal(two?.state, "DONE");
    if (end.includes("terminate"))
      assert.deepEqual([one?.state, one?.error], ["GONE", `ERROR:  task ${second} with the same key takes its place`]);
    else assert.equal(one?.state, "FAIL");
  });
}

test("a task set to PLAN while it runs becomes GONE if another one waits, and the other one runs", async () => {
  const { id: first, open: release } = await tasks.held({ key: "again", group: "again", repeat: "1 year" });
  const second = await tasks.add("SELECT 1", { key: "again", group: "again" });
  await client.query("UPDATE task SET state = 'PLAN' WHERE id = $1", [first]);
  await release();
  const [one, two] = await tasks.ended(first, second);
  assert.deepEqual([one?.state, one?.error], ["GONE", `ERROR:  task ${second} with the same key takes its place`]);
  assert.equal(two?.state, "DONE");
  assert.deepEqual(await until(client, "SELECT parent FROM task WHERE key = 'again' AND state = 'PLAN'"), [
    { parent: second },
  ]);
});

test("a finished task cannot be set to PLAN while another one of its key waits", async () => {
  const first = await tasks.run("SELECT 1", { key: "set", group: "set" });
  await tasks.insert({ input: "SELECT 1", key: "set", group: "set", plan: "infinity" });
  await assert.rejects(client.query("UPDATE task SET state = 'PLAN' WHERE id = $1", [first.id]), { code: "23505" });
});

test("a waiting task inherits the schedule of the one that ends, and keeps its plan", async () => {
  const { id: first, open: release } = await tasks.held({ key: "inherit", group: "inherit", ...due });
  const second = await tasks.add("SELECT 2", { key: "inherit", group: "inherit", plan: "2100-05-05Z" });
  await release();
  await tasks.ended(first);
  assert.ok(await tasks.holds(second, `rule = '${yearly}' AND zone = 'UTC' AND plan = '2100-05-05Z'`));
  assert.ok(await tasks.holds(second, "due = '2001-01-01Z' AND wait IS NULL"));
  assert.deepEqual(await idsOf("inherit"), [first, second]);
  await client.query(`UPDATE task SET plan = now() WHERE id = ${second}`);
  const next = `SELECT input, plan = public.task_next('${yearly}', 'UTC', now()) AS ok FROM task WHERE parent = ${second}`;
  assert.deepEqual(await until(client, next), [{ input: "SELECT 2", ok: true }]);
});

test("a waiting task that has a schedule keeps it, and the other schedule ends", async () => {
  const more = { key: "own", group: "own", ...due };
  const { id: first, open: release } = await tasks.held(more);
  const second = await tasks.add("SELECT 2", { ...more, rule: "0 0 2 1 *", plan: "2100-01-01Z" });
  await release();
  await tasks.ended(first);
  const { rows } = await client.query("SELECT id, rule FROM task WHERE key = 'own' AND state = 'PLAN'");
  assert.deepEqual(rows, [{ id: second, rule: "0 0 2 1 *" }]);
});

for (const [what, more] of [
  ["a rule and an input of its own", { rule: "0 0 2 1 *", zone: "UTC" }],
  ["an interval of its own", { repeat: "1 year" }],
  ["no schedule of its own", {}],
] as const) {
  test(`a task with ${what} that replaces a schedule while this runs shows the last run of it`, async () => {
    const key = `shown, ${what}`;
    const { id: first, open: release } = await tasks.held({ key, group: key, ...due }, "SELECT 1/0");
    const second = await tasks.add("SELECT 2", { key, group: key, ...more, plan: "2100-01-01Z" });
    await release();
    await tasks.ended(first);
    const shown = `SELECT id, last_id, last_state, last_error FROM task_schedules WHERE key = '${key}'`;
    assert.deepEqual((await client.query(shown)).rows, [
      { id: second, last_id: first, last_state: "FAIL", last_error: "ERROR:  division by zero" },
    ]);
    assert.deepEqual(await idsOf(key), [first, second]);
  });
}

for (const [what, own] of [
  ["replaces", { repeat: "2 years" }],
  ["inherits", {}],
] as const) {
  test(`a due task that ${what} a schedule whose group pauses after each run waits for the end of the pause`, async () => {
    const key = `pausing, ${what}`;
    const more = { key, group: key, max: -3_600_000 };
    const { id: first, open: release } = await tasks.held({ ...more, repeat: "1 year" });
    const second = await tasks.add("SELECT 2", { ...more, ...own });
    await release();
    const [{ parent, repeats } = {}] = await until<{ parent?: string; repeats?: boolean }>(
      client,
      `SELECT w.parent, w.repeat = '${"repeat" in own ? own.repeat : "1 year"}' AS repeats FROM task AS w JOIN task AS e ON e.id = ${first} AND w.plan >= e.stop
       WHERE w.id = ${second} AND w.state = 'PLAN'`,
    );
    assert.deepEqual([parent, repeats], [first, true]);
    assert.deepEqual(await idsOf(key), [first, second]);
  });
}

test("a task that replaces a schedule keeps its parent if it has one", async () => {
  const { id: first, open: release } = await tasks.held({ key: "parent", group: "parent", ...due });
  const producer = await tasks.run(
    `INSERT INTO task (input, key, "group", rule, plan) VALUES ('SELECT 2', 'parent', 'parent', '0 0 2 1 *', '2100-01-01Z')`,
    { group: "producer" },
  );
  await release();
  await tasks.ended(first);
  assert.equal(await tasks.value("SELECT parent FROM task WHERE key = 'parent' AND state = 'PLAN'"), producer.id);
});

test("with overlap and a key, one runs and one waits", async () => {
  const { id: first, open: release } = await tasks.held({
    key: "buffer",
    group: "buffer",
    max: 5,
    repeat: "10 milliseconds",
    overlap: true,
  });
  const waiting = "SELECT id FROM task WHERE key = 'buffer' AND ready";
  const [next] = await until<{ id: string }>(client, waiting);
  assert.equal((await tasks.run("SELECT 1", { group: "buffer", max: 5 })).state, "DONE");
  assert.equal((await idsOf("buffer")).length, 2);
  await client.query(`UPDATE task SET repeat = '0' WHERE id = ${next?.id}`);
  await release();
  const rows = await tasks.ended(first, next?.id ?? "");
  assert.equal(maxConcurrent(rows), 1);
});

test("an open transaction that has inserted the key delays neither other tasks nor the result for ever", async () => {
  const { id: first, open: release } = await tasks.held({ key: "open", group: "open", repeat: "1 year" });
  const { id: waiting, producer } = await insertOpen("open");
  await release();
  for (let round = 0; round < 10; round += 1)
    assert.equal((await tasks.run("SELECT 1", { group: `others ${round}` })).state, "DONE");
  assert.equal((await tasks.row(first)).state, "WORK");
  await producer.query("COMMIT");
  assert.equal((await tasks.end(first)).state, "DONE");
  const { rows: left } = await client.query(
    "SELECT id, repeat > '0' AS repeats FROM task WHERE key = 'open' AND state = 'PLAN'",
  );
  assert.deepEqual(left, [{ id: waiting, repeats: true }]);
});

for (const [what, then, left] of [
  ["schedule", "", "DONE"],
  ["schedule that fails", "SELECT 1/0", "FAIL"],
  ["schedule whose rows are deleted", "", null],
] as const) {
  test(`a ${what} passes to a task that is committed while the result is tried again`, async () => {
    const key = `committed, ${what}`;
    const more = { key, group: key, repeat: "1 year", delete: left === null };
    const { id: first, open: release } = await tasks.held(more, then);
    const { id: next, producer } = await insertOpen(key);
    await release();
    const waits = `SELECT query_start::text AS since FROM pg_stat_activity WHERE ${backendPid(producer)} = ANY (pg_blocking_pids(pid))`;
    const { since } = await promptly<{ since: string }>(waits, () => true);
    // The first statement runs into its lock timeout. A later one waits for the producer again.
    await promptly<{ since: string }>(waits, (later) => later.since !== since);
    await producer.query("COMMIT");
    await until(client, `SELECT FROM task WHERE id = ${first} AND owner IS NOT NULL`, (rows) => rows.length === 0);
    const { rows } = await client.query(
      `SELECT (SELECT state::text FROM task WHERE id = ${first}) AS state, repeat > '0' AS repeats FROM task WHERE id = ${next}`,
    );
    assert.deepEqual(rows, [{ state: left, repeats: true }]);
  });
}

test("a task set to PLAN while it runs waits for an open transaction with its key, and is GONE once that commits", async () => {
  const first = await tasks.add("SELECT pg_sleep(60)", { key: "open plan", group: "open plan" });
  await tasks.sleeping(first);
  const { id: waiting, producer } = await insertOpen("open plan");
  await client.query("UPDATE task SET state = 'PLAN' WHERE id = $1", [first]);
  for (let round = 0; round < 10; round += 1)
    assert.equal((await tasks.run("SELECT 1", { group: `others ${round}` })).state, "DONE");
  assert.notEqual((await tasks.row(first)).owner, null);
  await producer.query("COMMIT");
  const gone = await tasks.end(first);
  assert.deepEqual([gone.state, gone.error], ["GONE", `ERROR:  task ${waiting} with the same key takes its place`]);
});

test("if an open transaction with the key is rolled back, a task set to PLAN runs again", async () => {
  const first = await tasks.add("SELECT pg_sleep(60)", { key: "undone", group: "undone" });
  await tasks.sleeping(first);
  const { producer } = await insertOpen("undone");
  await client.query("UPDATE task SET state = 'PLAN', input = 'SELECT 3' WHERE id = $1", [first]);
  assert.equal((await tasks.run("SELECT 1", { group: "others" })).state, "DONE");
  await producer.query("ROLLBACK");
  const again = await tasks.end(first);
  assert.deepEqual([again.state, again.output], ["DONE", "3"]);
});

test("an INSERT with the key of a schedule changes it while it waits, and replaces it, with defaults, while it runs", async () => {
  const documented = /^INSERT INTO task \(key, rule,.*?;$/ms.exec(projectText("docs/order.md"))?.[0] ?? "";
  const upsert = `${documented.replaceAll("CALL nightly()", "SELECT 2").replace(/;$/, "")} RETURNING id`;
  const plain = `INSERT INTO task (key, rule, zone, "group", input) VALUES ('nightly', '0 4 1 1 *', 'UTC', 'nightly', 'SELECT 3') RETURNING id`;
  const active = (): Promise<object[]> =>
    tasks.rows(
      `SELECT id, rule, keep::text, active::text FROM task WHERE key = 'nightly' AND state IN ('PLAN', 'TAKE', 'WORK') ORDER BY id`,
    );
  const nightly = { key: "nightly", group: "nightly", rule: yearly, zone: "UTC", keep: "7 days", active: "2 hours" };
  const run = async (id: string, wait: string): Promise<void> => {
    await client.query("UPDATE task SET plan = now(), input = $1 WHERE id = $2", [wait, id]);
    await tasks.running(id);
  };
  // While it waits.
  const { wait, open: release } = await tasks.gate();
  const first = await tasks.add(wait, nightly);
  assert.equal(await tasks.value(upsert), first);
  assert.deepEqual(await active(), [{ id: first, rule: "30 3 * * *", keep: "7 days", active: "02:00:00" }]);
  await assert.rejects(client.query(plain), { code: "23505" });
  // While it runs.
  await run(first, wait);
  const second = await tasks.value(upsert);
  await release();
  assert.equal((await tasks.end(first)).state, "DONE");
  assert.deepEqual(await active(), [{ id: second, rule: "30 3 * * *", keep: "00:00:00", active: "01:00:00" }]);
  await client.query("UPDATE task SET state = 'STOP' WHERE id = $1", [second]);
  // A plain INSERT and an UPDATE while it runs.
  const next = await tasks.gate();
  const third = await tasks.add(next.wait, nightly);
  await run(third, next.wait);
  await client.query("UPDATE task SET rule = '45 3 1 1 *', input = 'SELECT 4' WHERE id = $1", [third]);
  await next.open();
  await tasks.ended(third);
  const successor = (await idsOf("nightly")).at(-1) ?? "";
  assert.deepEqual(await active(), [{ id: successor, rule: "45 3 1 1 *", keep: "7 days", active: "02:00:00" }]);
  const last = await tasks.gate();
  await run(successor, last.wait);
  const fourth = await tasks.value(plain);
  await last.open();
  await tasks.ended(successor);
  assert.deepEqual(await active(), [{ id: fourth, rule: "0 4 1 1 *", keep: "00:00:00", active: "01:00:00" }]);
});
