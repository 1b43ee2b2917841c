import assert from "node:assert/strict";
import { connectClient, type Client } from "../../../../src/shared/postgres/client.js";
import { eventually } from "../../../support/tasks.js";
import { freePort } from "../../../../src/embedded/port.js";
import { after } from "node:test";
import { test } from "../../../support/limitedTest.js";
import { RestartableServer } from "../../../support/restartableServer.js";
import { startPgTask, type PgTask } from "../../../support/pgTask.js";
import { testConnection } from "../../../support/connectTo.js";

/** Number of connections that are left to other clients. */
const left = 10;

const noRoom = "connection limit of the server reached, remote tasks wait";

const server = await RestartableServer.create(await freePort());

/** Starts the server with this max_connections, pg-task, and a client. All tests use the same task table. */
async function start(connections: number): Promise<{ client: Client; pgTask: PgTask }> {
  await server.stop();
  await server.start({ max_connections: connections, superuser_reserved_connections: 3 });
  const pgTask = await startPgTask({ url: server.url, "pg_task.sleep": 50 });
  const client = await stranger();
  await client.query("CREATE TABLE IF NOT EXISTS gate (open boolean)");
  await client.query("TRUNCATE gate, task");
  return { client, pgTask };
}

async function stranger(): Promise<Client> {
  const target = { host: "127.0.0.1", port: server.port, user: "postgres", database: "postgres" };
  const client = await connectClient(
    { ...target, sslmode: "disable", connectTimeoutMs: 10_000 },
    { ...testConnection, applicationName: "stranger" },
  );
  after(() => client.end());
  return client;
}

/** Query that counts the connections. */
const count = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'";

async function insert(
  client: Client,
  tasks: number,
  task: { input: string; remote: string | null; group?: string; max?: number },
): Promise<void> {
  await client.query(
    `INSERT INTO task (input, remote, "group", max)
     SELECT $1, $2, coalesce($3, 'group ' || n), $4 FROM generate_series(1, $5::integer) AS n`,
    [task.input, task.remote, task.group ?? null, task.max ?? 0, tasks],
  );
}

async function allDone(client: Client, tasks: number): Promise<string[]> {
  await eventually<{ open: string }>(
    client,
    "SELECT count(*) AS open FROM task WHERE state NOT IN ('DONE', 'FAIL')",
    ([row]) => row?.open === "0",
  );
  const { rows } = await client.query<{
    state: string;
    error: string;
    output: string;
    crash: number;
  }>("SELECT state::text, error, output, crash FROM task");
  assert.deepEqual(
    rows.filter(({ state, crash }) => state !== "DONE" || crash > 0),
    [],
  );
  assert.equal(rows.length, tasks);
  await client.query("DELETE FROM task");
  return rows.map(({ output }) => output);
}

test("remote tasks to the manager's own server leave its last connections to others", async () => {
  const { client, pgTask } = await start(25);
  const counted = `${count}; DO $$ BEGIN PERFORM pg_sleep(0.05); END $$`;
  const { port } = server;
  for (const [remote, group] of [
    ["dbname=postgres", undefined],
    [`host=localhost port=${port} dbname=postgres user=postgres`, "together"],
    [`host=127.0.0.1 port=${port} dbname=postgres user=postgres sslmode=disable`, undefined],
  ] as const) {
    await insert(client, 30, { input: counted, remote, max: 1000, ...(group && { group }) });
    const outputs = await allDone(client, 30);
    const most = Math.max(...outputs.map((output) => Number.parseInt(output, 10)));
    assert.ok(most <= 25 - left, `${most} connections`);
    assert.ok(most > 8, `${most} connections`);
  }
  await pgTask.line(noRoom);
});

test("when sessions use all connections, some are freed for remote tasks", async () => {
  const { client } = await start(30);
  const wait = `DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM public.gate) LOOP PERFORM pg_sleep(0.05); END LOOP; END $$`;
  // The supervisor, the manager and the test have one connection each.
  await insert(client, 17, { input: wait, remote: null });
  await eventually<{ count: string }>(client, count, ([row]) => row?.count === "20");
  await insert(client, 20, { input: count, remote: "dbname=postgres", max: 5 });
  await client.query("INSERT INTO gate VALUES (true)");
  const outputs = await allDone(client, 37);
  assert.ok(Math.max(...outputs.map((output) => Number(output) || 0)) <= 20);
});

test("with one connection for remote tasks they run one after another", async () => {
  const { client } = await start(15);
  await insert(client, 5, { input: count, remote: "dbname=postgres" });
  assert.deepEqual(await allDone(client, 5), ["5", "5", "5", "5", "5"]);
});

test("remote tasks wait while other clients have the connections, and other tasks run meanwhile", async () => {
  const { client, pgTask } = await start(20);
  const strangers: Client[] = [];
  // These connections leave room for one session and nothing else.
  for (let each = 0; each < 6; each += 1) strangers.push(await stranger());
  await insert(client, 3, { input: "SELECT 1", remote: "dbname=postgres" });
  await pgTask.line(noRoom);
  await insert(client, 3, { input: "SELECT 2", remote: null });
  await eventually<{ done: string }>(
    client,
    "SELECT count(*) AS done FROM task WHERE state = 'DONE' AND remote IS NULL",
    ([row]) => row?.done === "3",
  );
  const { rows } = await client.query(
    "SELECT DISTINCT state::text, pid, owner FROM task WHERE remote IS NOT NULL AND state <> 'WORK'",
  );
  assert.deepEqual(rows, [{ state: "PLAN", pid: null, owner: null }]);
  for (const each of strangers) await each.end();
  await allDone(client, 6);
  assert.equal(pgTask.linesMatching(noRoom).length, 1);
});

test("a remote task to the manager's own server waits at its role's connection limit", async () => {
  const { client } = await start(40);
  await client.query("CREATE ROLE limited LOGIN CONNECTION LIMIT 1; GRANT ALL ON gate TO limited");
  const input = "SELECT session_user, pg_sleep(0.02)::text";
  await insert(client, 8, { input, remote: "user=limited dbname=postgres", group: "g", max: 7 });
  assert.equal((await allDone(client, 8)).length, 8);
});

test("a task that is stopped while it waits for a connection does not run", async () => {
  const { client, pgTask } = await start(15);
  const one = await stranger();
  await insert(client, 1, {
    input: "INSERT INTO public.gate VALUES (true)",
    remote: "dbname=postgres",
  });
  await pgTask.line(noRoom);
  await client.query("UPDATE task SET state = 'STOP' WHERE state <> 'STOP'");
  await one.end();
  await insert(client, 1, { input: "SELECT 'next'", remote: "dbname=postgres" });
  await eventually(client, "SELECT FROM task WHERE state = 'DONE'", (rows) => rows.length === 1);
  assert.equal((await client.query("SELECT FROM gate")).rowCount, 0);
});

test("remote tasks that wait for a connection run after the server has restarted", async () => {
  const { client, pgTask } = await start(30);
  const wait = `DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM public.gate) LOOP PERFORM pg_sleep(0.05); END LOOP; END $$; ${count}`;
  await insert(client, 30, { input: wait, remote: "dbname=postgres" });
  await pgTask.line(noRoom);
  client.on("error", () => {});
  await server.crash();
  await server.start({ max_connections: 30, superuser_reserved_connections: 3 });
  await pgTask.line("serving table", 2);
  const again = await stranger();
  await again.query("INSERT INTO gate VALUES (true)");
  const outputs = await allDone(again, 30);
  const counts = outputs.map((output) => Number(output.split("\n").at(-1)));
  assert.ok(Math.max(...counts) <= 30 - left, `${Math.max(...counts)} connections`);
});
