import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { connect as connectSocket, type Socket } from "node:net";
import { test } from "node:test";
import type { ExecutorDriver } from "../../../support/executorDriver.js";
import {
  admin,
  failure,
  openDriver,
  place,
  secret,
  server,
  startStranger,
} from "../../../support/remoteDriver.js";

await server.admin.query("CREATE TABLE effect (what text)");

const tls = `${place} sslmode=verify-full sslrootcert=${server.authority.certificate}`;
const timedOut = "canceling statement due to statement timeout";

/** Resolves when the second server runs this. */
async function running(text: string): Promise<number> {
  for (;;) {
    const { rows } = await server.admin.query<{ pid: number }>(
      "SELECT pid FROM pg_stat_activity WHERE state = 'active' AND strpos(query, $1) > 0 AND pid <> pg_backend_pid()",
      [text],
    );
    if (rows[0] !== undefined) return rows[0].pid;
  }
}

/** A server that never answers; `met` resolves when somebody has spoken to it. */
async function startSilent(): Promise<{ port: number; met: Promise<unknown> }> {
  const ears = new EventEmitter();
  const met = once(ears, "data");
  return { port: await startStranger((socket) => socket.on("data", () => ears.emit("data"))), met };
}

/** Starts a run, and waits until it is under way on the second server. */
async function begin(driver: ExecutorDriver, input: string, options = {}) {
  const run = driver.make(1, input, { remote: place, ...options });
  driver.executor.dispatch([run]);
  const pid = await running(input);
  return { id: run.id, pid };
}

const sleep = "INSERT INTO effect VALUES ('slept'); SELECT pg_sleep(600)";

/** A cancel that the server has taken reaches its process when the system lets it. */
async function expectNoEffect(): Promise<void> {
  const asleep =
    "SELECT FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND pid <> pg_backend_pid() AND state = 'active'";
  while ((await server.admin.query(asleep)).rowCount !== 0);
  assert.equal((await server.admin.query("SELECT FROM effect")).rowCount, 0);
}

for (const [name, remote] of [
  ["without TLS", place],
  ["with TLS", tls],
] as const) {
  test(`a timeout cancels what runs ${name} on its server`, async () => {
    const driver = await openDriver();
    // How far it gets before that, connecting included, is for the machine to say.
    const { error } = await driver.run(1, `SET statement_timeout = 0; ${sleep}`, {
      remote,
      timeoutMs: 500,
    });
    assert.equal(error, failure(`SET statement_timeout = 0; ${sleep}`, timedOut));
    await expectNoEffect();
    assert.deepEqual(
      driver.messages.filter(({ type }) => type === "cancel"),
      [],
      "the manager is not asked",
    );
    await driver.executor.stop();
  });
}

test("a task that the manager cancels ends on its server", async () => {
  const driver = await openDriver();
  const { id } = await begin(driver, sleep);
  driver.executor.cancel(1, id);
  const result = await driver.result(id);
  assert.equal(
    result.outcome === "ended" && result.error,
    failure(sleep, "canceling statement due to user request"),
  );
  await expectNoEffect();
  await driver.executor.stop();
});

for (const ending of ["cancel", "abort"] as const)
  test(`a task that is ended by ${ending} before it has begun on its server does not begin`, async () => {
    const driver = await openDriver();
    const input = "INSERT INTO effect VALUES ('begun')";
    // Where it runs is entered before it does, and has to wait.
    await admin.query("BEGIN; LOCK TABLE task_ledger_1");
    const run = driver.make(1, input, { remote: place });
    driver.executor.dispatch([run]);
    const waits = "SELECT FROM pg_locks WHERE relation = 'task_ledger_1'::regclass AND NOT granted";
    while ((await admin.query(waits)).rowCount === 0);
    if (ending === "cancel") driver.executor.cancel(1, run.id);
    else driver.executor.abort();
    await admin.query("COMMIT");
    const result = await driver.result(run.id);
    assert.equal(
      result.outcome === "ended" ? result.error : "returned",
      ending === "abort" ? "returned" : failure(input, "canceling statement due to user request"),
    );
    await expectNoEffect();
    assert.equal((await driver.run(1, "SELECT 2", { remote: place })).output, "2");
    await driver.executor.stop();
  });

test("an abort returns what runs on another server, without effect", async () => {
  const driver = await openDriver();
  const { id } = await begin(driver, sleep);
  driver.executor.abort();
  assert.equal((await driver.result(id)).outcome, "returned");
  await expectNoEffect();
  await driver.executor.stop();
});

test("output that is too large ends the task on its server", async () => {
  const driver = await openDriver({ outputLimit: 10 });
  const input =
    "INSERT INTO effect VALUES ('endless'); SELECT repeat('x', 999) FROM (SELECT generate_series(1, 2000000000)) AS endless";
  const { output, error } = await driver.run(1, input, { remote: place });
  assert.deepEqual([output, error], ["INSERT 0 1", failure(input, "output exceeds 10 bytes")]);
  await expectNoEffect();
  await driver.executor.stop();
});

test("a cancel hits no other task of the session", async () => {
  const driver = await openDriver();
  for (let round = 0; round < 10; round++) {
    const short = driver.make(1, "SET statement_timeout = 0; SELECT pg_sleep(0.02)", {
      remote: place,
      timeoutMs: 20,
    });
    const next = driver.make(1, "SELECT pg_sleep(0.02), 'next'", {
      remote: round % 2 === 0 ? place : null,
    });
    driver.executor.dispatch([short, next]);
    const result = await driver.result(next.id);
    assert.equal(result.outcome === "ended" && result.error, null);
  }
  await driver.executor.stop();
});

for (const ending of ["timeout", "abort", "cancel", "stop"] as const) {
  test(`connecting to a server that never answers ends by ${ending}`, async () => {
    const driver = await openDriver();
    const { port, met } = await startSilent();
    const timeoutMs = ending === "timeout" ? 100 : 0;
    const run = driver.make(1, "SELECT 1", {
      remote: `${place} port=${port} connect_timeout=0`,
      timeoutMs,
    });
    driver.executor.dispatch([run]);
    await met;
    if (ending === "abort") driver.executor.abort();
    if (ending === "cancel") driver.executor.cancel(1, run.id);
    if (ending === "stop") {
      await driver.executor.stop();
      assert.ok(driver.messages.some(({ type }) => type === "lost"));
      return;
    }
    const result = await driver.result(run.id);
    const error = result.outcome === "ended" ? result.error : "returned";
    const expected = {
      timeout: failure("SELECT 1", timedOut),
      abort: "returned",
      cancel: failure("SELECT 1", "canceling statement due to user request"),
    };
    assert.equal(error, expected[ending]);
    assert.equal((await driver.run(1, "SELECT 2")).output, "2");
    await driver.executor.stop();
  });
}

test("other tasks go on while one connects", async () => {
  const driver = await openDriver();
  await driver.open(2);
  const { port, met } = await startSilent();
  const stuck = driver.make(2, "SELECT 1", { remote: `${place} port=${port}` });
  driver.executor.dispatch([stuck]);
  await met;
  assert.equal((await driver.run(1, "SELECT 3")).output, "3");
  assert.deepEqual(
    driver
      .results()
      .map(({ id }) => id)
      .includes(stuck.id),
    false,
  );
  await driver.executor.stop();
});

/** Puts the row of a run into the task table, as a claim leaves it. */
async function claimed(driver: ExecutorDriver, id: string): Promise<void> {
  const { owner, pid } = driver.backend(1);
  await admin.query(
    "INSERT INTO task (id, input, state, owner, pid) VALUES ($1, '', 'WORK', $2, $3)",
    [id, owner, pid],
  );
}

const pidOf = async (id: string): Promise<number | undefined> => {
  const { rows } = await admin.query<{ pid: number }>("SELECT pid FROM task WHERE id = $1", [id]);
  return rows[0]?.pid;
};

test("the row names the process that runs a remote task before its input begins", async () => {
  const driver = await openDriver();
  for (let round = 0; round < 20; round += 1) {
    const run = driver.make(1, "SELECT pg_backend_pid()", { remote: place, id: `${1000 + round}` });
    await claimed(driver, run.id);
    driver.executor.dispatch([run]);
    const result = await driver.result(run.id);
    assert.equal(result.outcome === "ended" && result.output, String(await pidOf(run.id)));
  }
  assert.ok(!driver.messages.some(({ type }) => type === "remote"));
  await driver.executor.stop();
});

test("the process that runs a remote task is told where its row is locked", async () => {
  const driver = await openDriver();
  const run = driver.make(1, "SELECT pg_backend_pid()", { remote: place, id: "2000" });
  await claimed(driver, run.id);
  await admin.query("BEGIN");
  await admin.query("SELECT FROM task WHERE id = 2000 FOR UPDATE");
  driver.executor.dispatch([run]);
  const result = await driver.result(run.id);
  await admin.query("COMMIT");
  const { pid } = await driver.heard("remote");
  assert.equal(result.outcome === "ended" && result.output, String(pid));
  assert.notEqual(await pidOf(run.id), pid);
  await driver.executor.stop();
});

test("a row that a trigger keeps from being changed does not keep its remote task from running", async () => {
  const driver = await openDriver();
  const run = driver.make(1, "SELECT 1", { remote: place, id: "3000" });
  await claimed(driver, run.id);
  await admin.query(`
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON task FOR EACH ROW EXECUTE FUNCTION refuse()`);
  driver.executor.dispatch([run]);
  const result = await driver.result(run.id);
  assert.equal(result.outcome === "ended" && result.output, "1");
  assert.ok(!driver.messages.some(({ type }) => type === "remote"));
  await admin.query("DROP FUNCTION refuse CASCADE");
  await driver.executor.stop();
});

const equal: readonly string[] = [
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
for (const input of equal) {
  test(`${JSON.stringify(input)} comes out as it does here`, async () => {
    const driver = await openDriver();
    const here = await driver.run(1, input);
    const there = await driver.run(1, input, { remote: place });
    assert.deepEqual([there.output, there.error], [here.output, here.error]);
    assert.match(there.start, /^\d{4}-.*Z$/);
    assert.ok(there.stop !== null && there.start < there.stop);
    await driver.executor.stop();
  });
}

test("what a task leaves on its server is gone when its end is told", async () => {
  const driver = await openDriver();
  for (let round = 0; round < 20; round++) {
    await driver.run(1, "SELECT pg_advisory_lock(5); CREATE TEMP TABLE left_over ()", {
      remote: place,
    });
    const { rows } = await server.admin.query<{ count: string }>(
      "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
    );
    assert.equal(rows[0]?.count, "0");
  }
  await driver.executor.stop();
});

test("when a server process is killed, its task is lost once the server says that it is gone", async () => {
  const driver = await openDriver();
  const { pid } = await begin(driver, sleep);
  await server.admin.query("SELECT pg_terminate_backend($1)", [pid]);
  const { reason } = await driver.heard("lost");
  assert.match(reason.message, /terminating connection due to administrator command/);
  await expectNoEffect();
  await driver.executor.stop();
});

test("a task whose connection was cut off is lost only when its process is gone", async () => {
  const driver = await openDriver();
  const connections: Socket[] = [];
  const port = await startStranger((socket) => {
    const there = connectSocket(server.port, "127.0.0.1");
    there.on("error", () => {});
    connections.push(socket);
    // The first connection ends for the client only.
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
  const { pid } = await begin(driver, catching, { remote: `${place} port=${port}` });
  connections[0]?.resetAndDestroy();
  // Cancelled once, it waits again: the session keeps its task as long as the process is there.
  while (connections.length < 4) await server.admin.query("SELECT 1");
  assert.equal(
    (await server.admin.query("SELECT FROM pg_stat_activity WHERE pid = $1", [pid])).rowCount,
    1,
  );
  assert.ok(!driver.messages.some(({ type }) => type === "lost"));
  await server.admin.query("SELECT pg_terminate_backend($1)", [pid]);
  await driver.heard("lost");
  await server.admin.query("SELECT pg_advisory_unlock(77)");
  await driver.executor.stop();
});

test("when the session here is lost, what runs there is cancelled", async () => {
  const driver = await openDriver();
  await begin(driver, sleep);
  await admin.query("SELECT pg_terminate_backend($1)", [driver.backend(1).pid]);
  await driver.heard("lost");
  await expectNoEffect();
  await driver.executor.stop();
});

test("a stop of the executor ends what runs there", async () => {
  const driver = await openDriver();
  await begin(driver, sleep);
  await driver.executor.stop();
  await expectNoEffect();
});

test("no password is seen in the server's list of sessions", async () => {
  const driver = await openDriver();
  const input = "SELECT query FROM pg_stat_activity";
  const { output } = await driver.run(1, input, { remote: `${place} user=postgres ${secret}` });
  assert.ok(!(output ?? "").includes("secret"));
  const { rows } = await admin.query<{ query: string }>(
    "SELECT query FROM pg_stat_activity WHERE query LIKE '%secret%' AND pid <> pg_backend_pid()",
  );
  assert.deepEqual(rows, []);
  await driver.executor.stop();
});
