import assert from "node:assert/strict";
import { after, beforeEach, describe } from "node:test";
import { freePort } from "../../../../src/embedded/port.js";
import { noLoad, type GroupLoad } from "../../../../src/manager/groups/activeGroup.js";
import { ActiveGroups } from "../../../../src/manager/groups/groups.js";
import { StallMonitor, type StallMonitorOptions } from "../../../../src/manager/stalls/stallMonitor.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { backendPid, type Client } from "../../../../src/shared/postgres/client.js";
import { createLog } from "../../../../src/shared/log.js";
import type { Stall } from "../../../../src/shared/statistics.js";
import { test } from "../../../support/limitedTest.js";
import { RestartableServer } from "../../../support/restartableServer.js";
import { connectTo } from "../../../support/connectTo.js";
import { ensureTaskTable, openManager, openTable } from "../../../support/taskTables.js";
import { insertTask } from "../../../support/tasks.js";

// The rows and the server are real. The test controls the clock and the manager's counters.
const { database, user, manager } = await openTable();
const other = await database.connect();
/** A connection that stands for an idle session. */
const idle = await database.connect();

/** Names of two groups with the same hash. */
const colliding = ["n744", "n171856"] as const;

beforeEach(async () => {
  await user.query("TRUNCATE task, task_pause");
});

interface Line {
  readonly level: string;
  readonly msg: string;
  readonly [key: string]: unknown;
}

/** What a manager knows. By default, it has one free session. */
interface ManagerState {
  readonly groups: ReadonlyMap<number, GroupLoad>;
  readonly free: readonly number[];
  readonly working: readonly number[];
  readonly busy: number;
  readonly orphans: readonly number[];
  readonly rejected: readonly string[];
  /** Ids of tasks that the manager could not mark as due, because the server rejected this. */
  readonly unmarkable: readonly string[];
  readonly canGrow: boolean;
  readonly maxRuns: number;
  readonly reserved: number;
}

const idlePid = backendPid(idle) ?? 0;

const nothingKnown: ManagerState = {
  groups: new Map(),
  free: [idlePid],
  working: [],
  busy: 0,
  orphans: [],
  rejected: [],
  unmarkable: [],
  canGrow: false,
  maxRuns: 1000,
  reserved: 0,
};

function createMonitor(given: Partial<ManagerState> = {}) {
  const { orphans, rejected, unmarkable, canGrow, maxRuns, reserved, ...load } = { ...nothingKnown, ...given };
  const lines: Line[] = [];
  const sent: (Stall | null)[] = [];
  const actions: string[] = [];
  let now = 0;
  const groups = new ActiveGroups();
  const claimer = {
    started: 0,
    state: {},
    rejected: { rows: { ids: [...rejected] } },
    locked: { clear: () => void actions.push("locked") },
  };
  const log = createLog({
    level: "info",
    name: "test",
    write: (line) => {
      lines.push(JSON.parse(line));
      actions.push("logged");
    },
  });
  const components: StallMonitorOptions = {
    table: taskTable("public", "task"),
    sessions: { load: { ...load, keys: [], current: [], states: { free: load.free.length } } },
    groups,
    orphans: { size: orphans.length, hashes: [...orphans], keys: [] },
    pendingResults: { state: {}, largeCount: 0 },
    claimer,
    poolScaler: { canGrow, state: {} },
    groupScanner: { restart: () => void actions.push("heads"), nextDueMs: null, rejectedIds: unmarkable },
    maxRuns,
    reserve: { size: reserved },
    send: ({ stall }) => void sent.push(stall),
    log,
  };
  const times = { stalledMs: 10_000, idleMs: 0 };
  const monitor = new StallMonitor(components, { times, now: () => now });
  const loop = { state: {}, wake: () => void actions.push("woken") };
  return {
    claimer,
    monitor,
    groups,
    lines,
    sent,
    actions,
    /** Makes the checks of this many seconds, and calls `between` before each check. */
    passes: async (seconds: number, between: () => unknown = () => {}, client = manager) => {
      for (let passed = 0; passed < seconds; passed += 2.5) {
        await between();
        now += 2_500;
        await monitor.check(client, loop);
      }
    },
    suspend: (seconds: number) => {
      now += seconds * 1000;
    },
  };
}

const insert = (columns: Readonly<Record<string, unknown>> = {}): Promise<string> =>
  insertTask(user, "SELECT 1", columns);

async function hashOf(group: string): Promise<number> {
  const { rows } = await user.query<{ hash: number }>("SELECT hashtext($1) AS hash", [group]);
  return rows[0]?.hash ?? 0;
}

describe("reports once a due task that does not start although a session is free", () => {
  test("a task unknown to the manager, until it starts", async () => {
    const id = await insert({ group: "forgotten" });
    const { lines, sent, actions, passes } = createMonitor();
    await passes(10);
    assert.equal(lines.length, 0);
    await passes(2.5);
    const [line] = lines;
    assert.equal(line?.level, "error");
    assert.equal(line?.msg, "due tasks do not start although sessions are free");
    assert.deepEqual([line?.["tasks"], line?.["groups"]], [[id], ["forgotten"]]);
    assert.deepEqual(sent[0]?.tasks, [id]);
    assert.deepEqual(actions, ["logged", "locked", "heads", "woken"]);
    await passes(60);
    assert.equal(lines.length, 1);
    await user.query("UPDATE task SET state = 'STOP'");
    await passes(2.5);
    assert.equal(lines[1]?.msg, "due tasks start again");
    assert.equal(sent.at(-1), null);
    await passes(60);
    assert.equal(lines.length, 2);
    await user.query("UPDATE task SET state = 'PLAN'");
    await passes(12.5);
    assert.equal(lines.length, 3);
  });

  test("a task of a group that runs nothing, if the only free session is reserved, and none of another group", async () => {
    await insert({ group: "wide", max: 9 });
    const hash = await hashOf("wide");
    const { lines, passes } = createMonitor({
      groups: new Map([[hash, { ...noLoad, sessions: 3 }]]),
      busy: 3,
      reserved: 1,
    });
    await passes(60);
    assert.equal(lines.length, 0);
    const id = await insert({ group: "other" });
    await passes(15);
    assert.deepEqual(lines[0]?.["tasks"], [id]);
  });

  test("a task of a share that runs nothing, if the only free session is reserved, and none of another share", async () => {
    await insert({ group: "a/1" });
    const id = await insert({ group: "b/1" });
    const { groups, lines, passes } = createMonitor({ busy: 3, reserved: 1 });
    groups.divide({ setting: "/", weights: {} }, [{ group: "a/2" }]);
    for (const name of ["a/1", "b/1"]) groups.addDue(await hashOf(name), { max: 0, id: 1n });
    for (const group of groups.ranking.takeUnknown())
      groups.ranking.place(group, null, group.hash === (await hashOf("a/1")) ? "a" : "b");
    await passes(12.5);
    assert.deepEqual(lines[0]?.["tasks"], [id]);
  });

  test("a task whose group is counted as running without any session", async () => {
    const id = await insert({ group: "leaked" });
    const { groups, lines, passes } = createMonitor();
    const hash = await hashOf("leaked");
    groups.addSession(hash);
    groups.addBusySession();
    await passes(12.5);
    assert.deepEqual(lines[0]?.["tasks"], [id]);
    assert.equal(groups.get(hash), null);
    assert.equal(groups.totalRunning, 0);
  });

  for (const [what, given] of [
    ["a task for which no session is demanded, as in deep sleep", { free: [], canGrow: true }],
    ["a task while an idle session counts as busy", { free: [], busy: 1, working: [idlePid] }],
  ] as const) {
    test(what, async () => {
      const id = await insert();
      const { lines, passes } = createMonitor(given);
      await passes(12.5);
      assert.deepEqual(lines[0]?.["tasks"], [id]);
    });
  }

  test("a task that was not marked as due", async () => {
    const id = await insert();
    await user.query("SET pgtask.manager = on; UPDATE task SET ready = false; RESET pgtask.manager");
    const { lines, passes } = createMonitor();
    await passes(12.5);
    assert.deepEqual(lines[0]?.["tasks"], [id]);
  });

  test("a task in deep sleep, in which checks are rare until one of them finds something", async () => {
    const { lines, monitor, passes } = createMonitor();
    const pauses = (): number[] => [{ isAsleep: true }, { isAsleep: false }, null].map((loop) => monitor.pauseMs(loop));
    await passes(2.5);
    assert.deepEqual(pauses(), [30_000, 2_500, 2_500]);
    await insert();
    await passes(2.5);
    assert.deepEqual(pauses(), [2_500, 2_500, 2_500]);
    await passes(10);
    assert.equal(lines.length, 1);
    await user.query("DELETE FROM task");
    await passes(2.5);
    assert.equal(lines.at(-1)?.msg, "due tasks start again");
    assert.deepEqual(pauses(), [30_000, 2_500, 2_500]);
  });

  test("a task behind more paused groups than one check visits", async () => {
    await user.query(
      `INSERT INTO task (input, "group") SELECT 'SELECT 1', 'paused' || i FROM generate_series(1, 600) AS i;
       INSERT INTO task_pause ("group") SELECT 'paused' || i FROM generate_series(1, 600) AS i`,
    );
    const id = await insert({ group: "allowed" });
    const { lines, passes } = createMonitor();
    await passes(25);
    assert.deepEqual(lines[0]?.["tasks"], [id]);
  });

  test("a task behind a locked one", async () => {
    const locked = await insert({ group: "one", max: 1 });
    const id = await insert({ group: "one", max: 1 });
    await other.query("BEGIN");
    await other.query("SELECT FROM task WHERE id = $1 FOR UPDATE", [locked]);
    const { lines, passes } = createMonitor();
    await passes(25);
    await other.query("ROLLBACK");
    assert.deepEqual(
      lines.map((line) => line["tasks"]),
      [[id]],
    );
  });
});

/** Asserts that the checks of a minute report nothing. */
async function assertSilent(given: Partial<ManagerState>, between?: () => unknown, client?: Client): Promise<void> {
  const { lines, sent, passes } = createMonitor(given);
  await passes(60, between, client);
  assert.deepEqual({ lines, sent }, { lines: [], sent: [] });
}

const groupLoad = (sessions: number, others: Partial<GroupLoad> = {}): GroupLoad => ({
  ...noLoad,
  sessions,
  ...others,
});

/** For each reason to wait: the columns of the task that waits, and what the manager knows, by the hash of its group. */
const reasons: Readonly<
  Record<
    string,
    readonly [columns: Readonly<Record<string, unknown>>, state?: (hash: number, id: string) => Partial<ManagerState>]
  >
> = {
  "its planned time has not come": [{ plan: "2100-01-01" }],
  "it was stopped": [{ state: "STOP" }],
  "it is late and will expire": [{ plan: "2000-01-01", active: "1 hour" }],
  "its group has reached its limit": [{ max: 1 }, (hash) => ({ groups: new Map([[hash, groupLoad(2)]]), busy: 2 })],
  "its group has reached its limit with orphans": [{ max: 0 }, (hash) => ({ orphans: [hash] })],
  "queued tasks of its group allow no more to run": [
    { max: 9 },
    (hash) => ({ groups: new Map([[hash, groupLoad(1, { queuedTasks: 1, minQueuedMax: 0 })]]), busy: 1 }),
  ],
  "it has a pause, and another task of its group runs": [
    { max: -60_000 },
    (hash) => ({ groups: new Map([[hash, groupLoad(1)]]), busy: 1 }),
  ],
  "pg_task.run is reached": [{}, () => ({ maxRuns: 2, busy: 1, orphans: [1] })],
  "no session is free, and no more are granted": [{}, () => ({ free: [], busy: 4 })],
  "the server rejects to claim it": [{}, (_, id) => ({ rejected: [id] })],
};

describe("reports no tasks that have to wait", () => {
  for (const [reason, [columns, state = () => ({})]] of Object.entries(reasons)) {
    test(reason, async () => {
      const id = await insert({ group: "waits", ...columns });
      await assertSilent(state(await hashOf("waits"), id));
    });
  }

  test("a task waits for its gap", async () => {
    await insert({ group: "gapped", gap: "1 hour" });
    const { groups, lines, passes } = createMonitor();
    groups.setHead(await hashOf("gapped"), { max: 0, id: 1n, gapMs: 3_600_000 }, false);
    await passes(60);
    assert.deepEqual(lines, []);
  });

  test("a task with a gap waits until the start of another one is reported", async () => {
    await insert({ group: "gapped", max: 9, gap: "1 us" });
    const hash = await hashOf("gapped");
    const { groups, lines, passes } = createMonitor({
      groups: new Map([[hash, groupLoad(1, { starting: 1 })]]),
      busy: 1,
    });
    groups.setHead(hash, { max: 9, id: 1n, gapMs: 0.001 }, false);
    await passes(60);
    assert.deepEqual(lines, []);
  });

  test("a running group has the same hash", async () => {
    await insert({ group: colliding[0] });
    const [one, two] = await Promise.all(colliding.map(hashOf));
    assert.equal(one, two);
    await assertSilent({ groups: new Map([[two ?? 0, groupLoad(1)]]), busy: 1 });
  });

  test("their group, or the table, is paused", async () => {
    await insert({ group: "paused" });
    await user.query(`INSERT INTO task_pause ("group") VALUES ('paused')`);
    await assertSilent({});
    await user.query(`UPDATE task_pause SET "group" = NULL`);
    await assertSilent({});
  });

  test("the server has no connections for remote tasks", async () => {
    await insert({ group: "remote" });
    const { groups, lines, passes } = createMonitor();
    groups.withhold(await hashOf("remote"));
    await passes(60);
    assert.deepEqual(lines, []);
  });

  test("no session is free, and the open ones claim tasks", async () => {
    await insert();
    const given = { free: [], canGrow: true, busy: 4 };
    const { claimer, lines, passes } = createMonitor(given);
    await passes(60, () => (claimer.started += 1));
    assert.deepEqual(lines, []);
  });

  test("other tasks start, although a session is free", async () => {
    await insert();
    const { claimer, lines, passes } = createMonitor();
    await passes(60, () => (claimer.started += 1));
    assert.deepEqual(lines, []);
    // The time counts from the last start.
    await passes(10);
    assert.deepEqual(lines, []);
    await passes(2.5);
    assert.equal(lines.length, 1);
  });

  test("another task starts during the check", async () => {
    await insert();
    const { claimer, lines, passes } = createMonitor();
    const startsMeanwhile = new Proxy(manager, {
      get(client, property) {
        if (property === "query") claimer.started += 1;
        const value: unknown = Reflect.get(client, property, client);
        return typeof value === "function" ? (value.bind(client) as unknown) : value;
      },
    });
    await passes(10);
    await passes(2.5, undefined, startsMeanwhile);
    assert.deepEqual(lines, []);
  });

  test("the backend of the free session is busy", async () => {
    await insert();
    const work = await database.connect();
    await work.query("BEGIN");
    await assertSilent({ free: [backendPid(work) ?? 0] });
    await work.query("ROLLBACK");
  });

  test("their rows are locked", async () => {
    await insert();
    await other.query("BEGIN");
    await other.query("SELECT FROM task FOR UPDATE");
    await assertSilent({});
    await other.query("ROLLBACK");
  });

  test("the table is locked", async () => {
    await insert();
    await other.query("BEGIN; LOCK TABLE task");
    const { lines, passes } = createMonitor();
    // Each check waits a second for the lock.
    await passes(12.5);
    await other.query("ROLLBACK");
    assert.deepEqual(lines, []);
  });

  test("the server rejects to mark them as due", async () => {
    const id = await insert();
    await user.query("SET pgtask.manager = on; UPDATE task SET ready = false; RESET pgtask.manager");
    await assertSilent({ unmarkable: [id] });
  });

  test("each of them starts, and another follows", async () => {
    await insert({ group: "one" });
    await assertSilent({}, async () => {
      await user.query("DELETE FROM task");
      await insert({ group: "one" });
    });
  });

  test("the process was suspended", async () => {
    await insert();
    const { lines, passes, suspend } = createMonitor();
    for (let times = 0; times < 10; times += 1) {
      await passes(5);
      suspend(60);
    }
    assert.deepEqual(lines, []);
  });

  test("the server has no connection for another session", async () => {
    const server = await RestartableServer.create(await freePort());
    await server.start({ max_connections: 14 });
    const { hostname, port } = new URL(server.url);
    const target = { ...database.target, host: hostname, port: Number(port), database: "postgres" };
    await ensureTaskTable(target);
    const client = await openManager(target);
    const clients = await Promise.all(Array.from({ length: 3 }, () => connectTo(server.url)));
    after(() => Promise.all(clients.map((each) => each.end())));
    await clients[0]?.query("INSERT INTO task (input) VALUES ('SELECT 1')");
    await assertSilent({ free: [], canGrow: true }, undefined, client);
  });
});
