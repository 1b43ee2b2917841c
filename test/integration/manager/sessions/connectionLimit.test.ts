import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after } from "node:test";
import { connectClient, type Client } from "../../../../src/shared/postgres/client.js";
import { eventually } from "../../../support/tasks.js";
import { createDatabase, onServer } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import type { LogLine } from "../../../support/logLines.js";
import { PgTask } from "../../../support/pgTask.js";

const pgTask = new PgTask();
const database = await createDatabase("empty");
const client = await database.connect();
const { database: name } = database.target;
const role = `limited_${randomBytes(4).toString("hex")}`;
const password = randomBytes(8).toString("hex");
after(() => onServer((server) => server.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`)));
await client.query(
  `CREATE ROLE ${role} LOGIN PASSWORD '${password}'; GRANT CREATE ON DATABASE ${name} TO ${role};
   GRANT ALL ON SCHEMA public TO ${role}`,
);
await client.query(`
  CREATE TABLE gate (open boolean);
  CREATE TABLE ran (id bigint, sessions bigint);
  GRANT ALL ON gate, ran TO ${role}`);

const url = new URL(database.url);
url.username = role;
url.password = password;
const refused = "cannot open a session, tasks wait";
const sessions = `SELECT pid FROM pg_stat_activity
  WHERE datname = current_database() AND application_name LIKE 'pg\\_task %'`;
/** An input that runs until the gate is open, and then records the number of sessions. */
const waiting = `DO $$ BEGIN
  WHILE NOT EXISTS (SELECT FROM public.gate) LOOP PERFORM pg_sleep(0.01); END LOOP; END $$;
  INSERT INTO public.ran SELECT current_setting('pg_task.id')::bigint, count(*) FROM pg_stat_activity
  WHERE datname = current_database() AND application_name LIKE 'pg\\_task %'`;

/** Starts pg-task without a limit. Returns the index of its first log line. */
async function start(config: object = {}): Promise<number> {
  await limit(-1);
  const from = pgTask.lines.length;
  await pgTask.start({ url: url.href, "pg_conf.restart": 1, ...config });
  await client.query("TRUNCATE task, ran, gate");
  return from;
}

const refusals = (from: number): readonly LogLine[] => pgTask.lines.slice(from).filter(({ msg }) => msg === refused);

async function limit(connections: number): Promise<void> {
  await client.query(`ALTER ROLE ${role} CONNECTION LIMIT ${connections}`);
}

async function insert(count: number, input: string): Promise<void> {
  await client.query(
    `INSERT INTO task (input, "group", max)
     SELECT $1, 'group', 1000 FROM generate_series(1, $2::integer)`,
    [input, count],
  );
}

async function sessionsAre(count: number): Promise<void> {
  await eventually(client, sessions, (rows) => rows.length === count);
}

/** Asserts that every task is DONE and ran once. */
async function allAreDone(count: number): Promise<void> {
  await eventually<{ open: string }>(
    client,
    "SELECT count(*) AS open FROM task WHERE state NOT IN ('DONE', 'FAIL')",
    ([row]) => row?.open === "0",
  );
  const { rows } = await client.query(
    `SELECT count(*)::integer AS tasks, count(*) FILTER (WHERE state = 'DONE')::integer AS done,
       count(*) FILTER (WHERE crash > 0)::integer AS crashed,
       (SELECT count(*)::integer FROM ran) AS ran, (SELECT count(DISTINCT id)::integer FROM ran) AS once
     FROM task`,
  );
  assert.deepEqual(rows, [{ tasks: count, done: count, crashed: 0, ran: count, once: count }]);
}

test("tasks wait while the role's connection limit is reached, and run once it is raised", async () => {
  const from = await start();
  // The supervisor and the manager have one connection each, which leaves three for sessions.
  await limit(5);
  await insert(20, waiting);
  await pgTask.logged(({ msg }) => msg === refused, from);
  await sessionsAre(3);
  const [line, ...more] = refusals(from);
  assert.match(String(line?.["reason"]), /too many connections for role .* \(SQLSTATE 53300\)/);
  assert.deepEqual(more, []);
  // The new limit is also reached, but this is not logged again.
  await limit(10);
  await sessionsAre(8);
  await client.query("INSERT INTO gate VALUES (true)");
  await allAreDone(20);
  await pgTask.stop();
});

test("tasks wait while other clients have all connections, and run once those are closed", async () => {
  const from = await start();
  const target = { ...database.target, user: role, password };
  const strangers: Client[] = [];
  for (let count = 0; count < 5; count += 1)
    strangers.push(await connectClient(target, { applicationName: "stranger" }));
  await limit(6);
  await insert(3, waiting);
  await client.query("INSERT INTO gate VALUES (true)");
  await pgTask.logged(({ msg }) => msg === refused, from);
  await sessionsAre(0);
  const { rows } = await client.query("SELECT DISTINCT state::text, crash FROM task");
  assert.deepEqual(rows, [{ state: "PLAN", crash: 0 }]);
  await Promise.all(strangers.map((stranger) => stranger.end()));
  await allAreDone(3);
  assert.equal(refusals(from).length, 1);
  await pgTask.stop();
});

test("a large output is written although no connection is left for it", async () => {
  await start();
  await limit(3);
  const large = `INSERT INTO public.ran SELECT current_setting('pg_task.id')::bigint;
    SELECT repeat('x', 2000000)`;
  await insert(1, large);
  await insert(2, waiting);
  await insert(3, large);
  await eventually<{ done: string }>(
    client,
    "SELECT count(*) AS done FROM task WHERE length(output) >= 2000000",
    ([row]) => Number(row?.done) > 0,
  );
  await client.query("INSERT INTO gate VALUES (true)");
  await allAreDone(6);
  await pgTask.stop();
});

test("there are never more sessions than pg_conf.max", async () => {
  await start({ "pg_conf.max": 3 });
  await insert(6, waiting);
  await sessionsAre(3);
  await pgTask.line("more sessions wanted than granted, tasks wait");
  await client.query("INSERT INTO gate VALUES (true)");
  await allAreDone(6);
  await insert(200, waiting);
  await allAreDone(206);
  const { rows } = await client.query("SELECT max(sessions)::integer AS most FROM ran");
  assert.deepEqual(rows, [{ most: 3 }]);
  await pgTask.stop();
});
