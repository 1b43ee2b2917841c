import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { after, beforeEach } from "node:test";
import { Claimer } from "../../../../src/manager/claim/claimer.js";
import { ExecutorThreads } from "../../../../src/manager/sessions/executorThreads.js";
import { ActiveGroups } from "../../../../src/manager/groups/groups.js";
import { GroupScanner } from "../../../../src/manager/groups/groupScanner.js";
import { PendingResults } from "../../../../src/manager/results/pendingResults.js";
import { LedgerRotation } from "../../../../src/manager/upkeep/ledgerRotation.js";
import { DeferredPauses } from "../../../../src/manager/groups/deferredPauses.js";
import { Recalls } from "../../../../src/manager/sessions/recalls.js";
import { RemotePids } from "../../../../src/manager/results/remotePids.js";
import { RunTimes } from "../../../../src/manager/sessions/runTimes.js";
import { SettingsAge } from "../../../../src/manager/sessions/settingsAge.js";
import { SessionPool } from "../../../../src/manager/sessions/sessionPool.js";
import type { ManagerSettings } from "../../../../src/manager/settings.js";
import { cancelBackend } from "../../../../src/manager/sessions/cancelBackend.sql.js";
import { Starts } from "../../../../src/manager/results/starts.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { WorkCycle } from "../../../../src/manager/loop/workCycle.js";
import { createLog } from "../../../../src/shared/log.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { openManagerConnection } from "../../../support/managerConnection.js";
import { only } from "../../../support/tasks.js";

// The parts of a real manager, turned by hand: what it does between turns, it does by itself.
const database = await createDatabase();
const user = await database.connect();
const gate = await database.connect();
const manager = await openManagerConnection(database.url);
const table = taskTable("public", "task");
const log = createLog({ level: "silent", name: "test", write: () => {} });
await user.query("CREATE TABLE ran (id bigint)");

const settings: ManagerSettings = {
  sleepMs: 1000,
  resetMs: 1000,
  idle: 60,
  limit: 1000,
  fetch: 100,
  run: 1000,
  outputLimit: 64 << 20,
  crash: 3,
  closeMs: 60_000,
  batch: 100,
  restartMs: 1000,
};

/** After so many ms what waits is called back: at no time in the life of a test. */
const never = 1e9;

/**
 * A manager of so many sessions that knows how long tasks of these groups run, in ms.
 *
 * @param slowMs after how long what waits behind a run is called back.
 */
async function managing(count: number, known: Readonly<Record<string, number>>, slowMs = 50) {
  const news = new EventEmitter();
  const groups = new ActiveGroups();
  const runTimes = new RunTimes();
  const outbox = new PendingResults();
  const starts = new Starts();
  const lost: { id: string; front: boolean }[] = [];
  for (const [group, ms] of Object.entries(known)) {
    const hash = await hashOf(group);
    for (let each = 0; each < 100; each += 1) runTimes.add(hash, ms);
  }
  const executors = new ExecutorThreads({
    parameters: () => ({
      target: database.target,
      schema: "public",
      table: "task",
      finish: table.qualifiedFinish,
      reset: table.qualifiedReset,
      ledgers: ["public.task_ledger_1", "public.task_ledger_2"],
      outputLimit: settings.outputLimit,
      superuser: true,
      resetMs: 3_600_000,
    }),
    closeMs: () => settings.closeMs,
    events: {
      message: (thread, message) => sessions.receive(thread, message),
      room: () => {},
      ended: (thread, reason) => sessions.threadEnded(thread, reason),
    },
    log,
    threadLog: log,
  });
  const sessions = new SessionPool({
    executors,
    groups,
    runTimes,
    maxThreads: () => 1,
    mayUseMore: () => false,
    slowMs,
    events: {
      changed: () => news.emit("news"),
      result: (result, owner, task) => outbox.add(result, owner, task),
      started: (task) => starts.add(task),
      silent: () => {},
      remote: () => {},
      lost: ({ id }, _, front) => lost.push({ id, front }),
      recall: (recall) => recalls.add(recall),
      permit: (session) => recalls.wantPermit(session),
      revoke: (permit) => recalls.revoke(permit),
      opened: () => {},
      unopened: ({ message }) => assert.fail(message),
      lacking: assert.fail,
      cancel: (each) => {
        void cancelBackend(manager, each.pid).then(() => sessions.cancelled(each));
      },
    },
    log,
  });
  after(() => executors.end());
  const recalls = new Recalls(sessions);
  const turn = new WorkCycle({
    table,
    sessions,
    groups,
    outbox,
    remotePids: new RemotePids(),
    recalls,
    lookout: new GroupScanner({ table, groups, log }),
    pauses: new DeferredPauses(table, log),
    claiming: new Claimer({
      table,
      sessions,
      groups,
      outbox,
      runTimes,
      settingsAge: new SettingsAge({ sessions, log }),
      log,
      ledgers: new LedgerRotation({ table, log }),
    }),
    starts,
    log,
  });
  const until = async (condition: () => boolean): Promise<void> => {
    while (!condition()) await once(news, "news");
  };
  const step = (limits: Partial<ManagerSettings> = {}) =>
    turn.once(
      manager,
      { ...settings, ...limits },
      { start: 100, lookAhead: 0, watch: true, told: true },
    );
  sessions.open(count);
  await until(() => sessions.free === count);
  return {
    groups,
    sessions,
    outbox,
    lost,
    until,
    step,
    /** Until none of the tasks waits or runs. */
    async finish(): Promise<void> {
      for (;;) {
        await step();
        const { rowCount } = await user.query(
          "SELECT FROM task WHERE ready OR owner IS NOT NULL LIMIT 1",
        );
        if (rowCount === 0) return;
        if (sessions.busy > 0 && outbox.empty) await once(news, "news");
      }
    },
  };
}

async function hashOf(group: string): Promise<number> {
  const { rows } = await user.query<{ hash: number }>("SELECT hashtext($1) AS hash", [group]);
  return only(rows).hash;
}

beforeEach(async () => {
  await user.query("TRUNCATE task, ran RESTART IDENTITY");
});

interface Planted {
  readonly group?: string;
  /** Whether it waits for the gate to be opened. */
  readonly gated?: boolean;
  readonly [column: string]: string | number | boolean | undefined;
}

/** Inserts tasks that note that they ran; ids count from 1. */
async function plant(...tasks: readonly Planted[]): Promise<void> {
  await gate.query("SELECT pg_advisory_lock(1)");
  await user.query("BEGIN");
  for (const { gated = false, ...columns } of tasks) {
    const wait = gated ? "SELECT pg_advisory_xact_lock_shared(1);" : "";
    const input = `${wait} INSERT INTO ran VALUES (current_setting('pg_task.id')::bigint)`;
    const row = { input, group: "g", ...columns };
    const names = Object.keys(row).map((name) => `"${name}"`);
    await user.query(
      `INSERT INTO task (${names.join(", ")}) VALUES (${names.map((_, index) => `$${index + 1}`).join(", ")})`,
      Object.values(row),
    );
  }
  await user.query("COMMIT");
}

const open = () => gate.query("SELECT pg_advisory_unlock_all()");

async function states(): Promise<string[]> {
  const { rows } = await user.query<{ state: string }>("SELECT state::text FROM task ORDER BY id");
  return rows.map(({ state }) => state);
}

async function ran(): Promise<number[]> {
  const { rows } = await user.query<{ id: number }>("SELECT id::integer FROM ran ORDER BY ctid");
  return rows.map(({ id }) => id);
}

test("tasks of a sequential group wait behind each other in one session, and run in order", async () => {
  const chain = await managing(2, { g: 0.1 }, never);
  await plant({ gated: true }, {}, {}, {}, {});
  await chain.step();
  assert.deepEqual(await states(), ["WORK", "TAKE", "TAKE", "TAKE", "TAKE"]);
  const { rows } = await user.query(
    "SELECT count(DISTINCT owner)::integer AS owners, count(pid)::integer AS pids, count(take)::integer AS taken, count(start)::integer AS started FROM task",
  );
  assert.deepEqual(rows, [{ owners: 1, pids: 5, taken: 5, started: 1 }]);
  const group = chain.groups.get(await hashOf("g"));
  assert.deepEqual([group?.running, chain.groups.total], [1, 1]);
  await open();
  await chain.finish();
  assert.deepEqual(await ran(), [1, 2, 3, 4, 5]);
  const { rows: overlaps } = await user.query(
    "SELECT FROM task AS a JOIN task AS b ON a.id < b.id AND a.stop > b.start",
  );
  assert.equal(overlaps.length, 0);
  assert.deepEqual([chain.groups.get(await hashOf("g")), chain.groups.total], [null, 0]);
});

test("of a group whose run time nobody knows the first is tried alone", async () => {
  const chain = await managing(1, {});
  await plant({ gated: true }, {}, {});
  await chain.step();
  assert.deepEqual(await states(), ["WORK", "PLAN", "PLAN"]);
  await open();
  await chain.finish();
  assert.deepEqual(await ran(), [1, 2, 3]);
});

test("nothing waits behind tasks of a group that takes long", async () => {
  const chain = await managing(1, { g: 100 });
  await plant({ gated: true }, {}, {});
  await chain.step();
  assert.deepEqual(await states(), ["WORK", "PLAN", "PLAN"]);
  await open();
});

test("what waits behind a slow task is called back, and runs in order afterwards", async () => {
  const chain = await managing(1, { g: 0.1 });
  await plant({ gated: true }, {}, {});
  await chain.step();
  await chain.until(() => chain.outbox.size === 2);
  await chain.step();
  assert.deepEqual(await states(), ["WORK", "PLAN", "PLAN"]);
  const { rows } = await user.query(
    "SELECT owner, pid, take, start, ready FROM task WHERE id > 1 ORDER BY id",
  );
  const waiting = { owner: null, pid: null, take: null, start: null, ready: true };
  assert.deepEqual(rows, [waiting, waiting]);
  await open();
  await chain.finish();
  assert.deepEqual(await ran(), [1, 2, 3]);
});

test("a task that waited and takes long shows that it runs, and since when", async () => {
  const chain = await managing(1, { g: 0.1 });
  await plant({}, { gated: true });
  await chain.step();
  for (;;) {
    const { rows } = await user.query<{ state: string; started: boolean }>(
      "SELECT state::text, start IS NOT NULL AS started FROM task WHERE id = 2",
    );
    const { state, started } = only(rows);
    if (state === "WORK") {
      assert.ok(started);
      break;
    }
    await chain.step();
  }
  await open();
  await chain.finish();
  assert.deepEqual(await ran(), [1, 2]);
});

test("a waiting task that is stopped, and one that is deleted, do not run", async () => {
  const chain = await managing(1, { g: 0.1 });
  await plant({ gated: true }, {}, {}, {});
  await chain.step();
  await user.query("UPDATE task SET state = 'STOP' WHERE id = 2");
  await user.query("DELETE FROM task WHERE id = 3");
  await chain.step();
  // By a cancel each, or all that waits at once.
  await chain.until(() => chain.outbox.size >= 2);
  await open();
  await chain.finish();
  assert.deepEqual(await ran(), [1, 4]);
  assert.deepEqual(await states(), ["DONE", "STOP", "DONE"]);
  const { rows } = await user.query("SELECT owner, start FROM task WHERE id = 2");
  assert.deepEqual(rows, [{ owner: null, start: null }]);
});

/** Lets a session run a task, and send five more to the server behind one that waits for the gate. */
async function sendBehind(chain: Awaited<ReturnType<typeof managing>>): Promise<void> {
  await user.query("CREATE SEQUENCE IF NOT EXISTS side");
  await user.query("ALTER SEQUENCE side RESTART");
  const others = Array.from({ length: 5 }, () => ({ input: "SELECT nextval('side')" }));
  await plant({ input: "SELECT pg_sleep(0.02)" }, { gated: true }, ...others);
  for (;;) {
    // On a busy machine all of them may be called back before that.
    await chain.step();
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

/** Locks of runs that anybody holds. */
async function runLocks(): Promise<object[]> {
  const { rows } = await user.query<object>(
    `SELECT l.* FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.classid::bigint
     WHERE l.locktype = 'advisory' AND a.application_name LIKE 'pg_task %' AND a.datname = current_database()`,
  );
  return rows;
}

/** Turns until nothing waits in a session any more. */
async function untilTakenBack(chain: Awaited<ReturnType<typeof managing>>): Promise<void> {
  do await chain.step();
  while ((await states()).includes("TAKE"));
}

const times = (count: number, state: string): string[] =>
  Array.from({ length: count }, () => state);

test("what has been sent behind a slow task is taken back while that one runs", async () => {
  const chain = await managing(1, { g: 0.1 });
  await sendBehind(chain);
  await untilTakenBack(chain);
  assert.deepEqual(await states(), ["DONE", "WORK", ...times(5, "PLAN")]);
  await open();
  await chain.finish();
  assert.deepEqual(await states(), times(7, "DONE"));
  assert.equal(await sideEffects(), 5);
  await chain.step();
  assert.deepEqual(await runLocks(), []);
});

test("what has been sent and is changed does not run as it was", async () => {
  const chain = await managing(1, { g: 0.1 });
  await sendBehind(chain);
  await user.query("UPDATE task SET state = 'STOP' WHERE id = 3");
  await user.query("DELETE FROM task WHERE id = 4");
  await user.query("UPDATE task SET plan = now() + interval '1 day' WHERE id = 5");
  await user.query("UPDATE task SET input = 'SELECT 42' WHERE id = 6");
  await untilTakenBack(chain);
  await open();
  await chain.finish();
  assert.deepEqual(await states(), ["DONE", "DONE", "STOP", "PLAN", "DONE", "DONE"]);
  assert.equal(await sideEffects(), 1);
  const { rows } = await user.query("SELECT output FROM task WHERE id = 6");
  assert.deepEqual(rows, [{ output: "42" }]);
});

test("what has been sent of a group that is paused then waits for its end", async () => {
  const chain = await managing(1, { g: 0.1 });
  await sendBehind(chain);
  await user.query(`INSERT INTO task_pause ("group") VALUES ('g')`);
  await untilTakenBack(chain);
  await open();
  await chain.until(() => chain.sessions.free === 1);
  await chain.step();
  assert.deepEqual(await states(), ["DONE", "DONE", ...times(5, "PLAN")]);
  assert.equal(await sideEffects(), 0);
  await user.query("DELETE FROM task_pause");
  await chain.finish();
  assert.equal(await sideEffects(), 5);
});

test("when a session is lost only the task that ran is to blame", async () => {
  const chain = await managing(1, { g: 0.1 });
  await plant({ gated: true }, {}, {});
  await chain.step();
  await user.query("SELECT pg_terminate_backend(pid) FROM task WHERE id = 1");
  await chain.until(() => chain.lost.length > 0);
  const blamed = chain.lost.filter(({ front }) => front).map(({ id }) => id);
  assert.deepEqual(blamed, ["1"]);
  // Those behind it are lost as well, if they had not been called back by then.
  assert.equal(chain.lost.length + chain.outbox.size, 3);
  assert.deepEqual([chain.sessions.tasks, chain.groups.total], [0, 0]);
  await open();
});

const alone: Record<string, Planted> = {
  "a timeout": { timeout: "1 hour" },
  "a pause": { max: -1 },
  count: { count: 2 },
  live: { live: "1 hour" },
  "another database": { remote: database.url },
};

for (const [what, columns] of Object.entries(alone)) {
  test(`a task with ${what} is alone in its session`, async () => {
    const chain = await managing(1, { g: 0.1, [`g${columns["remote"] ?? ""}`]: 0.1 });
    await plant({ gated: true }, {}, columns, {});
    await chain.step();
    // What comes behind it in its group waits for it.
    const last = columns["remote"] === undefined ? "PLAN" : "TAKE";
    assert.deepEqual(await states(), ["WORK", "TAKE", "PLAN", last]);
    await user.query("TRUNCATE task, ran RESTART IDENTITY");
    await open();
    await chain.until(() => chain.sessions.free === 1);
    await plant({ ...columns, gated: true }, columns, {});
    await chain.step();
    assert.deepEqual((await states()).slice(0, 2), ["WORK", "PLAN"]);
    assert.equal((await states())[2], "PLAN");
    await open();
  });
}

test("tasks of other groups wait behind what runs when no session is free, best first", async () => {
  const chain = await managing(1, { g: 0.1, a: 0.1, b: 0.1, long: 100 }, never);
  await plant({ gated: true, max: 9 }, { group: "a" }, { group: "b", max: 3 });
  await chain.step();
  assert.deepEqual(await states(), ["WORK", "TAKE", "TAKE"]);
  await open();
  await chain.finish();
  assert.deepEqual(await ran(), [1, 3, 2]);
});

test("nothing worse goes where a task that takes long has to wait for its turn", async () => {
  const chain = await managing(1, { g: 0.1, a: 0.1, long: 100 }, never);
  await plant(
    { gated: true, max: 9 },
    { group: "a", max: 2 },
    { group: "long", max: 1 },
    { group: "a" },
  );
  await chain.step();
  assert.deepEqual(await states(), ["WORK", "TAKE", "PLAN", "PLAN"]);
  await open();
  await chain.finish();
  assert.deepEqual(await ran(), [1, 2, 3, 4]);
});

test("the tasks of a group with max 1 wait in two sessions and no third", async () => {
  const chain = await managing(3, { g: 0.1 }, never);
  await plant(...Array.from({ length: 8 }, () => ({ gated: true, max: 1 })));
  await chain.step();
  assert.deepEqual(await states(), ["WORK", "WORK", ...Array.from({ length: 6 }, () => "TAKE")]);
  const { rows } = await user.query(
    "SELECT count(*)::integer AS tasks FROM task GROUP BY owner ORDER BY 1",
  );
  assert.deepEqual(rows, [{ tasks: 4 }, { tasks: 4 }]);
  assert.equal(chain.groups.get(await hashOf("g"))?.running, 2);
  await open();
});

test("one statement takes no more than fetch allows, one turn no more than limit", async () => {
  const chain = await managing(1, { g: 0.1 }, never);
  await plant({ gated: true }, ...Array.from({ length: 20 }, () => ({})));
  await chain.step({ fetch: 4, limit: 10 });
  const { rows } = await user.query(
    "SELECT count(*)::integer AS tasks FROM task WHERE take IS NOT NULL GROUP BY take ORDER BY take",
  );
  assert.deepEqual(
    rows.map((row) => row["tasks"]),
    [1, 4, 4, 1],
  );
  await open();
});

test("tasks of a new group that could start wait for sessions of their own, until it is known how long they take", async () => {
  const chain = await managing(2, { g: 0.1 });
  await plant(...Array.from({ length: 4 }, () => ({ group: "new", max: 9, gated: true })));
  await chain.step();
  assert.deepEqual(await states(), ["WORK", "WORK", "PLAN", "PLAN"]);
  await chain.step();
  assert.deepEqual(await states(), ["WORK", "WORK", "PLAN", "PLAN"]);
  await open();
  await chain.finish();
  assert.equal((await ran()).length, 4);
});
