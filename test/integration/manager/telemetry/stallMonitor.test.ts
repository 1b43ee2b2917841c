import assert from "node:assert/strict";
import { after, beforeEach, describe } from "node:test";
import { freePort } from "../../../../src/embedded/port.js";
import { noLoad, ActiveGroups, type GroupLoad } from "../../../../src/manager/groups/groups.js";
import type { SessionPoolLoad } from "../../../../src/manager/sessions/sessionPool.js";
import {
  StallMonitor,
  type StallMonitorOptions,
} from "../../../../src/manager/telemetry/stallMonitor.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import type { Client } from "../../../../src/shared/postgres/client.js";
import { createLog } from "../../../../src/shared/log.js";
import type { Stall } from "../../../../src/shared/stall.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { OwnServer } from "../../../support/ownServer.js";
import { connectTo } from "../../../support/connectTo.js";
import { ensure, openManager } from "../../../support/taskTables.js";

// The rows and the server are real, time and what the manager has counted are the test's.
const database = await createDatabase();
const user = await database.connect();
const other = await database.connect();
const manager = await openManager(database.target);
/** Stands for a session that has nothing to do. */
const idle = await database.connect();

/** Names of two groups that share a hash. */
const colliding = ["n744", "n171856"] as const;

beforeEach(async () => {
  await user.query("TRUNCATE task, task_pause");
});

interface Line {
  readonly level: string;
  readonly msg: string;
  readonly [key: string]: unknown;
}

/** What a manager would have that has one session, which is free. */
interface Counted {
  groups: Map<number, GroupLoad>;
  free: number[];
  working: number[];
  busy: number;
  orphans: number[];
  refused: string[];
  /** Refused to be marked as due. */
  unmarkable: string[];
  started: number;
  mayGrow: boolean;
  mostRuns: number;
}

async function pidOf(client: Client): Promise<number> {
  const { rows } = await client.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
  return rows[0]?.pid ?? 0;
}

const idlePid = await pidOf(idle);

function makeWatch(counted: Partial<Counted> = {}) {
  const is: Counted = {
    groups: new Map(),
    free: [idlePid],
    working: [],
    busy: 0,
    orphans: [],
    refused: [],
    unmarkable: [],
    started: 0,
    mayGrow: false,
    mostRuns: 1000,
    ...counted,
  };
  const lines: Line[] = [];
  const sent: (Stall | null)[] = [];
  const healed: string[] = [];
  let now = 0;
  const parts: StallMonitorOptions = {
    table: taskTable("public", "task"),
    sessions: {
      get load(): SessionPoolLoad {
        return { ...is, states: { free: is.free.length } };
      },
    },
    groups: new ActiveGroups(),
    orphans: {
      get size() {
        return is.orphans.length;
      },
      get hashes() {
        return is.orphans;
      },
    },
    outbox: { state: {}, large: 0 },
    claiming: {
      get refused() {
        return is.refused;
      },
      get started() {
        return is.started;
      },
      state: {},
      set locked(ids: readonly string[]) {
        healed.push(`locked ${ids.length}`);
      },
    },
    workforce: {
      get mayGrow() {
        return is.mayGrow;
      },
      state: {},
    },
    lookout: {
      restart: () => void healed.push("heads"),
      nearestMs: null,
      get refused() {
        return is.unmarkable;
      },
    },
    mostRuns: () => is.mostRuns,
    send: ({ stall }) => void sent.push(stall),
    log: createLog({
      level: "info",
      name: "test",
      write: (line) => {
        lines.push(JSON.parse(line));
        healed.push("said");
      },
    }),
  };
  const times = { stalledMs: 10_000, idleMs: 0 };
  const watch = new StallMonitor(parts, { times, now: () => now });
  const service = { state: {}, wake: () => void healed.push("woken") };
  return {
    is,
    groups: parts.groups,
    lines,
    sent,
    healed,
    /** Looks as often as in so many seconds; `between` is done before each look. */
    passes: async (seconds: number, between: () => unknown = () => {}, client = manager) => {
      for (let passed = 0; passed < seconds; passed += 2.5) {
        await between();
        now += 2_500;
        await watch.look(client, service);
      }
    },
    stands: (seconds: number) => {
      now += seconds * 1000;
    },
  };
}

async function insert(columns: Readonly<Record<string, unknown>> = {}): Promise<string> {
  const given = { input: "SELECT 1", ...columns };
  const names = Object.keys(given).map((name) => `"${name}"`);
  const places = names.map((_, index) => `$${index + 1}`);
  const { rows } = await user.query<{ id: string }>(
    `INSERT INTO task (${names.join(", ")}) VALUES (${places.join(", ")}) RETURNING id`,
    Object.values(given),
  );
  return rows[0]?.id ?? "";
}

async function hashOf(group: string): Promise<number> {
  const { rows } = await user.query<{ hash: number }>("SELECT hashtext($1) AS hash", [group]);
  return rows[0]?.hash ?? 0;
}

describe("says once what is due and not taken though a session is free", () => {
  test("a task that it does not know of, until somebody takes it", async () => {
    const id = await insert({ group: "forgotten" });
    const { lines, sent, healed, passes } = makeWatch();
    await passes(10);
    assert.equal(lines.length, 0);
    await passes(2.5);
    const [line] = lines;
    assert.equal(line?.level, "error");
    assert.equal(line?.msg, "due tasks are not taken though sessions are free");
    assert.deepEqual([line?.["tasks"], line?.["groups"]], [[id], ["forgotten"]]);
    assert.deepEqual(sent[0]?.tasks, [id]);
    assert.deepEqual(healed, ["said", "locked 0", "heads", "woken"]);
    await passes(60);
    assert.equal(lines.length, 1);
    await user.query("UPDATE task SET state = 'STOP'");
    await passes(2.5);
    assert.equal(lines[1]?.msg, "due tasks are taken again");
    assert.equal(sent.at(-1), null);
    await passes(60);
    assert.equal(lines.length, 2);
    await user.query("UPDATE task SET state = 'PLAN'");
    await passes(12.5);
    assert.equal(lines.length, 3);
  });

  test("a task whose group is counted as running though no session has any of it", async () => {
    const id = await insert({ group: "leaked" });
    const { groups, lines, passes } = makeWatch();
    const hash = await hashOf("leaked");
    groups.join(hash);
    groups.occupy();
    await passes(12.5);
    assert.deepEqual(lines[0]?.["tasks"], [id]);
    assert.equal(groups.get(hash), null);
    assert.equal(groups.total, 0);
  });

  test("a task that was not marked as due", async () => {
    const id = await insert();
    await user.query(
      "SET pgtask.manager = on; UPDATE task SET ready = false; RESET pgtask.manager",
    );
    const { lines, passes } = makeWatch();
    await passes(12.5);
    assert.deepEqual(lines[0]?.["tasks"], [id]);
  });

  test("a task for which no session is asked for, as in a deep sleep that nobody ends", async () => {
    const id = await insert();
    const { lines, passes } = makeWatch({ free: [], mayGrow: true });
    await passes(12.5);
    assert.deepEqual(lines[0]?.["tasks"], [id]);
  });

  test("a task beside a session that is thought to be at work and is not", async () => {
    const id = await insert();
    const { lines, passes } = makeWatch({ free: [], busy: 1, working: [idlePid] });
    await passes(12.5);
    assert.deepEqual(lines[0]?.["tasks"], [id]);
  });

  test("tasks of more groups than one look visits, behind others that are paused", async () => {
    await user.query(
      `INSERT INTO task (input, "group") SELECT 'SELECT 1', 'paused' || i FROM generate_series(1, 600) AS i;
       INSERT INTO task_pause ("group") SELECT 'paused' || i FROM generate_series(1, 600) AS i`,
    );
    const id = await insert({ group: "allowed" });
    const { lines, passes } = makeWatch();
    await passes(25);
    assert.deepEqual(lines[0]?.["tasks"], [id]);
  });

  test("a task behind one that somebody has locked", async () => {
    const locked = await insert({ group: "one", max: 1 });
    const id = await insert({ group: "one", max: 1 });
    await other.query("BEGIN");
    await other.query("SELECT FROM task WHERE id = $1 FOR UPDATE", [locked]);
    const { lines, passes } = makeWatch();
    await passes(25);
    await other.query("ROLLBACK");
    assert.deepEqual(
      lines.map((line) => line["tasks"]),
      [[id]],
    );
  });
});

/** Whether it says something within a minute, which it should not. */
async function silent(
  counted: Partial<Counted>,
  between?: () => unknown,
  client?: Client,
): Promise<void> {
  const { lines, sent, passes } = makeWatch(counted);
  await passes(60, between, client);
  assert.deepEqual({ lines, sent }, { lines: [], sent: [] });
}

const having = (sessions: number, others: Partial<GroupLoad> = {}): GroupLoad => ({
  ...noLoad,
  sessions,
  ...others,
});

describe("says nothing of tasks that have to wait", () => {
  test("nothing is due", async () => {
    await insert({ plan: "2100-01-01" });
    await insert({ state: "STOP" });
    await silent({});
  });

  test("their group runs as many as they may start beside", async () => {
    await insert({ group: "full", max: 1 });
    const hash = await hashOf("full");
    await silent({ groups: new Map([[hash, having(2)]]), busy: 2 });
  });

  test("tasks that another process started are as many", async () => {
    await insert({ group: "full", max: 0 });
    await silent({ orphans: [await hashOf("full")] });
  });

  test("tasks of their group wait in sessions that let no more run beside them", async () => {
    await insert({ group: "full", max: 9 });
    const load = having(1, { waiting: 1, least: 0 });
    await silent({ groups: new Map([[await hashOf("full"), load]]), busy: 1 });
  });

  test("a task with a pause starts only while none of its group runs", async () => {
    await insert({ group: "pausing", max: -60_000 });
    await silent({ groups: new Map([[await hashOf("pausing"), having(1)]]), busy: 1 });
  });

  test("a group that runs shares its hash with theirs", async () => {
    await insert({ group: colliding[0] });
    const [one, two] = await Promise.all(colliding.map(hashOf));
    assert.equal(one, two);
    await silent({ groups: new Map([[two ?? 0, having(1)]]), busy: 1 });
  });

  test("their group, or the table, is paused", async () => {
    await insert({ group: "paused" });
    await user.query(`INSERT INTO task_pause ("group") VALUES ('paused')`);
    await silent({});
    await user.query(`UPDATE task_pause SET "group" = NULL`);
    await silent({});
  });

  test("pg_task.run is reached", async () => {
    await insert();
    await silent({ mostRuns: 2, busy: 1, orphans: [1] });
  });

  test("the server has no room for the connections that they need beside their sessions", async () => {
    await insert({ group: "remote" });
    const { groups, lines, passes } = makeWatch();
    groups.withhold(await hashOf("remote"));
    await passes(60);
    assert.deepEqual(lines, []);
  });

  test("no session is free, and none is granted", async () => {
    await insert();
    await silent({ free: [], busy: 4 });
  });

  test("no session is free, and as many as are worth having start one task after the other", async () => {
    await insert();
    const counted = { free: [], mayGrow: true, busy: 4 };
    const { is, lines, passes } = makeWatch(counted);
    await passes(60, () => (is.started += 1));
    assert.deepEqual(lines, []);
  });

  test("the session that is free has had something to do all the time", async () => {
    await insert();
    const work = await database.connect();
    const pid = await pidOf(work);
    await work.query("BEGIN");
    await silent({ free: [pid] });
    await work.query("ROLLBACK");
  });

  test("somebody has locked their rows", async () => {
    await insert();
    await other.query("BEGIN");
    await other.query("SELECT FROM task FOR UPDATE");
    await silent({});
    await other.query("ROLLBACK");
  });

  test("somebody has locked the table", async () => {
    await insert();
    await other.query("BEGIN; LOCK TABLE task");
    const { lines, passes } = makeWatch();
    // Each look waits for the lock for a second.
    await passes(15);
    await other.query("ROLLBACK");
    assert.deepEqual(lines, []);
  });

  test("the server refuses to start them", async () => {
    await silent({ refused: [await insert()] });
  });

  test("the server refuses to mark them as due", async () => {
    const id = await insert();
    await user.query(
      "SET pgtask.manager = on; UPDATE task SET ready = false; RESET pgtask.manager",
    );
    await silent({ unmarkable: [id] });
  });

  test("their active has passed, so that they end as GONE", async () => {
    await insert({ plan: "2000-01-01", active: "1 hour" });
    await silent({});
  });

  test("each of them is taken, and another comes after it", async () => {
    await insert({ group: "one" });
    await silent({}, async () => {
      await user.query("DELETE FROM task");
      await insert({ group: "one" });
    });
  });

  test("the process itself stood still", async () => {
    await insert();
    const { lines, passes, stands } = makeWatch();
    for (let times = 0; times < 10; times += 1) {
      await passes(5);
      stands(60);
    }
    assert.deepEqual(lines, []);
  });

  test("the server has no room for one more session", async () => {
    const server = await OwnServer.at(await freePort());
    await server.start({ max_connections: 14 });
    const { hostname, port } = new URL(server.url);
    const target = { ...database.target, host: hostname, port: Number(port), database: "postgres" };
    await ensure(target);
    const client = await openManager(target);
    const clients = await Promise.all(Array.from({ length: 3 }, () => connectTo(server.url)));
    after(() => Promise.all(clients.map((each) => each.end())));
    await clients[0]?.query("INSERT INTO task (input) VALUES ('SELECT 1')");
    await silent({ free: [], mayGrow: true }, undefined, client);
  });
});
