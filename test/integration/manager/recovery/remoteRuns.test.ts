import assert from "node:assert/strict";
import { after, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { Manager } from "../../../../src/manager/manager.js";
import { loadConfiguration } from "../../../../src/shared/config/loadConfiguration.js";
import { createLog } from "../../../../src/shared/log.js";
import { createDatabase, serverTarget } from "../../../support/database.js";
import { passwordOption, startRemoteDriver } from "../../../support/remoteDriver.js";
import { password } from "../../../support/remoteServer.js";

const { remoteString, server } = await startRemoteDriver();

const database = await createDatabase();
const admin = await database.connect();
const lines: string[] = [];
const writeLine = (line: string) => void lines.push(line);

/** Starts a manager of this database's task table. */
async function startManager(user: string): Promise<Manager> {
  const { host, port } = serverTarget();
  const { entries } = await loadConfiguration({
    cwd: "/",
    env: {},
    control: `postgresql://${user}@${host}:${port}/${database.target.database}`,
  });
  const [entry] = entries;
  assert.ok(entry !== undefined);
  const parameters = { ...entry.parameters, "pg_conf.log": "trace" } as const;
  const log = createLog({ level: "trace", name: "test", write: writeLine });
  const manager = new Manager(
    { entry: { ...entry, parameters }, takesOver: false, managers: 1 },
    { send: () => {}, log, threadLog: log },
  );
  await manager.start();
  manager.grant(8, 1);
  return manager;
}

interface Row {
  readonly id: string;
  readonly state: string;
  readonly pid: number;
  readonly owner: string | null;
  readonly output: string | null;
  readonly error: string | null;
}

async function insert(task: Record<string, unknown>): Promise<string> {
  const names = Object.keys(task).map((name) => `"${name}"`);
  const values = names.map((_, index) => `$${index + 1}`);
  const { rows } = await admin.query<{ id: string }>(
    `INSERT INTO task (${names.join(", ")}) VALUES (${values.join(", ")}) RETURNING id`,
    Object.values(task),
  );
  return rows[0]?.id ?? "";
}

async function until(id: string, fits: (row: Row) => boolean): Promise<Row> {
  for (;;) {
    const { rows } = await admin.query<Row>("SELECT * FROM task WHERE id = $1", [id]);
    if (rows[0] !== undefined && fits(rows[0])) return rows[0];
    await pause(5);
  }
}

const ended = (id: string) => until(id, ({ state }) => state === "DONE" || state === "FAIL");

const manager = await startManager("postgres");
after(() => manager.stop());

test("a remote task is claimed here, runs there, and its result comes here", async () => {
  const remote = `${remoteString} user=scram ${passwordOption}`;
  const { state, output, error } = await ended(
    await insert({ input: "SELECT current_user, inet_server_port()", remote }),
  );
  assert.deepEqual([state, output, error], ["DONE", `current_user\tinet_server_port\nscram\t${server.port}`, null]);
});

test("the row shows the remote pid while it runs, and its owner is the local session", async () => {
  await server.admin.query("SELECT pg_advisory_lock(1)");
  const input = "SELECT pg_advisory_lock_shared(1)::text, pg_backend_pid()";
  const id = await insert({ input, header: false, remote: remoteString });
  const { rows } = await admin.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
  const there = await until(id, ({ state, pid, owner }) => {
    return state === "WORK" && owner !== null && !owner.startsWith(`${pid} `);
  });
  assert.notEqual(there.pid, rows[0]?.pid);
  const { rows: found } = await server.admin.query<{ pid: number }>(
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'pg_task public task group'",
  );
  assert.deepEqual(found, [{ pid: there.pid }]);
  await server.admin.query("SELECT pg_advisory_unlock(1)");
  const done = await ended(id);
  assert.deepEqual([done.output, done.pid, done.owner], [`\t${there.pid}`, there.pid, null]);
});

test("a remote task with neither output nor error is deleted", async () => {
  const id = await insert({ input: "SELECT WHERE false", remote: remoteString });
  const kept = await insert({ input: "SELECT WHERE false", remote: remoteString, delete: false });
  assert.equal((await ended(kept)).output, null);
  for (let left: number | null = 1; left !== 0;) {
    const { rowCount, rows } = await admin.query<Row>("SELECT * FROM task WHERE id = $1", [id]);
    assert.ok(rows[0]?.state !== "DONE" && rows[0]?.state !== "FAIL");
    left = rowCount;
  }
});

test("a wrong connection string fails only its own task", async () => {
  const wrong = await ended(await insert({ input: "SELECT 1", remote: "application_name" }));
  assert.deepEqual(
    [wrong.state, wrong.output, wrong.error],
    ["FAIL", "", 'ERROR:  missing "=" after "application_name" in connection info string\nSTATEMENT:  SELECT 1'],
  );
  const refused = await ended(await insert({ input: "SELECT 1", remote: "host=127.0.0.1 port=1" }));
  assert.match(refused.error ?? "", /Connection refused/);
  assert.equal((await ended(await insert({ input: "SELECT 5" }))).output, "5");
});

/** Returns how many of these tasks ran at the same time, at most, according to their `start` and `stop`. */
async function mostAtOnce(ids: readonly string[]): Promise<number> {
  const { rows } = await admin.query<{ most: number }>(
    `SELECT max((SELECT count(*) FROM task AS o WHERE o.id = ANY ($1) AND o.start <= t.start AND o.stop > t.start))::integer AS most
     FROM task AS t WHERE t.id = ANY ($1)`,
    [ids],
  );
  return rows[0]?.most ?? 0;
}

test("with max 1 two remote tasks of a group run at once, but never more", async () => {
  const ids: string[] = [];
  for (let each = 0; each < 8; each++) {
    ids.push(await insert({ input: "SELECT pg_sleep(0.1)", group: "two", max: 1, remote: remoteString }));
  }
  for (const id of ids) assert.equal((await ended(id)).state, "DONE");
  assert.equal(await mostAtOnce(ids), 2);
});

test("the same group with another remote is another group", async () => {
  const input = "SELECT pg_advisory_lock(2)";
  await server.admin.query("SELECT pg_advisory_lock(2)");
  const [one, other] = [
    await insert({ input, group: "same", remote: remoteString }),
    await insert({ input, group: "same", remote: `${remoteString} application_name=other` }),
  ];
  const behind = await insert({ input, group: "same", remote: remoteString });
  await until(one, ({ state }) => state === "WORK");
  await until(other, ({ state }) => state === "WORK");
  assert.equal((await until(behind, () => true)).state, "PLAN");
  await server.admin.query("SELECT pg_advisory_unlock(2)");
  for (const id of [one, other, behind]) assert.equal((await ended(id)).state, "DONE");
});

test("a timeout of a remote task has the same error as a local one", async () => {
  const task = { input: "SELECT pg_sleep(600)", timeout: "100 ms" };
  const here = await ended(await insert(task));
  const there = await ended(await insert({ ...task, remote: remoteString }));
  assert.deepEqual([there.state, there.error], [here.state, here.error]);
});

test("a remote task whose backend is killed is retried and given up like a local one", async () => {
  const input = "SELECT pg_terminate_backend(pg_backend_pid())";
  const [here, there] = [await insert({ input }), await insert({ input, remote: remoteString })];
  const expected = (await ended(here)).error;
  assert.equal((await ended(there)).error, expected);
});

const tries = async (id: string) => {
  const { state, error } = await ended(id);
  const { rows } = await admin.query<{ attempt: number | null; crash: number }>(
    "SELECT attempt, crash FROM task WHERE id = $1",
    [id],
  );
  return { state, error, ...rows[0] };
};

test("with retry, a lost connection is an error of class 08, and is counted in attempt instead of crash", async () => {
  const task = {
    input: "SELECT pg_terminate_backend(pg_backend_pid())",
    remote: remoteString,
    retry: 2,
    backoff: "1 ms",
  };
  const { state, error, attempt, crash } = await tries(await insert({ ...task, sqlstate: "{08}" }));
  assert.deepEqual([state, attempt, crash], ["FAIL", 2, 0]);
  assert.match(
    error ?? "",
    /^ERROR: {2}connection to the remote server was lost\nDETAIL: {2}.+\nSTATEMENT: {2}SELECT pg_terminate/,
  );
  const excluded = await tries(await insert({ ...task, sqlstate: "{!08006}" }));
  assert.deepEqual([excluded.state, excluded.attempt, excluded.crash], ["FAIL", null, 0]);
});

test("with retry, a server that cannot be reached is tried again, but an invalid connection string is not", async () => {
  const task = { input: "SELECT 1", retry: 2, backoff: "1 ms", sqlstate: "{08}" };
  const refused = await tries(await insert({ ...task, remote: "host=127.0.0.1 port=1" }));
  assert.deepEqual([refused.state, refused.attempt], ["FAIL", 2]);
  const wrong = await tries(await insert({ ...task, sqlstate: "{}", remote: "application_name" }));
  assert.deepEqual([wrong.state, wrong.attempt], ["FAIL", null]);
});

test("with retry, the SQLSTATE with which the other server refuses a login counts", async () => {
  const task = { input: "SELECT 1", retry: 1, backoff: "1 ms", remote: `${remoteString} dbname=there_is_none` };
  assert.equal((await tries(await insert({ ...task, sqlstate: "{3D000}" }))).attempt, 1);
  assert.equal((await tries(await insert({ ...task, sqlstate: "{08}" }))).attempt, null);
});

test("a remote run whose location cannot be recorded does not begin", async () => {
  await server.admin.query("CREATE TABLE effect (what text)");
  for (const ledger of ["task_ledger_1", "task_ledger_2"])
    await admin.query(`ALTER TABLE ${ledger} ADD CONSTRAINT shut CHECK (false) NOT VALID`);
  const { state, error } = await ended(
    await insert({ input: "INSERT INTO effect VALUES ('unrecorded')", remote: remoteString }),
  );
  assert.equal(state, "FAIL");
  assert.match(error ?? "", /^ERROR: {2}new row for relation "task_ledger_\d" violates check constraint "shut"\n/);
  assert.equal((await server.admin.query("SELECT FROM effect")).rows.length, 0);
  for (const ledger of ["task_ledger_1", "task_ledger_2"])
    await admin.query(`ALTER TABLE ${ledger} DROP CONSTRAINT shut`);
});

test("an error of a remote task is retried by its SQLSTATE", async () => {
  const task = { input: "SELECT 1/0", retry: 1, backoff: "1 ms", remote: remoteString };
  assert.equal((await tries(await insert(task))).attempt, 1);
  assert.equal((await tries(await insert({ ...task, sqlstate: "{40}" }))).attempt, null);
});

test("the log contains no password at level trace", async () => {
  const uri = `postgresql://scram:${encodeURIComponent(password)}@127.0.0.1:${server.port}/postgres`;
  const strings = [
    `${remoteString} user=scram ${passwordOption}`,
    uri,
    `${uri}?x=1`,
    `${remoteString} ${passwordOption} b`,
  ];
  const errors: (string | null)[] = [];
  for (const remote of strings) {
    const { error, output } = await ended(await insert({ input: "SELECT current_user", remote }));
    errors.push(error, output);
  }
  assert.ok(lines.some((line) => line.includes("connecting for remote task")));
  for (const shown of [...lines, ...errors]) {
    assert.ok(!(shown ?? "").includes("secret"), shown ?? "");
  }
});

test("where the manager's user is no superuser, a remote task needs a password", async () => {
  await manager.stop();
  await admin.query(`DO $$ BEGIN CREATE ROLE remote_ordinary LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$`);
  await admin.query("ALTER TABLE task OWNER TO remote_ordinary");
  for (const table of ["task_pause", "task_home", "task_turn", "task_ledger_1", "task_ledger_2"])
    await admin.query(`ALTER TABLE ${table} OWNER TO remote_ordinary`);
  await admin.query("GRANT ALL ON SCHEMA public TO remote_ordinary");
  const ordinary = await startManager("remote_ordinary");
  try {
    const without = await ended(await insert({ input: "SELECT 1", remote: remoteString }));
    assert.equal(
      without.error,
      "ERROR:  password is required\nDETAIL:  Non-superusers must provide a password in the connection string.\nSTATEMENT:  SELECT 1",
    );
    const unasked = await ended(
      await insert({ input: "SELECT 1", remote: `${remoteString} user=trusted ${passwordOption}` }),
    );
    assert.match(unasked.error ?? "", /does not request a password/);
    const remote = `${remoteString} user=scram ${passwordOption}`;
    assert.equal((await ended(await insert({ input: "SELECT 1", remote }))).output, "1");
  } finally {
    await ordinary.stop();
    await admin.query("REASSIGN OWNED BY remote_ordinary TO postgres");
    await admin.query("DROP OWNED BY remote_ordinary");
    await admin.query("DROP ROLE remote_ordinary");
  }
});
