import assert from "node:assert/strict";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { maxConcurrent, only, type NewTask, type TaskRow, inOrderOfStart, times } from "../support/tasks.js";

// The manager checks the table once a minute, so a task that starts sooner was started by a notification.
const { pgTask, client, tasks } = await serve({ "pg_task.sleep": 60_000 });

const idsInOrder = (rows: readonly TaskRow[]): string[] => inOrderOfStart(rows).map(({ id }) => id);

/** Keeps a group busy with a running task during `work`. */
async function whileRunning(group: string, work: () => Promise<void>): Promise<void> {
  const id = await tasks.add("SELECT pg_sleep(60)", { group });
  const { pid } = await tasks.sleeping(id);
  await work();
  await client.query("SELECT pg_cancel_backend($1)", [pid]);
  await tasks.ended(id);
}

const asId = "current_setting('pg_task.id')::bigint";

test("§4 a task in PLAN runs once it is due, and not before", async () => {
  const [row] = await tasks.endedOf(
    "INSERT INTO task (input, plan) VALUES ('SELECT 1', clock_timestamp() + interval '300 ms') RETURNING id",
  );
  assert.ok((row?.start ?? "") >= (row?.plan ?? "?"));
});

test("§4 only a task in PLAN runs", async () => {
  const states = ["TAKE", "WORK", "DONE", "FAIL", "GONE", "STOP"];
  const ids = await tasks.insert(...states.map((state) => ({ input: "SELECT 1", state })));
  await tasks.run("SELECT 1");
  for (const [index, id] of ids.entries()) {
    const { state, start } = await tasks.row(id);
    assert.deepEqual([state, start], [states[index], null]);
  }
});

test("§4 with equal max, the smaller id goes first", async () => {
  const ids = await tasks.together(...times(8, { input: "SELECT 1", group: "ids" }));
  assert.deepEqual(idsInOrder(await tasks.ended(...ids)), ids);
});

test("§4 the larger max minus running in its group goes first", async () => {
  await whileRunning("by max", async () => {
    const wide = await tasks.add("SELECT pg_sleep(60)", { group: "by max", max: 1 });
    const { pid } = await tasks.sleeping(wide);
    const waiting = await tasks.together(
      { input: "SELECT 1", group: "by max", max: 0 },
      // With a key, neither waits in the queue of a session, where the other one could overtake it.
      { input: "SELECT 1", group: "by max", max: 1, key: "first" },
      { input: "SELECT 1", group: "by max", max: 1, key: "second" },
      { input: "SELECT pg_sleep(0.02)", group: "by max", max: 2 },
    );
    const [first] = await tasks.ended(waiting[3] ?? "");
    assert.equal(first?.state, "DONE");
    assert.equal((await tasks.row(waiting[1] ?? "")).start, null);
    await client.query("SELECT pg_cancel_backend($1)", [pid]);
    const rows = await tasks.ended(...waiting.slice(1, 3));
    assert.deepEqual(idsInOrder(rows), waiting.slice(1, 3));
    assert.equal((await tasks.row(waiting[0] ?? "")).start, null);
  });
});

test("§4 ten tasks with max 1 run two at a time", async () => {
  const rows = await tasks.runTogether(...times(10, { input: "SELECT pg_sleep(0.05)", group: "twos", max: 1 }));
  assert.equal(maxConcurrent(rows), 2);
});

test("§4 a task with a larger max starts beside the others of its group, and so goes ahead", async () => {
  await whileRunning("ahead", async () => {
    const [behind = "", ahead = ""] = await tasks.together(
      { input: "SELECT 1", group: "ahead", max: 0 },
      { input: "SELECT 1", group: "ahead", max: 1 },
    );
    await tasks.ended(ahead);
    assert.equal((await tasks.row(behind)).start, null);
  });
});

test("§4 a group is identified by group and remote together", async () => {
  const [same, other, generated] = await tasks.value<boolean[]>(
    `WITH t AS (INSERT INTO task (input, "group", remote, state) VALUES
       ('', 'a', NULL, 'STOP'), ('', 'a', 'host=b', 'STOP'), ('', 'a', '', 'STOP') RETURNING id, hash, "group", remote),
     h AS (SELECT array_agg(hash ORDER BY id) AS h, bool_and(hash = hashtext("group" || coalesce(remote, ''))) AS generated FROM t)
     SELECT ARRAY[h[1] = h[3], h[1] <> h[2], generated] FROM h`,
  );
  assert.deepEqual([same, other, generated], [true, true, true]);
});

const changes: Record<string, { before: NewTask; set: string }> = {
  plan: { before: { input: "SELECT 1", plan: "2100-01-01" }, set: "plan = now()" },
  max: { before: { input: "SELECT 1", group: "changing max" }, set: "max = 5" },
  group: { before: { input: "SELECT 1", group: "changing group" }, set: `"group" = 'free'` },
};

for (const [column, { before, set }] of Object.entries(changes)) {
  test(`§4 changing ${column} of a task in PLAN takes effect at the next check`, async () => {
    // Each case has a group of its own. In a group with short runs, the task might stay queued in a session, and until the
    // first run is known to be slow, it may be queued here, too.
    await whileRunning(`changing ${column}`, async () => {
      const [id = ""] = await tasks.insert(before);
      await tasks.until([id], ({ state }) => state === "PLAN");
      await client.query(`UPDATE task SET ${set} WHERE id = $1`, [id]);
      // Every change wakes the manager. This insert causes another check, at the latest.
      await tasks.run("SELECT 1", { group: "check" });
      assert.equal((await tasks.end(id)).state, "DONE");
    });
  });
}

test("§4 changing input of a task in PLAN takes effect", async () => {
  const ids: string[] = [];
  await whileRunning("input", async () => {
    ids.push(...(await tasks.insert({ input: "SELECT 'old'", group: "input" })));
    await client.query("UPDATE task SET input = 'SELECT ''new''' WHERE id = $1", [ids[0]]);
  });
  assert.equal(only(await tasks.ended(...ids)).output, "new");
});

test("§4 a postponed task does not run", async () => {
  const ids: string[] = [];
  await whileRunning("moved", async () => {
    ids.push(...(await tasks.insert({ input: "SELECT 1", group: "moved" })));
    await client.query("UPDATE task SET plan = '2100-01-01' WHERE id = $1", ids);
  });
  await tasks.run("SELECT 1", { group: "moved" });
  assert.equal((await tasks.row(ids[0] ?? "")).state, "PLAN");
});

test("§4 a task that could not start before plan + active is GONE, with start = stop = now", async () => {
  const ids: string[] = [];
  await whileRunning("gone", async () => {
    ids.push(...(await tasks.insert({ input: "SELECT 1", group: "gone", active: "1 ms" })));
    await tasks.run("SELECT 1", { group: "check" });
  });
  const row = only(await tasks.ended(...ids));
  assert.deepEqual([row.state, row.error, row.output], ["GONE", "ERROR:  task not active", null]);
  assert.equal(row.start, row.stop);
  assert.notEqual(row.start, null);
});

test("§4 the log counts the tasks that are GONE", async () => {
  const from = pgTask.lines.length;
  const plan = "2001-01-01";
  await tasks.together({ input: "SELECT 1", plan }, { input: "SELECT 2", plan });
  // The line of the previous test may be logged only now, so the number of tasks is compared, too.
  await pgTask.logged(({ msg, tasks: count }) => msg === "late tasks expired" && count === 2, from);
});

test("§6 a task may change its own plan, group, data and max: its row keeps them", async () => {
  const row = await tasks.run(`UPDATE task SET data = 'changed', "group" = 'own new' WHERE id = ${asId}`, {
    group: "own old",
  });
  assert.equal(row.state, "DONE");
  assert.deepEqual([row.data, row.group], ["changed", "own new"]);
});
