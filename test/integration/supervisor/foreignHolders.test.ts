import assert from "node:assert/strict";
import { after, beforeEach } from "node:test";
import { lockClasses } from "../../../src/shared/postgres/advisoryLocks.js";
import { backendPid, connectClient, type Client } from "../../../src/shared/postgres/client.js";
import { cli } from "../../support/cli.js";
import { createDatabase, onServer } from "../../support/database.js";
import { doctor } from "../../support/doctor.js";
import { test } from "../../support/limitedTest.js";
import { PgTask } from "../../support/pgTask.js";
import { ensureTaskTable } from "../../support/taskTables.js";

const pgTask = new PgTask();
const database = await createDatabase("empty");
const client = await database.connect();
const { target } = database;
const [stranger, plain] = [`stranger_${target.database}`, `plain_${target.database}`];
// Both roles are dropped after the database, with which all that they own is gone.
after(() => onServer((server) => server.query(`DROP ROLE ${stranger}, ${plain}`)));
await client.query(`CREATE ROLE ${stranger} LOGIN; CREATE ROLE ${plain} LOGIN`);
await client.query(`GRANT CREATE ON SCHEMA public TO ${plain}`);
await ensureTaskTable({ ...target, user: plain });
const urlOf = (role: string): string => database.url.replace(/\/\/[^@]+@/, `//${role}@`);

const leaderLock = `pg_advisory_lock(${lockClasses.supervisor}, hashtext('pg_task'))`;
const tableLock = `pg_advisory_lock(${lockClasses.manager}, 'public.task'::regclass::oid::integer)`;
const holds = {
  leader: "a session of another role or program holds the leader's lock",
  manager: "a session of another role or program holds the table's lock",
};
const ended = {
  leader: "a session of another role and program held the leader's lock, it was ended",
  manager: "a session of another role and program held the table's lock, it was ended",
};

/** Takes a lock of pg-task with a session of a role that may only connect. */
async function hold(lock: string, applicationName: string): Promise<Client> {
  const holder = await connectClient({ ...target, user: stranger }, { applicationName });
  holder.on("error", () => {});
  await holder.query(`SELECT ${lock}`);
  return holder;
}

const bothLocks = [
  ["leader", leaderLock],
  ["manager", tableLock],
] as const;

beforeEach(() => pgTask.stop());

for (const [what, lock] of bothLocks) {
  test(`ends a session that holds the lock of the ${what} and is certainly not a pg-task, also a busy one`, async () => {
    const holder = await hold(lock, "psql");
    const busy = holder.query("SELECT pg_sleep(600)").catch(() => {});
    const from = pgTask.lines.length;
    pgTask.launch({ url: database.url, "pg_conf.frozen": 0 });
    const line = await pgTask.logged(({ msg }) => msg === ended[what], from);
    assert.deepEqual([line["backend"], line["role"], line["application"]], [backendPid(holder), stranger, "psql"]);
    await busy;
    await pgTask.logged(({ msg }) => msg === "serving table", from);
  });

  test(`names a session that holds the lock of the ${what} and may be a pg-task, and does not end it`, async () => {
    const holder = await hold(lock, what === "leader" ? "pg_conf" : "pg_work public task 1000");
    const from = pgTask.lines.length;
    pgTask.launch({ url: database.url, "pg_conf.frozen": 0 });
    const line = await pgTask.logged(({ msg }) => msg === holds[what], from);
    assert.deepEqual([line["backend"], line["role"]], [backendPid(holder), stranger]);
    assert.match(String(line["remedy"]), new RegExp(`SELECT pg_terminate_backend\\(${backendPid(holder)}\\)`));
    const { lines } = await doctor({ DATABASE_URL: database.url });
    const check = lines.find(({ name }) => name === what);
    assert.equal(check?.level, "warn");
    assert.match(
      check.text,
      new RegExp(`^server process ${backendPid(holder)} of role ${stranger}, which is not the role`),
    );
    await holder.query("SELECT 1");
    await holder.end();
    await pgTask.logged(({ msg }) => msg === "serving table", from);
  });

  test(`names a session that holds the lock of the ${what} and that it may not end; so do status and doctor`, async () => {
    const holder = await hold(lock, "psql");
    const from = pgTask.lines.length;
    const url = urlOf(plain);
    pgTask.launch({ url, "pg_conf.frozen": 100 });
    const line = await pgTask.logged(({ msg }) => msg === holds[what], from);
    assert.deepEqual([line["backend"], line["role"]], [backendPid(holder), stranger]);
    const env = { DATABASE_URL: url };
    const text = `server process ${backendPid(holder)} of role ${stranger} (psql) holds the lock of pg-task, and is none`;
    const { lines } = await doctor(env);
    const check = lines.find(({ name }) => name === what);
    assert.deepEqual([check?.level, check?.text], ["fail", text]);
    assert.match(check?.remedy ?? "", new RegExp(`SELECT pg_terminate_backend\\(${backendPid(holder)}\\)`));
    const { stdout } = await cli(["status"], { env });
    assert.ok(stdout.includes(`error      ${text}; if it is a pg-task of yours`), stdout);
    assert.match(stdout, new RegExp(`^ *${what} +none`, "m"));
    await holder.query("SELECT 1");
    await holder.end();
    await pgTask.logged(({ msg }) => msg === "serving table", from);
    assert.equal(pgTask.lines.slice(from).filter(({ msg }) => msg === holds[what]).length, 1);
  });
}

test("names a session of its own role that is no pg-task, and does not end it", async () => {
  await client.query(`SELECT ${leaderLock}`);
  const from = pgTask.lines.length;
  pgTask.launch({ url: database.url, "pg_conf.frozen": 0 });
  const line = await pgTask.logged(({ msg }) => msg === holds.leader, from);
  assert.deepEqual([line["backend"], line["application"]], [backendPid(client), "test"]);
  await client.query("SELECT pg_advisory_unlock_all()");
  await pgTask.logged(({ msg }) => msg === "serving table", from);
});
