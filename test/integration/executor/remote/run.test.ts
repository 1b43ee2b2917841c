import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { connect as connectSocket, type Socket } from "node:net";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import type { ExecutorDriver } from "../../../support/executorDriver.js";
import { startRawServer } from "../../../support/listen.js";
import { errorText, startRemoteDriver } from "../../../support/remoteDriver.js";

const { admin, openDriver, remoteString, server } = await startRemoteDriver();

await server.admin.query("CREATE TABLE effect (what text)");

const tls = `${remoteString} sslmode=verify-full sslrootcert=${server.authority.certificate}`;
const timedOut = "canceling statement due to statement timeout";

/** Waits until the second server runs a query with this text. Returns the backend's pid. */
async function running(text: string): Promise<number> {
  for (;;) {
    const { rows } = await server.admin.query<{ pid: number }>(
      "SELECT pid FROM pg_stat_activity WHERE state = 'active' AND strpos(query, $1) > 0 AND pid <> pg_backend_pid()",
      [text],
    );
    if (rows[0] !== undefined) return rows[0].pid;
    await pause(5);
  }
}

/** Starts a server that never answers. `contacted` resolves when the server has received data. */
async function startSilent(): Promise<{ port: number; contacted: Promise<unknown> }> {
  const events = new EventEmitter();
  const contacted = once(events, "data");
  const port = await startRawServer((socket) => socket.on("data", () => events.emit("data")));
  return { port, contacted };
}

/** Dispatches a run, and waits until the second server runs it. */
async function begin(driver: ExecutorDriver, input: string, options = {}) {
  const run = driver.dispatch(1, input, { remote: remoteString, ...options });
  const pid = await running(input);
  return { id: run.id, pid };
}

const sleep = "INSERT INTO effect VALUES ('slept'); SELECT pg_sleep(600)";

/** Waits until the cancel has reached the backend, and asserts that the run had no effect. */
async function expectNoEffect(): Promise<void> {
  const asleep =
    "SELECT FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND pid <> pg_backend_pid() AND state = 'active'";
  while ((await server.admin.query(asleep)).rowCount !== 0) await pause(5);
  assert.equal((await server.admin.query("SELECT FROM effect")).rowCount, 0);
}

for (const [name, remote] of [
  ["without TLS", remoteString],
  ["with TLS", tls],
] as const) {
  test(`a timeout cancels the remote run ${name}`, async () => {
    const driver = await openDriver();
    // How far the run gets depends on the machine, because the timeout includes the time to connect.
    const { error } = await driver.run(1, `SET statement_timeout = 0; ${sleep}`, {
      remote,
      timeoutMs: 500,
    });
    assert.equal(error, errorText(`SET statement_timeout = 0; ${sleep}`, timedOut));
    await expectNoEffect();
    assert.deepEqual(
      driver.messages.filter(({ type }) => type === "requestCancel"),
      [],
      "the manager is not asked",
    );
    await driver.executor.stop();
  });
}

test("a cancel by the manager ends the remote run", async () => {
  const driver = await openDriver();
  const { id } = await begin(driver, sleep);
  driver.executor.receive({ type: "cancel", session: 1, id });
  const result = await driver.result(id);
  assert.equal(result.outcome === "ended" && result.error, errorText(sleep, "canceling statement due to user request"));
  await expectNoEffect();
});

for (const ending of ["cancel", "abort"] as const)
  test(`a task ended by ${ending} before its remote run began does not begin`, async () => {
    const driver = await openDriver();
    const input = "INSERT INTO effect VALUES ('begun')";
    // Recording the location has to wait for this lock.
    await admin.query("BEGIN; LOCK TABLE task_ledger_1");
    const run = driver.dispatch(1, input, { remote: remoteString });
    const waits = "SELECT FROM pg_locks WHERE relation = 'task_ledger_1'::regclass AND NOT granted";
    while ((await admin.query(waits)).rowCount === 0) await pause(5);
    if (ending === "cancel") driver.executor.receive({ type: "cancel", session: 1, id: run.id });
    else driver.executor.receive({ type: "abort" });
    await admin.query("COMMIT");
    const result = await driver.result(run.id);
    assert.equal(
      result.outcome === "ended" ? result.error : "released",
      ending === "abort" ? "released" : errorText(input, "canceling statement due to user request"),
    );
    await expectNoEffect();
    assert.equal((await driver.run(1, "SELECT 2", { remote: remoteString })).output, "2");
    await driver.executor.stop();
  });

test("an abort releases the remote run, without effect", async () => {
  const driver = await openDriver();
  const { id } = await begin(driver, sleep);
  driver.executor.receive({ type: "abort" });
  assert.equal((await driver.result(id)).outcome, "released");
  await expectNoEffect();
});

test("output beyond the limit ends the remote run", async () => {
  const driver = await openDriver({ outputLimit: 10 });
  const input =
    "INSERT INTO effect VALUES ('endless'); SELECT repeat('x', 999) FROM (SELECT generate_series(1, 2000000000)) AS endless";
  const { output, error } = await driver.run(1, input, { remote: remoteString });
  assert.deepEqual([output, error], ["INSERT 0 1", errorText(input, "output exceeds 10 bytes (pg_task.output)")]);
  await expectNoEffect();
});

test("a cancel hits no other run of the session", async () => {
  const driver = await openDriver();
  for (let round = 0; round < 10; round++) {
    const short = driver.makeRun(1, "SET statement_timeout = 0; SELECT pg_sleep(0.02)", {
      remote: remoteString,
      timeoutMs: 20,
    });
    const next = driver.makeRun(1, "SELECT pg_sleep(0.02), 'next'", {
      remote: round % 2 === 0 ? remoteString : null,
    });
    driver.executor.dispatch([short, next]);
    const result = await driver.result(next.id);
    assert.equal(result.outcome === "ended" && result.error, null);
  }
});

for (const ending of ["timeout", "abort", "cancel", "stop"] as const) {
  test(`${ending} ends connecting to a server that never answers`, async () => {
    const driver = await openDriver();
    const { port, contacted } = await startSilent();
    const timeoutMs = ending === "timeout" ? 1_000 : 0;
    const run = driver.dispatch(1, "SELECT 1", {
      remote: `${remoteString} port=${port} connect_timeout=0`,
      timeoutMs,
    });
    await contacted;
    if (ending === "abort") driver.executor.receive({ type: "abort" });
    if (ending === "cancel") driver.executor.receive({ type: "cancel", session: 1, id: run.id });
    if (ending === "stop") {
      await driver.executor.stop();
      assert.ok(driver.messages.some(({ type }) => type === "lost"));
      return;
    }
    const result = await driver.result(run.id);
    const error = result.outcome === "ended" ? result.error : "released";
    const expected = {
      timeout: errorText("SELECT 1", timedOut),
      abort: "released",
      cancel: errorText("SELECT 1", "canceling statement due to user request"),
    };
    assert.equal(error, expected[ending]);
    assert.equal((await driver.run(1, "SELECT 2")).output, "2");
    await driver.executor.stop();
  });
}

test("other sessions run tasks while one connects", async () => {
  const driver = await openDriver();
  await driver.open(2);
  const { port, contacted } = await startSilent();
  const stuck = driver.dispatch(2, "SELECT 1", { remote: `${remoteString} port=${port}` });
  await contacted;
  assert.equal((await driver.run(1, "SELECT 3")).output, "3");
  assert.deepEqual(
    driver
      .results()
      .map(({ id }) => id)
      .includes(stuck.id),
    false,
  );
});

/** Inserts the row of a run's task as a claim leaves it. */
async function insertClaimed(driver: ExecutorDriver, id: string): Promise<void> {
  const { owner, pid } = driver.backend(1);
  await admin.query("INSERT INTO task (id, input, state, owner, pid) VALUES ($1, '', 'WORK', $2, $3)", [
    id,
    owner,
    pid,
  ]);
}

const pidOf = async (id: string): Promise<number | undefined> => {
  const { rows } = await admin.query<{ pid: number }>("SELECT pid FROM task WHERE id = $1", [id]);
  return rows[0]?.pid;
};

test("the row shows the remote backend before the input begins", async () => {
  const driver = await openDriver();
  for (let round = 0; round < 20; round += 1) {
    const run = driver.makeRun(1, "SELECT pg_backend_pid()", {
      remote: remoteString,
      id: `${1000 + round}`,
    });
    await insertClaimed(driver, run.id);
    driver.executor.dispatch([run]);
    const result = await driver.result(run.id);
    assert.equal(result.outcome === "ended" && result.output, String(await pidOf(run.id)));
  }
  assert.ok(!driver.messages.some(({ type }) => type === "remoteStarted"));
});

test("the remote backend is reported to the manager if the row is locked", async () => {
  const driver = await openDriver();
  const run = driver.makeRun(1, "SELECT pg_backend_pid()", { remote: remoteString, id: "2000" });
  await insertClaimed(driver, run.id);
  await admin.query("BEGIN");
  await admin.query("SELECT FROM task WHERE id = 2000 FOR UPDATE");
  driver.executor.dispatch([run]);
  const result = await driver.result(run.id);
  await admin.query("COMMIT");
  const { pid } = await driver.message("remoteStarted");
  assert.equal(result.outcome === "ended" && result.output, String(pid));
  assert.notEqual(await pidOf(run.id), pid);
});

test("a trigger that refuses the pid does not keep the remote task from running", async () => {
  const driver = await openDriver();
  const run = driver.makeRun(1, "SELECT 1", { remote: remoteString, id: "3000" });
  await insertClaimed(driver, run.id);
  await admin.query(`
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON task FOR EACH ROW EXECUTE FUNCTION refuse()`);
  driver.executor.dispatch([run]);
  const result = await driver.result(run.id);
  assert.equal(result.outcome === "ended" && result.output, "1");
  assert.ok(!driver.messages.some(({ type }) => type === "remoteStarted"));
  await admin.query("DROP FUNCTION refuse CASCADE");
});

const inputs: readonly string[] = [
  "SELECT 1 AS a, NULL AS b; SELECT 2; DELETE FROM pg_class WHERE false",
  "SELECT 1/0",
  "SELECT 1; SELECT nothing",
  "DO $$ BEGIN RAISE EXCEPTION 'two\nlines' USING DETAIL = 'detail', HINT = 'hint'; END $$",
  "BEGIN; SELECT 1",
  "COPY (SELECT 1) TO STDOUT",
  "COPY pg_class FROM STDIN",
  "VACUUM pg_type",
  "",
];
for (const input of inputs) {
  test(`${JSON.stringify(input)} has the same outcome as locally`, async () => {
    const driver = await openDriver();
    const local = await driver.run(1, input);
    const remote = await driver.run(1, input, { remote: remoteString });
    assert.deepEqual([remote.output, remote.error], [local.output, local.error]);
    assert.match(remote.start, /^\d{4}-.*Z$/);
    assert.ok(remote.stop !== null && remote.start < remote.stop);
    await driver.executor.stop();
  });
}

test("a remote session is gone before the result is reported", async () => {
  const driver = await openDriver();
  for (let round = 0; round < 20; round++) {
    await driver.run(1, "SELECT pg_advisory_lock(5); CREATE TEMP TABLE left_over ()", {
      remote: remoteString,
    });
    const { rows } = await server.admin.query<{ count: string }>(
      "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
    );
    assert.equal(rows[0]?.count, "0");
  }
});

test("a run whose remote backend is terminated is lost once the server confirms that", async () => {
  const driver = await openDriver();
  const { pid } = await begin(driver, sleep);
  await server.admin.query("SELECT pg_terminate_backend($1)", [pid]);
  const { reason } = await driver.message("lost");
  assert.match(reason.message, /terminating connection due to administrator command/);
  await expectNoEffect();
});

test("a run that lost its remote connection is lost only when the backend is gone", async () => {
  const driver = await openDriver();
  const connections: Socket[] = [];
  const port = await startRawServer((socket) => {
    const there = connectSocket(server.port, "127.0.0.1");
    there.on("error", () => {});
    connections.push(socket);
    // When the client closes the first connection, the connection to the server stays open.
    if (connections.length === 1) {
      socket.on("data", (chunk) => there.write(chunk));
      there.on("data", (chunk) => socket.write(chunk));
      return;
    }
    socket.pipe(there).pipe(socket);
  });
  const input = "SET client_connection_check_interval = 0; SELECT pg_advisory_lock(77)";
  await server.admin.query("SELECT pg_advisory_lock(77)");
  const catching = `DO $$ BEGIN PERFORM pg_advisory_lock(77); EXCEPTION WHEN query_canceled THEN PERFORM pg_advisory_lock(77); END $$; ${input}`;
  const { pid } = await begin(driver, catching, { remote: `${remoteString} port=${port}` });
  connections[0]?.resetAndDestroy();
  // The cancelled input waits for the lock again. The session keeps the run as long as the backend exists.
  while (connections.length < 4) await pause(5);
  assert.equal((await server.admin.query("SELECT FROM pg_stat_activity WHERE pid = $1", [pid])).rowCount, 1);
  assert.ok(!driver.messages.some(({ type }) => type === "lost"));
  await server.admin.query("SELECT pg_terminate_backend($1)", [pid]);
  await driver.message("lost");
  await server.admin.query("SELECT pg_advisory_unlock(77)");
});

test("losing the local session cancels the remote run", async () => {
  const driver = await openDriver();
  await begin(driver, sleep);
  await admin.query("SELECT pg_terminate_backend($1)", [driver.backend(1).pid]);
  await driver.message("lost");
  await expectNoEffect();
});

test("stopping the executor ends the remote run", async () => {
  const driver = await openDriver();
  await begin(driver, sleep);
  await driver.executor.stop();
  await expectNoEffect();
});
