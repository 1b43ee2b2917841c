import assert from "node:assert/strict";
import { beforeEach } from "node:test";
import { test } from "../../../support/limitedTest.js";
import { SteppedTable, type Planted, type SteppedManager } from "../../../support/steppedTable.js";
import { only } from "../../../support/tasks.js";

const stepped = await SteppedTable.create();
const { database, user } = stepped;

beforeEach(() => stepped.clear());

test("tasks of a sequential group queue in one session and run in order", async () => {
  const manager = await stepped.manage(2, { g: 0.1 }, true);
  await stepped.plant({ gated: true }, {}, {}, {}, {});
  await manager.step();
  assert.deepEqual(await stepped.states(), ["WORK", "TAKE", "TAKE", "TAKE", "TAKE"]);
  const { rows } = await user.query(
    "SELECT count(DISTINCT owner)::integer AS owners, count(pid)::integer AS pids, count(take)::integer AS taken, count(start)::integer AS started FROM task",
  );
  assert.deepEqual(rows, [{ owners: 1, pids: 5, taken: 5, started: 1 }]);
  const group = manager.groups.get(await stepped.hashOf("g"));
  assert.deepEqual([group?.running, manager.groups.totalRunning], [1, 1]);
  await stepped.openGate();
  await manager.finish();
  assert.deepEqual(await stepped.ran(), [1, 2, 3, 4, 5]);
  const { rows: overlaps } = await user.query(
    "SELECT FROM task AS a JOIN task AS b ON a.id < b.id AND a.stop > b.start",
  );
  assert.equal(overlaps.length, 0);
  assert.deepEqual([manager.groups.get(await stepped.hashOf("g")), manager.groups.totalRunning], [null, 0]);
});

test("nothing is queued behind tasks of a slow group", async () => {
  const manager = await stepped.manage(1, { g: 100 });
  await stepped.plant({ gated: true }, {}, {});
  await manager.step();
  assert.deepEqual(await stepped.states(), ["WORK", "PLAN", "PLAN"]);
  await stepped.openGate();
});

test("tasks queued behind a slow task are recalled and run in order later", async () => {
  const manager = await stepped.manage(1, { g: 0.1 });
  await stepped.plant({ gated: true }, {}, {});
  await manager.step();
  await manager.until(() => manager.pendingResults.size === 2);
  await manager.step();
  assert.deepEqual(await stepped.states(), ["WORK", "PLAN", "PLAN"]);
  const { rows } = await user.query("SELECT owner, pid, take, start, ready FROM task WHERE id > 1 ORDER BY id");
  const waiting = { owner: null, pid: null, take: null, start: null, ready: true };
  assert.deepEqual(rows, [waiting, waiting]);
  await stepped.openGate();
  await manager.finish();
  assert.deepEqual(await stepped.ran(), [1, 2, 3]);
});

test("a queued task that runs long becomes WORK with its start time", async () => {
  const manager = await stepped.manage(1, { g: 0.1 });
  await stepped.plant({}, { gated: true });
  await manager.step();
  for (;;) {
    const { rows } = await user.query<{ state: string; started: boolean }>(
      "SELECT state::text, start IS NOT NULL AS started FROM task WHERE id = 2",
    );
    const { state, started } = only(rows);
    if (state === "WORK") {
      assert.ok(started);
      break;
    }
    await manager.step();
  }
  await stepped.openGate();
  await manager.finish();
  assert.deepEqual(await stepped.ran(), [1, 2]);
});

test("queued tasks that are stopped or deleted do not run", async () => {
  const manager = await stepped.manage(1, { g: 0.1 });
  await stepped.plant({ gated: true }, {}, {}, {});
  await manager.step();
  await user.query("UPDATE task SET state = 'STOP' WHERE id = 2");
  await user.query("DELETE FROM task WHERE id = 3");
  await manager.step();
  // Either each of these tasks is cancelled in the queue, or all queued tasks are recalled together.
  await manager.until(() => manager.sessions.taskCount <= 2);
  await stepped.openGate();
  await manager.finish();
  assert.deepEqual(await stepped.ran(), [1, 4]);
  assert.deepEqual(await stepped.states(), ["DONE", "STOP", "DONE"]);
  const { rows } = await user.query("SELECT owner, start FROM task WHERE id = 2");
  assert.deepEqual(rows, [{ owner: null, start: null }]);
});

/** Runs a task, then sends five more behind another one that waits for the gate. */
async function sendBehind(manager: SteppedManager): Promise<void> {
  await user.query("CREATE SEQUENCE IF NOT EXISTS side");
  await user.query("ALTER SEQUENCE side RESTART");
  const others = Array.from({ length: 5 }, () => ({ input: "SELECT nextval('side')" }));
  await stepped.plant({ input: "SELECT pg_sleep(0.02)" }, { gated: true }, ...others);
  for (;;) {
    // On a busy machine, the tasks may be recalled before the gated one starts.
    await manager.step();
    const { rowCount } = await user.query(
      `SELECT FROM pg_stat_activity WHERE query LIKE '%xact_lock_shared%'
         AND wait_event = 'advisory' AND datname = current_database()`,
    );
    if (rowCount === 1) return;
  }
}

async function sideEffects(): Promise<number> {
  const { rows } = await user.query<{ count: number }>(
    "SELECT CASE WHEN is_called THEN last_value ELSE 0 END::integer AS count FROM side",
  );
  return only(rows).count;
}

/** Returns the advisory locks of runs that any session holds. */
async function runLocks(): Promise<object[]> {
  const { rows } = await user.query<object>(
    `SELECT l.* FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.classid::bigint
     WHERE l.locktype = 'advisory' AND a.application_name LIKE 'pg_task %' AND a.datname = current_database()`,
  );
  return rows;
}

/** Runs cycles until no task is queued in a session. */
async function untilTakenBack(manager: SteppedManager): Promise<void> {
  do await manager.step();
  while ((await stepped.states()).includes("TAKE"));
}

const times = (count: number, state: string): string[] => Array.from({ length: count }, () => state);

test("tasks sent behind a slow task are recalled while that one runs", async () => {
  const manager = await stepped.manage(1, { g: 0.1 });
  await sendBehind(manager);
  await untilTakenBack(manager);
  assert.deepEqual(await stepped.states(), ["DONE", "WORK", ...times(5, "PLAN")]);
  await stepped.openGate();
  await manager.finish();
  assert.deepEqual(await stepped.states(), times(7, "DONE"));
  assert.equal(await sideEffects(), 5);
  await manager.step();
  assert.deepEqual(await runLocks(), []);
});

test("a sent task that is changed does not run in its old form", async () => {
  const manager = await stepped.manage(1, { g: 0.1 });
  await sendBehind(manager);
  await user.query("UPDATE task SET state = 'STOP' WHERE id = 3");
  await user.query("DELETE FROM task WHERE id = 4");
  await user.query("UPDATE task SET plan = now() + interval '1 day' WHERE id = 5");
  await user.query("UPDATE task SET input = 'SELECT 42' WHERE id = 6");
  await untilTakenBack(manager);
  await stepped.openGate();
  await manager.finish();
  assert.deepEqual(await stepped.states(), ["DONE", "DONE", "STOP", "PLAN", "DONE", "DONE"]);
  assert.equal(await sideEffects(), 1);
  const { rows } = await user.query("SELECT output FROM task WHERE id = 6");
  assert.deepEqual(rows, [{ output: "42" }]);
});

test("sent tasks of a group that is then paused wait for the end of the pause", async () => {
  const manager = await stepped.manage(1, { g: 0.1 });
  await sendBehind(manager);
  await user.query(`INSERT INTO task_pause ("group") VALUES ('g')`);
  await untilTakenBack(manager);
  await stepped.openGate();
  await manager.until(() => manager.sessions.free === 1);
  await manager.step();
  assert.deepEqual(await stepped.states(), ["DONE", "DONE", ...times(5, "PLAN")]);
  assert.equal(await sideEffects(), 0);
  await user.query("DELETE FROM task_pause");
  await manager.finish();
  assert.equal(await sideEffects(), 5);
});

test("when a session is lost only its current task is to blame", async () => {
  const manager = await stepped.manage(1, { g: 0.1 });
  await stepped.plant({ gated: true }, {}, {});
  await manager.step();
  await user.query("SELECT pg_terminate_backend(pid) FROM task WHERE id = 1");
  await manager.until(() => manager.lost.length > 0);
  const blamed = manager.lost.filter(({ front }) => front).map(({ id }) => id);
  assert.deepEqual(blamed, ["1"]);
  // The tasks behind it are lost, too, unless they had been recalled by then.
  assert.equal(manager.lost.length + manager.pendingResults.size, 3);
  assert.deepEqual([manager.sessions.taskCount, manager.groups.totalRunning], [0, 0]);
  await stepped.openGate();
});

const alone: Record<string, Planted> = {
  "a gap": { gap: "1 ms" },
  "a pause": { max: -1 },
  count: { count: 2 },
  live: { live: "1 hour" },
  "another database": { remote: database.url },
};

for (const [what, columns] of Object.entries(alone)) {
  test(`a task with ${what} is alone in its session`, async () => {
    const manager = await stepped.manage(1, { g: 0.1, [`g${columns["remote"] ?? ""}`]: 0.1 });
    await stepped.plant({ gated: true }, {}, columns, {});
    await manager.step();
    // Later tasks of the same group wait for it. A remote task belongs to another group, and the session is reserved for
    // it.
    const second = columns["remote"] === undefined ? "TAKE" : "PLAN";
    assert.deepEqual(await stepped.states(), ["WORK", second, "PLAN", "PLAN"]);
    await stepped.clear();
    await stepped.openGate();
    await manager.until(() => manager.sessions.free === 1);
    await stepped.plant({ ...columns, gated: true }, columns, {});
    await manager.step();
    assert.deepEqual((await stepped.states()).slice(0, 2), ["WORK", "PLAN"]);
    assert.equal((await stepped.states())[2], "PLAN");
    await stepped.openGate();
  });
}
