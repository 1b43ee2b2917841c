import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { after, beforeEach, type TestContext } from "node:test";
import { Claimer } from "../../../../src/manager/claim/claimer.js";
import { ExecutorThreads } from "../../../../src/manager/sessions/executorThreads.js";
import { ActiveGroups } from "../../../../src/manager/groups/groups.js";
import { GroupScanner } from "../../../../src/manager/groups/groupScanner.js";
import { PendingResults } from "../../../../src/manager/results/pendingResults.js";
import { LedgerRotation } from "../../../../src/manager/upkeep/ledgerRotation.js";
import { DeferredPauses } from "../../../../src/manager/groups/deferredPauses.js";
import { PipelineRecalls } from "../../../../src/manager/sessions/pipelineRecalls.js";
import type { StartedTask } from "../../../../src/manager/model.js";
import { RetryQueue } from "../../../../src/manager/results/retryQueue.js";
import { RunTimes } from "../../../../src/manager/sessions/runTimes.js";
import { SettingsAge } from "../../../../src/manager/sessions/settingsAge.js";
import { SessionPool } from "../../../../src/manager/sessions/sessionPool.js";
import type { ManagerSettings } from "../../../../src/manager/settings.js";
import { cancelBackend } from "../../../../src/manager/sessions/backendCancellations.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { WorkCycle } from "../../../../src/manager/loop/workCycle.js";
import { createLog } from "../../../../src/shared/log.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { openManager } from "../../../support/taskTables.js";
import { only } from "../../../support/tasks.js";
import { noDependencies } from "../../../support/dependencies.js";
import { retryPolicy } from "../../../support/retryPolicy.js";

// The tests use the components of a real manager, but run the cycles themselves.
const database = await createDatabase();
const user = await database.connect();
const gate = await database.connect();
const manager = await openManager(database.target);
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
  ...retryPolicy,
};

/** A time in ms after which a run counts as slow, so long that no test reaches it. */
const never = 1e9;

/**
 * Creates a manager with `count` sessions.
 *
 * @param known run times that the manager has recorded for these groups, in ms
 * @param slowMs how long a run may take before the tasks queued behind it are recalled, in ms
 */
async function managing(count: number, known: Readonly<Record<string, number>>, slowMs = 50) {
  const news = new EventEmitter();
  const groups = new ActiveGroups();
  const runTimes = new RunTimes();
  const pendingResults = new PendingResults();
  const starts = new RetryQueue<StartedTask>();
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
      finishFunction: table.qualifiedFinish,
      resetFunction: table.qualifiedReset,
      ledgers: ["public.task_ledger_1", "public.task_ledger_2"],
      outputLimit: settings.outputLimit,
      isSuperuser: true,
      lostRunTimeoutMs: 3_600_000,
      serverStart: null,
    }),
    closeMs: () => settings.closeMs,
    events: {
      message: (thread, message) => sessions.receive(thread, message),
      connectionRequest: () => {},
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
      result: (result, owner, queued) => pendingResults.add(result, owner, queued),
      started: (task) => starts.add(task),
      silent: () => {},
      remote: () => {},
      lost: ({ id }, _, front) => lost.push({ id, front }),
      recall: (recall) => recalls.add(recall),
      permitWanted: (session) => recalls.requestPermit(session),
      permitUnused: (permit) => recalls.revoke(permit),
      opened: () => {},
      openFailed: ({ message }) => assert.fail(message),
      objectMissing: assert.fail,
      cancel: (each) => {
        void cancelBackend(manager, each.pid).then(() => sessions.confirmCancel(each));
      },
    },
    log,
  });
  after(() => executors.end());
  const recalls = new PipelineRecalls(sessions.recalls);
  const groupScanner = new GroupScanner({ table, groups, log });
  const turn = new WorkCycle({
    table,
    sessions,
    groups,
    pendingResults,
    remotePids: new RetryQueue(),
    recalls,
    groupScanner,
    deferredPauses: new DeferredPauses(table, log),
    claimer: new Claimer({
      table,
      sessions,
      groups,
      groupScanner,
      pendingResults,
      runTimes,
      settingsAge: new SettingsAge({ sessions, log }),
      log,
      ledgers: new LedgerRotation({ table, log }),
    }),
    starts,
    retryPolicy: () => retryPolicy,
    onRetries: () => {},
    dependencies: noDependencies(table),
    log,
  });
  const until = async (condition: () => boolean): Promise<void> => {
    while (!condition()) await once(news, "news");
  };
  const step = (limits: Partial<ManagerSettings> = {}, lookAhead = 0) =>
    turn.run(
      manager,
      { ...settings, ...limits },
      { start: 100, lookAhead, checkRuns: true, notified: true, polls: false },
    );
  sessions.open(count);
  await until(() => sessions.free === count);
  return {
    groups,
    sessions,
    pendingResults,
    lost,
    until,
    step,
    /** Runs cycles until no task waits or runs. */
    async finish(): Promise<void> {
      for (;;) {
        await step();
        const { rowCount } = await user.query("SELECT FROM task WHERE ready OR owner IS NOT NULL LIMIT 1");
        if (rowCount === 0) return;
        if (sessions.busy > 0 && pendingResults.isEmpty) await once(news, "news");
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
  /** Whether the task waits until the gate is opened. */
  readonly gated?: boolean;
  readonly [column: string]: string | number | boolean | undefined;
}

/** Closes the gate, and inserts tasks that record that they ran. Ids start at 1. */
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

test("tasks of a sequential group queue in one session and run in order", async () => {
  const chain = await managing(2, { g: 0.1 }, never);
  await plant({ gated: true }, {}, {}, {}, {});
  await chain.step();
  assert.deepEqual(await states(), ["WORK", "TAKE", "TAKE", "TAKE", "TAKE"]);
  const { rows } = await user.query(
    "SELECT count(DISTINCT owner)::integer AS owners, count(pid)::integer AS pids, count(take)::integer AS taken, count(start)::integer AS started FROM task",
  );
  assert.deepEqual(rows, [{ owners: 1, pids: 5, taken: 5, started: 1 }]);
  const group = chain.groups.get(await hashOf("g"));
  assert.deepEqual([group?.running, chain.groups.totalRunning], [1, 1]);
  await open();
  await chain.finish();
  assert.deepEqual(await ran(), [1, 2, 3, 4, 5]);
  const { rows: overlaps } = await user.query(
    "SELECT FROM task AS a JOIN task AS b ON a.id < b.id AND a.stop > b.start",
  );
  assert.equal(overlaps.length, 0);
  assert.deepEqual([chain.groups.get(await hashOf("g")), chain.groups.totalRunning], [null, 0]);
});

test("the first task of a group with unknown run times runs alone", async () => {
  const chain = await managing(1, {});
  await plant({ gated: true }, {}, {});
  await chain.step();
  assert.deepEqual(await states(), ["WORK", "PLAN", "PLAN"]);
  await open();
  await chain.finish();
  assert.deepEqual(await ran(), [1, 2, 3]);
});

test("nothing is queued behind tasks of a slow group", async () => {
  const chain = await managing(1, { g: 100 });
  await plant({ gated: true }, {}, {});
  await chain.step();
  assert.deepEqual(await states(), ["WORK", "PLAN", "PLAN"]);
  await open();
});

test("tasks queued behind a slow task are recalled and run in order later", async () => {
  const chain = await managing(1, { g: 0.1 });
  await plant({ gated: true }, {}, {});
  await chain.step();
  await chain.until(() => chain.pendingResults.size === 2);
  await chain.step();
  assert.deepEqual(await states(), ["WORK", "PLAN", "PLAN"]);
  const { rows } = await user.query("SELECT owner, pid, take, start, ready FROM task WHERE id > 1 ORDER BY id");
  const waiting = { owner: null, pid: null, take: null, start: null, ready: true };
  assert.deepEqual(rows, [waiting, waiting]);
  await open();
  await chain.finish();
  assert.deepEqual(await ran(), [1, 2, 3]);
});

test("a queued task that runs long becomes WORK with its start time", async () => {
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

test("queued tasks that are stopped or deleted do not run", async () => {
  const chain = await managing(1, { g: 0.1 });
  await plant({ gated: true }, {}, {}, {});
  await chain.step();
  await user.query("UPDATE task SET state = 'STOP' WHERE id = 2");
  await user.query("DELETE FROM task WHERE id = 3");
  await chain.step();
  // Either each of these tasks is cancelled in the queue, or all queued tasks are recalled together.
  await chain.until(() => chain.pendingResults.size >= 2);
  await open();
  await chain.finish();
  assert.deepEqual(await ran(), [1, 4]);
  assert.deepEqual(await states(), ["DONE", "STOP", "DONE"]);
  const { rows } = await user.query("SELECT owner, start FROM task WHERE id = 2");
  assert.deepEqual(rows, [{ owner: null, start: null }]);
});

/** Runs a task, then sends five more behind another one that waits for the gate. */
async function sendBehind(chain: Awaited<ReturnType<typeof managing>>): Promise<void> {
  await user.query("CREATE SEQUENCE IF NOT EXISTS side");
  await user.query("ALTER SEQUENCE side RESTART");
  const others = Array.from({ length: 5 }, () => ({ input: "SELECT nextval('side')" }));
  await plant({ input: "SELECT pg_sleep(0.02)" }, { gated: true }, ...others);
  for (;;) {
    // On a busy machine, the tasks may be recalled before the gated one starts.
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

/** Returns the advisory locks of runs that any session holds. */
async function runLocks(): Promise<object[]> {
  const { rows } = await user.query<object>(
    `SELECT l.* FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.classid::bigint
     WHERE l.locktype = 'advisory' AND a.application_name LIKE 'pg_task %' AND a.datname = current_database()`,
  );
  return rows;
}

/** Runs cycles until no task is queued in a session. */
async function untilTakenBack(chain: Awaited<ReturnType<typeof managing>>): Promise<void> {
  do await chain.step();
  while ((await states()).includes("TAKE"));
}

const times = (count: number, state: string): string[] => Array.from({ length: count }, () => state);

test("tasks sent behind a slow task are recalled while that one runs", async () => {
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

test("a sent task that is changed does not run in its old form", async () => {
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

test("sent tasks of a group that is then paused wait for the end of the pause", async () => {
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

test("when a session is lost only its current task is to blame", async () => {
  const chain = await managing(1, { g: 0.1 });
  await plant({ gated: true }, {}, {});
  await chain.step();
  await user.query("SELECT pg_terminate_backend(pid) FROM task WHERE id = 1");
  await chain.until(() => chain.lost.length > 0);
  const blamed = chain.lost.filter(({ front }) => front).map(({ id }) => id);
  assert.deepEqual(blamed, ["1"]);
  // The tasks behind it are lost, too, unless they had been recalled by then.
  assert.equal(chain.lost.length + chain.pendingResults.size, 3);
  assert.deepEqual([chain.sessions.tasks.count, chain.groups.totalRunning], [0, 0]);
  await open();
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
    const chain = await managing(1, { g: 0.1, [`g${columns["remote"] ?? ""}`]: 0.1 });
    await plant({ gated: true }, {}, columns, {});
    await chain.step();
    // Later tasks of the same group wait for it. A remote task belongs to another group, and the session is reserved for
    // it.
    const second = columns["remote"] === undefined ? "TAKE" : "PLAN";
    assert.deepEqual(await states(), ["WORK", second, "PLAN", "PLAN"]);
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

/** Counts the full and queued claims that the manager sends from now on. */
function countClaims(context: TestContext): () => number {
  const query = context.mock.method(manager, "query");
  const names = ["claim", "claim queued"];
  return () => query.mock.calls.filter(({ arguments: [sent] }) => names.includes(Object(sent).name)).length;
}

test("one claim starts short tasks in all free sessions and queues those of other groups", async (context) => {
  const chain = await managing(2, { a: 0.1, b: 0.1, c: 0.1, d: 0.1 });
  const claims = countClaims(context);
  await plant({ group: "a", gated: true }, { group: "b", gated: true }, { group: "c" }, { group: "d" });
  await chain.step();
  assert.deepEqual([await states(), claims()], [["WORK", "WORK", "TAKE", "TAKE"], 1]);
  await open();
  await chain.finish();
  assert.deepEqual(
    (await ran()).toSorted((a, b) => a - b),
    [1, 2, 3, 4],
  );
});

test("a second claim queues tasks behind those of their group that have just started", async (context) => {
  const chain = await managing(2, { a: 0.1, b: 0.1, c: 0.1 });
  const claims = countClaims(context);
  await plant({ group: "a", gated: true }, { group: "b", gated: true }, { group: "c" }, { group: "a" });
  await chain.step();
  assert.deepEqual([await states(), claims()], [["WORK", "WORK", "TAKE", "TAKE"], 2]);
  const { rows } = await user.query("SELECT count(DISTINCT owner) AS owners FROM task WHERE id IN (1, 4)");
  assert.deepEqual(rows, [{ owners: "1" }]);
  await open();
  await chain.finish();
  assert.deepEqual(
    (await ran()).toSorted((a, b) => a - b),
    [1, 2, 3, 4],
  );
});

test("no short task queues behind a long one that starts at once", async () => {
  const chain = await managing(2, { long: 100, b: 0.1, c: 0.1 }, never);
  await plant({ group: "long", gated: true, max: 9 }, { group: "b", gated: true }, { group: "c" });
  await chain.step();
  assert.deepEqual(await states(), ["WORK", "WORK", "TAKE"]);
  const { rows } = await user.query("SELECT count(DISTINCT owner) AS owners FROM task WHERE id IN (2, 3)");
  assert.deepEqual(rows, [{ owners: "1" }]);
  await open();
  await chain.finish();
});

test("a long task does not queue behind short ones while other sessions can be opened", async () => {
  const chain = await managing(2, { a: 0.1, b: 0.1, long: 100, d: 0.1 }, never);
  const starting = [
    { group: "a", gated: true, max: 9 },
    { group: "b", gated: true, max: 8 },
  ];
  await plant(...starting, { group: "long", max: 3 }, { group: "d" });
  const { more } = await chain.step({}, 5);
  assert.deepEqual([await states(), more > 0], [["WORK", "WORK", "PLAN", "TAKE"], true]);
  await open();
  await chain.finish();
});

test("nothing is queued behind the first runs of a new group, although tasks of other groups could be", async () => {
  const chain = await managing(1, { a: 0.1, b: 0.1 }, never);
  const task = { group: "new", max: 9, gated: true };
  await plant(task, task, task, { group: "a" }, { group: "b" });
  await chain.step();
  assert.deepEqual((await states()).slice(0, 3), ["WORK", "PLAN", "PLAN"]);
  await open();
  await chain.finish();
});

test("a free session gets another task if the one it was to start is gone, although others are queued", async (context) => {
  const chain = await managing(2, { own: 0.1, gone: 0.1, long: 100 }, never);
  await plant({ group: "own", gated: true });
  await chain.step();
  await plant({ group: "gone" }, { group: "own" }, { group: "long", gated: true });
  const query: (...sent: unknown[]) => unknown = manager.query.bind(manager);
  let isDeleted = false;
  context.mock.method(manager, "query", async (...sent: unknown[]) => {
    if (!isDeleted && Object(sent[0]).name === "claim") {
      isDeleted = true;
      await user.query("DELETE FROM task WHERE id = 2");
    }
    return query(...sent);
  });
  await chain.step();
  assert.deepEqual(await states(), ["WORK", "TAKE", "WORK"]);
  await open();
  await chain.finish();
});

test("while each claim takes a single task, a cycle still gives one to each free session", async (context) => {
  const chain = await managing(3, { a: 0.1, b: 0.1, c: 0.1 }, never);
  await user.query(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
    IF (SELECT count(*) FROM changed WHERE state = 'WORK') > 1 THEN RAISE 'one at a time'; END IF; RETURN NULL; END$$`);
  await user.query(`CREATE TRIGGER refuse AFTER UPDATE ON task REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION refuse()`);
  context.after(() => user.query("DROP FUNCTION refuse CASCADE"));
  await plant(...["a", "b", "c"].map((group) => ({ group, gated: true })));
  await chain.step();
  await chain.step();
  assert.deepEqual(await states(), ["WORK", "WORK", "WORK"]);
  await open();
  await chain.finish();
});

test("when no session is free, tasks of other groups queue in order of rank", async () => {
  const chain = await managing(1, { g: 0.1, a: 0.1, b: 0.1, long: 100 }, never);
  await plant({ gated: true, max: 9 }, { group: "a" }, { group: "b", max: 3 });
  await chain.step();
  assert.deepEqual(await states(), ["WORK", "TAKE", "TAKE"]);
  await open();
  await chain.finish();
  assert.deepEqual(await ran(), [1, 3, 2]);
});

test("no lower-ranked task starts while a slow task has to wait", async () => {
  const chain = await managing(1, { g: 0.1, a: 0.1, long: 100 }, never);
  await plant({ gated: true, max: 9 }, { group: "a", max: 2 }, { group: "long", max: 1 }, { group: "a" });
  await chain.step();
  assert.deepEqual(await states(), ["WORK", "TAKE", "PLAN", "PLAN"]);
  await open();
  await chain.finish();
  assert.deepEqual(await ran(), [1, 2, 3, 4]);
});

test("tasks of a group with max 1 queue in two sessions at most", async () => {
  const chain = await managing(3, { g: 0.1 }, never);
  await plant(...Array.from({ length: 8 }, () => ({ gated: true, max: 1 })));
  await chain.step();
  assert.deepEqual(await states(), ["WORK", "WORK", ...Array.from({ length: 6 }, () => "TAKE")]);
  const { rows } = await user.query("SELECT count(*)::integer AS tasks FROM task GROUP BY owner ORDER BY 1");
  assert.deepEqual(rows, [{ tasks: 4 }, { tasks: 4 }]);
  assert.equal(chain.groups.get(await hashOf("g"))?.running, 2);
  await open();
});

test("one statement claims at most fetch tasks, one cycle at most limit", async () => {
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

test("tasks of a new group are not queued behind others until their run time is known", async () => {
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
