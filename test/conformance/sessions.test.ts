import assert from "node:assert/strict";
import { after } from "node:test";
import { onServer } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { eventually, inOrderOfStart, only, times, type NewTask, type TaskRow } from "../support/tasks.js";
import { tracesSetup, traces } from "../support/traces.js";

const { database, client, tasks } = await serve({}, tracesSetup);
const role = `role_${database.target.database}`;
await client.query(`CREATE ROLE ${role}`);
after(() => onServer((server) => server.query(`DROP ROLE ${role}`)));

/** Returns the number of runs in each backend, ordered by the first start in the backend. */
function runsByPid(rows: readonly TaskRow[]): number[] {
  const counts = new Map<number | null, number>();
  for (const { pid } of inOrderOfStart(rows)) counts.set(pid, (counts.get(pid) ?? 0) + 1);
  return [...counts.values()];
}

async function gone(pid: number | null): Promise<void> {
  await eventually(client, `SELECT FROM pg_stat_activity WHERE pid = ${pid}`, (rows) => rows.length === 0);
}

/** Connection string to the test's own database. */
const remote = `dbname=${database.target.database}`;

for (const [session, place] of [
  ["session", { remote: null }],
  ["remote session", { remote }],
] as const) {
  /** Inserts tasks in one transaction, and waits until they have ended. */
  const run = async (...list: readonly NewTask[]): Promise<TaskRow[]> =>
    await tasks.ended(...(await tasks.together(...list.map((task) => ({ ...place, ...task })))));

  /** Tasks of a group of this kind of sessions. */
  const runTimes = async (count: number, task: NewTask): Promise<number[]> =>
    runsByPid(await run(...times(count, task)));

  test(`§6 with count 5, ten tasks of a group run in two ${session}s, five in each`, async () => {
    const rows = await run(...times(10, { input: "SELECT pg_backend_pid()", group: "fives", count: 5 }));
    assert.deepEqual(runsByPid(rows), [5, 5]);
    for (const { pid, output } of rows) assert.equal(output, String(pid));
  });

  test(`§6 a ${session} closes once it has run its count`, async () => {
    const rows = await run(...times(2, { input: "SELECT 1", group: "goes", count: 2 }));
    assert.deepEqual(runsByPid(rows), [2]);
    await gone(rows[0]?.pid ?? null);
  });

  test(`§6 with live, a ${session} runs the tasks of its group that start within that time`, async () => {
    assert.deepEqual(await runTimes(6, { input: "SELECT pg_sleep(0.01)", group: "long", live: "1 hour" }), [6]);
  });

  test(`§6 live counts from the first task of a ${session}`, async () => {
    assert.deepEqual(await runTimes(3, { input: "SELECT pg_sleep(1.1)", group: "short", live: "2 sec" }), [2, 1]);
  });

  test(`§6 with count and live, a ${session} closes when the first of the two is reached`, async () => {
    assert.deepEqual(await runTimes(4, { input: "SELECT 1", group: "c", count: 2, live: "1 hour" }), [2, 2]);
    const byLive = { input: "SELECT pg_sleep(0.1)", group: "l", count: 3, live: "50 ms" };
    assert.deepEqual(await runTimes(3, byLive), [1, 1, 1]);
  });

  test(`§6 the next task's own values decide whether a ${session} may take it`, async () => {
    const rows = await run(...[9, 9, 2, 9].map((count) => ({ input: "SELECT 1", group: "mixed", count })));
    const [first, second, third, fourth] = rows.map(({ pid }) => pid);
    assert.equal(second, first);
    assert.notEqual(third, first);
    assert.equal(fourth, third);
  });

  test(`§6 a ${session} closes when no task of its group is due`, async () => {
    const task = { group: "alone", count: 100, live: "1 hour", ...place };
    const { pid } = await tasks.run("SELECT 1", task);
    await gone(pid);
    assert.notEqual((await tasks.run("SELECT 1", task)).pid, pid);
  });

  for (const [what, [leave, look, none]] of Object.entries(traces(role))) {
    test(`§6 the next task of a ${session} finds nothing left of ${what}`, async () => {
      const [left, looked] = await run({ input: leave, group: what, count: 2 }, { input: look, group: what, count: 2 });
      assert.equal(looked?.pid, left?.pid);
      assert.equal(left?.state, "DONE", left?.error ?? "");
      assert.equal(looked?.output, none, looked?.error ?? "");
    });
  }

  test(`§6 with save, the next task of a ${session} finds temporary tables, settings and prepared statements`, async () => {
    const input =
      "SELECT value FROM kept; SELECT current_setting('my.kept'); EXECUTE kept; SELECT current_setting('work_mem')";
    const make =
      "CREATE TEMP TABLE kept AS SELECT 'a' AS value; SET my.kept = 'b'; PREPARE kept AS SELECT 'c'; SET work_mem = '12345kB'";
    const saved = { group: "save", count: 2, save: true };
    const [, second, third] = await run({ input: make, ...saved }, { input, ...saved }, { input, ...saved });
    assert.equal(second?.output, "a\nb\nc\n12345kB", second?.error ?? "");
    // The third task runs in another session, which lacks what the first one left.
    assert.equal(third?.state, "FAIL");
  });

  test(`§6 a timeout does not leak into the next task of a ${session}`, async () => {
    const rows = await run(
      ...[false, true].flatMap((save) => [
        { input: "SELECT 1", group: `timeout ${save}`, count: 2, save, timeout: "1 sec" },
        { input: "SELECT pg_sleep(1.2); SHOW statement_timeout", group: `timeout ${save}`, count: 2, save },
      ]),
    );
    for (const [first, second] of [rows.slice(0, 2), rows.slice(2)]) {
      assert.equal(second?.pid, first?.pid);
      assert.equal(second?.output, "\n0");
    }
  });
}

test("§6 a session dedicated to one group and connection string takes no task of another", async () => {
  const sleep = { input: "SELECT pg_sleep(0.05)", count: 9 };
  const kinds = ["k", "o"].flatMap((group) =>
    [null, remote, `${remote} connect_timeout=9`].map((at) => ({ group, remote: at })),
  );
  const rows = await tasks.runTogether(...kinds.flatMap((kind) => times(3, { ...sleep, ...kind })));
  const pids = kinds.map((_, nth) => new Set(rows.slice(3 * nth, 3 * nth + 3).map(({ pid }) => pid)));
  for (const some of pids) assert.equal(some.size, 1);
  assert.equal(new Set(pids.flatMap((some) => [...some])).size, kinds.length);
});

for (const [what, [leave, look, none]] of Object.entries(traces(role))) {
  test(`§6 with count 0 and live 0 a task finds nothing left of ${what}`, async () => {
    assert.equal((await tasks.run(leave, { group: what })).state, "DONE");
    assert.equal((await tasks.run(look, { group: what })).output, none);
  });
}

test("§7 a remote task's row holds the pid of its own backend", async () => {
  const input = "SELECT pid = pg_backend_pid() FROM task WHERE id = current_setting('pg_task.id')::bigint";
  const ids = await tasks.together(
    ...times(10, { input, group: "once", remote }),
    ...times(10, { input, group: "kept", count: 4, remote }),
  );
  for (const { output, error } of await tasks.ended(...ids)) assert.deepEqual([output, error], ["t", null]);
});

test("§6 with count 0 and live 0 each remote task has a session of its own", async () => {
  const ids = await tasks.together(...times(3, { input: "SELECT 1", group: "own", remote }));
  assert.deepEqual(runsByPid(await tasks.ended(...ids)), [1, 1, 1]);
});

/** Looks for the setting that a task with `save` has made. */
const look = "SELECT coalesce(current_setting('my.kept', true), '') = ''";

test("§6 save keeps nothing for a task of another group", async () => {
  const here = { group: "save here", count: 2, save: true };
  await tasks.run("SET my.kept = 'b'", { ...here, live: "1 hour" });
  assert.equal((await tasks.run(look, { group: "elsewhere" })).output, "t");
  assert.equal((await tasks.run(look, here)).output, "t");
});

test("§6 save without count and live keeps nothing", async () => {
  await tasks.run("SET my.kept = 'b'", { group: "save alone", save: true });
  assert.equal((await tasks.run(look, { group: "save alone", save: true })).output, "t");
});

test("§6 the session is reset before the task's row shows its end", async () => {
  await tasks.run("SELECT pg_advisory_lock(4712)");
  const { rows } = await client.query<{ free: boolean }>("SELECT pg_try_advisory_lock(4712) AS free");
  assert.equal(only(rows).free, true);
});
