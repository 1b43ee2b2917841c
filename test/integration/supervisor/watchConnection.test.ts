import assert from "node:assert/strict";
import { afterEach } from "node:test";
import { EventEmitter } from "eventemitter3";
import type { ErrorReport } from "../../../src/shared/errors.js";
import type { SleepingTable } from "../../../src/shared/ipc/sleepingTable.js";
import { lockClasses } from "../../../src/shared/postgres/advisoryLocks.js";
import { connectClient } from "../../../src/shared/postgres/client.js";
import { openRollCall } from "../../../src/shared/postgres/rollCall.js";
import { WatchConnection, type WatchedTable } from "../../../src/supervisor/watchConnection.js";
import { test } from "../../support/limitedTest.js";
import { waitForRow } from "../../support/tasks.js";
import { openTable, silentLog } from "../../support/taskTables.js";
import { TcpProxy } from "../../support/tcpProxy.js";

const { database, user } = await openTable();
const proxy = await TcpProxy.start(database.target.port, database.target.host);
const target = { ...database.target, host: "127.0.0.1", port: proxy.port };
const { rows } = await user.query<{ oid: number }>("SELECT 'public.task'::regclass::oid AS oid");
const oid = rows[0]?.oid ?? 0;

const longMs = 3_600_000;
const never = {
  leastMs: longMs,
  perTableMs: 0,
  mostMs: longMs,
  lockedMs: longMs,
  login: { accepted: longMs, refused: longMs },
};
const often = { ...never, leastMs: 20, mostMs: 20, lockedMs: 20 };
const checkSql =
  "SELECT EXISTS (SELECT FROM public.task WHERE ready) AS due, NULL::float8 AS ms, 0::float8 AS clock_ms";

/** A table asleep, as its watch reports it. */
class Sleeper implements WatchedTable {
  readonly table: SleepingTable;
  readonly events = new EventEmitter<{
    lost: [];
    regained: [];
    refused: [code: string | null];
    woken: [reason: string];
  }>();
  readonly woken: Promise<string>;

  constructor(wakeMs: number) {
    this.table = { oid, channels: [`pg_task_${oid}`], rollCall: `pg_work_${oid}`, checkSql, wakeMs };
    this.woken = new Promise((resolve) => void this.events.once("woken", resolve));
  }

  lost = (): void => void this.events.emit("lost");
  regained = (): void => void this.events.emit("regained");
  refused = (reason: ErrorReport | null): void => void this.events.emit("refused", reason?.code ?? null);
  wake = (reason: string): void => void this.events.emit("woken", reason);
}

const ends: (() => void)[] = [];

// A connection that is still open would keep the process alive, and have the lock that the next test takes.
afterEach(async () => {
  for (const end of ends.splice(0)) end();
  await disconnected();
});

const disconnected = (): Promise<unknown> =>
  waitForRow(user, `SELECT WHERE NOT EXISTS (SELECT FROM ${ownSessions} WHERE application_name = 'pg_work sleeping')`);

function openWatch({ checkTimes = never, role = target.user, wakeMs = longMs } = {}) {
  const events = new EventEmitter<{ closed: [] }>();
  const closed = new Promise<void>((resolve) => void events.once("closed", resolve));
  const watch = new WatchConnection(
    { ...target, user: role },
    { log: silentLog, closed: () => void events.emit("closed"), checkTimes },
  );
  const sleeper = new Sleeper(wakeMs);
  ends.push(() => watch.remove(sleeper));
  return { watch, sleeper, closed };
}

/** Other test files use the same server. */
const ownSessions = "(SELECT * FROM pg_stat_activity WHERE datname = current_database()) AS own";
const holderSql = `SELECT a.pid FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
  WHERE l.locktype = 'advisory' AND l.classid = ${lockClasses.manager}::bigint::oid AND l.objid = ${oid} AND a.datname = current_database()
    AND a.application_name = 'pg_work sleeping'`;

test("a notification wakes the table, also before its lock is taken; without tables, the connection is closed", async () => {
  const { watch, sleeper, closed } = openWatch();
  assert.equal(await watch.add(sleeper), true);
  await user.query("INSERT INTO task (input) VALUES ('SELECT 1')");
  assert.equal(await sleeper.woken, "task");
  watch.remove(sleeper);
  await closed;
  await disconnected();
  await user.query("TRUNCATE task");
});

test("the time of the next planned task wakes the table", async () => {
  const { watch, sleeper } = openWatch({ wakeMs: 50 });
  await watch.add(sleeper);
  assert.equal(await watch.lock(sleeper), true);
  assert.equal(await sleeper.woken, "task");
});

test("a check finds a task without a notification, after it has waited for a lock on the table", async () => {
  const { watch, sleeper } = openWatch({ checkTimes: often });
  await watch.add(sleeper);
  await watch.lock(sleeper);
  await user.query("BEGIN; LOCK TABLE task; ALTER TABLE task DISABLE TRIGGER task_wake_up");
  await user.query("INSERT INTO task (input) VALUES ('SELECT 1')");
  await waitForRow(
    user,
    `SELECT FROM ${ownSessions} WHERE application_name = 'pg_work sleeping' AND wait_event_type = 'Lock'`,
  );
  await user.query("COMMIT");
  assert.equal(await sleeper.woken, "task");
  await user.query("ALTER TABLE task ENABLE TRIGGER task_wake_up; TRUNCATE task");
});

test("a check that fails wakes the table, so that its manager reports why", async () => {
  const { watch, sleeper } = openWatch({ checkTimes: often });
  await user.query("ALTER TABLE task RENAME TO task_moved");
  await watch.add(sleeper);
  await watch.lock(sleeper);
  assert.equal(await sleeper.woken, "error");
  await user.query("ALTER TABLE task_moved RENAME TO task");
});

test("the lock cannot be taken while another manager has it", async () => {
  const { watch, sleeper } = openWatch();
  await watch.add(sleeper);
  await user.query("SELECT pg_advisory_lock($1, $2)", [lockClasses.manager, oid]);
  assert.equal(await watch.lock(sleeper), false);
  await user.query("SELECT pg_advisory_unlock($1, $2)", [lockClasses.manager, oid]);
});

test("a login that the server refuses by now shows while the table sleeps, and so does its end", async () => {
  await user.query("CREATE ROLE watcher LOGIN");
  const { watch, sleeper } = openWatch({
    checkTimes: { ...never, login: { accepted: 20, refused: 20 } },
    role: "watcher",
  });
  await watch.add(sleeper);
  assert.equal(await watch.lock(sleeper), true);
  const next = () => new Promise((resolve) => void sleeper.events.once("refused", resolve));
  const refused = next();
  await user.query("ALTER ROLE watcher NOLOGIN");
  assert.equal(await refused, "CONNECTION_REJECTED");
  const accepted = next();
  await user.query("ALTER ROLE watcher LOGIN");
  assert.equal(await accepted, null);
});

for (const how of ["ended by the server", "cut silently"] as const) {
  test(`after the connection was ${how}, the table is watched and locked again, and tasks are found`, async () => {
    const { watch, sleeper } = openWatch();
    await watch.add(sleeper);
    await watch.lock(sleeper);
    const { pid } = await waitForRow<{ pid: number }>(user, holderSql);
    const lost = new Promise<void>((resolve) => void sleeper.events.once("lost", resolve));
    if (how === "cut silently") proxy.freeze("pg_work sleeping");
    else await user.query("SELECT pg_terminate_backend($1)", [pid]);
    await lost;
    await waitForRow(user, `${holderSql} AND a.pid <> ${pid}`);
    await user.query("INSERT INTO task (input) VALUES ('SELECT 1')");
    assert.equal(await sleeper.woken, "task");
    await user.query("TRUNCATE task");
  });
}

test("if another manager has taken the lock while the connection was lost, the table is woken", async () => {
  const { watch, sleeper } = openWatch();
  const other = await database.connect();
  await watch.add(sleeper);
  await watch.lock(sleeper);
  const { pid } = await waitForRow<{ pid: number }>(user, holderSql);
  // Queues for the lock before it is free, so that the watch cannot take it again.
  const locked = other.query("SELECT pg_advisory_lock($1, $2)", [lockClasses.manager, oid]);
  await waitForRow(user, `SELECT FROM ${ownSessions} WHERE wait_event = 'advisory'`);
  await user.query("SELECT pg_terminate_backend($1)", [pid]);
  await locked;
  assert.equal(await sleeper.woken, "lock lost");
  await other.end();
});

test("another process that asks who holds the lock gets an answer", async () => {
  const { watch, sleeper } = openWatch();
  await watch.add(sleeper);
  await watch.lock(sleeper);
  const asking = await connectClient(database.target, { applicationName: "asks" });
  const answered = new EventEmitter<{ pid: [number] }>();
  const answer = new Promise<number>((resolve) => void answered.once("pid", resolve));
  const ask = await openRollCall(asking, sleeper.table.rollCall, {
    isPresent: () => false,
    answered: (pid) => void answered.emit("pid", pid),
  });
  await ask();
  assert.equal(await answer, (await waitForRow<{ pid: number }>(user, holderSql)).pid);
  await asking.end();
});
