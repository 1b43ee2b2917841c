import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, it } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { freePort } from "../../../src/embedded/port.js";
import { connectTo, withConnectionTo } from "../../support/connectTo.js";
import { dropDatabase, serverMajor } from "../../support/database.js";
import { cli } from "../../support/cli.js";
import { configFolder, replaceConfig } from "../../support/configFile.js";
import { doctor } from "../../support/doctor.js";
import { RestartableServer } from "../../support/restartableServer.js";
import { PgTask, startPgTask } from "../../support/pgTask.js";
import { waitForRow } from "../../support/tasks.js";
import { token, Web } from "../../support/web.js";

const server = await RestartableServer.create(await freePort());
await server.start();
const admin = await connectTo(server.url);
after(() => admin.end());

const urlOf = (user: string, database: string, password = ""): string => {
  const url = new URL(server.url);
  url.username = user;
  url.password = password;
  url.pathname = `/${database}`;
  return url.href;
};

/** A configuration that creates what these entries lack. */
const creating = (entries: unknown, settings: object = {}, url = server.url): object => ({
  url,
  "pg_task.create": true,
  "pg_task.json": entries,
  ...settings,
});

/** Starts pg-task, without waiting until it is ready. */
function launch(configuration: unknown, cwd = "/"): PgTask {
  const pgTask = new PgTask();
  pgTask.launch(configuration, { cwd });
  return pgTask;
}

const often = { "pg_conf.restart": 1 };

async function ownerOf(database: string): Promise<string | undefined> {
  const { rows } = await admin.query<{ owner: string }>(
    "SELECT pg_get_userbyid(datdba) AS owner FROM pg_database WHERE datname = $1",
    [database],
  );
  return rows[0]?.owner;
}

/**
 * Runs a task in this database.
 *
 * @returns the task's output
 */
const run = async (database: string, input: string, table = "task"): Promise<string | null> =>
  await withConnectionTo(urlOf("postgres", database), async (client) => {
    const { rows } = await client.query<{ id: string }>(`INSERT INTO ${table} (input) VALUES ($1) RETURNING id`, [
      input,
    ]);
    const done = await waitForRow<{ output: string | null }>(
      client,
      `SELECT output FROM ${table} WHERE id = $1 AND state = 'DONE'`,
      [rows[0]?.id],
    );
    return done.output;
  });

it("creates the missing role, database, schema, type and table once, and runs tasks there", async () => {
  const made = { data: "made one", user: 'Maker "1"' };
  const pgTask = await startPgTask(
    creating([
      { ...made, schema: "its own", table: "its task" },
      { ...made, table: "second" },
      { ...made, table: "third" },
    ]),
  );
  assert.equal(pgTask.linesMatching("role created").length, 1);
  assert.equal(pgTask.linesMatching("database created").length, 1);
  assert.equal(await ownerOf("made one"), 'Maker "1"');
  const output = await run("made one", "SELECT session_user", '"its own"."its task"');
  assert.equal(output, 'Maker "1"');
  const { rows } = await admin.query("SELECT FROM pg_roles WHERE rolname = $1 AND rolcanlogin", ['Maker "1"']);
  assert.equal(rows.length, 1);
  await pgTask.stop();
});

it("gives a created role its entry's password and never logs it", async () => {
  // A soft hyphen and a no-break space, which SASLprep removes and replaces.
  const password = "pàss'w\\ord-of\u00ADits\u00A0own";
  const rules = join(server.dataDirectory, "pg_hba.conf");
  const before = await readFile(rules, "utf8");
  await writeFile(rules, `host all asked 127.0.0.1/32 scram-sha-256\n${before}`);
  await admin.query("ALTER SYSTEM SET log_statement = 'all'");
  await admin.query("SELECT pg_reload_conf()");
  const settings = { "pg_conf.log": "trace" };
  const unset = launch(creating([{ data: "asked", password: { env: "NOT" } }], settings));
  assert.equal((await unset.ended())?.code, "CONFIG_INVALID");
  const pgTask = await startPgTask(creating([{ data: "asked", password }], settings));
  assert.equal(await run("asked", "SELECT session_user"), "asked");
  await assert.rejects(connectTo(urlOf("asked", "asked", "another")), /28P01/);
  const client = await connectTo(urlOf("asked", "asked", password));
  await client.end();
  await pgTask.stop();
  assert.ok(!JSON.stringify(pgTask.lines).includes("pàss"));
  const { rows } = await admin.query<{ stored: string }>(
    "SELECT rolpassword AS stored FROM pg_authid WHERE rolname = 'asked'",
  );
  assert.match(rows[0]?.stored ?? "", /^SCRAM-SHA-256\$/);
  await admin.query("ALTER SYSTEM RESET log_statement");
  await admin.query("SELECT pg_reload_conf()");
});

it("creates nothing for an entry with create: false or its own URL, and logs what is missing until it exists", async () => {
  const pgTask = await startPgTask(
    creating(
      [{ data: "by_hand", create: false }, { url: urlOf("elsewhere", "elsewhere") }, { data: "postgres" }],
      often,
    ),
  );
  const waits = await pgTask.line("role or database unavailable, retrying");
  assert.equal(
    waits["reason"],
    'the role "by_hand" and the database "by_hand" are missing, and the entry says "create": false',
  );
  await pgTask.line("manager unavailable, retrying");
  assert.equal(await run("postgres", "SELECT 'works on'"), "works on");
  await admin.query("CREATE ROLE by_hand LOGIN");
  await pgTask.logged(
    ({ reason }) => reason === 'the database "by_hand" is missing, and the entry says "create": false',
  );
  await admin.query("CREATE DATABASE by_hand OWNER by_hand");
  await pgTask.logged(({ reason }) => /"public"."task" is missing/.test(String(reason)));

  assert.equal(await ownerOf("elsewhere"), undefined);
  await admin.query("CREATE ROLE elsewhere LOGIN");
  await admin.query("CREATE DATABASE elsewhere OWNER elsewhere");
  assert.equal((await pgTask.line("serving table", 2)).name, "pg_work elsewhere public.task");
  assert.equal(pgTask.linesMatching(/^(?:role|database) created$/).length, 0);
  await pgTask.stop();
});

it("is not ready while the only entry's role has another name on the server, and says what to do", async () => {
  await admin.query("CREATE ROLE before_rename LOGIN");
  await admin.query("CREATE DATABASE renamed OWNER before_rename");
  const settings = { "pg_conf.restart": 1, "pg_http.listen": "127.0.0.1:0", "pg_http.token": token };
  const config = { url: server.url, ...settings, "pg_task.json": [{ user: "before_rename", data: "renamed" }] };
  await admin.query("ALTER ROLE before_rename RENAME TO after_rename");
  const cwd = await configFolder(config);
  const pgTask = launch(undefined, cwd);
  const { reason } = await pgTask.line("role or database unavailable, retrying");
  assert.match(
    String(reason),
    /^the role "before_rename" is missing: if it was renamed, put its new name into the entry; otherwise create what/,
  );
  const checked = await cli(["check"], { cwd });
  assert.match(
    checked.stdout,
    /^error .*: role before_rename missing: if it was renamed, put its new name into the entry/,
  );
  const web = await Web.connect(pgTask);
  const ready = async () => await web.requestWithoutToken("/ready");
  await pgTask.line("ready");
  assert.equal((await ready()).status, 503);
  await replaceConfig(pgTask, { ...config, "pg_task.json": [{ user: "after_rename", data: "renamed" }] });
  await pgTask.reload();
  await pgTask.line("serving table");
  while ((await ready()).status !== 200) await pause(20);
  await pgTask.stop();
});

it("creates neither role nor database unless it is told to, and says what is missing", async () => {
  const config = { url: server.url, "pg_conf.restart": 1, "pg_task.json": [{ data: "untold" }, { data: "postgres" }] };
  const cwd = await configFolder(config);
  const pgTask = await startPgTask(undefined, { cwd });
  const waits = await pgTask.line("role or database unavailable, retrying");
  assert.equal(waits["code"], "SCHEMA_MISSING");
  assert.ok(Number.isInteger(waits["pauseMs"]), JSON.stringify(waits));
  assert.equal(
    waits["reason"],
    'the role "untold" and the database "untold" are missing: create what is missing, or set "create": true in the entry or "pg_task.create": true for all entries, and pg-task start creates it',
  );
  assert.equal(await run("postgres", "SELECT 'works on'"), "works on");
  const checked = await cli(["check"], { cwd });
  assert.equal(checked.code, 4, checked.stdout);
  assert.match(
    checked.stdout,
    /^error .*: role untold and database untold missing: create what is missing, or set "create": true/,
  );
  const { code, lines } = await doctor({}, cwd);
  assert.equal(code, 4);
  assert.match(lines.find(({ level }) => level === "fail")?.text ?? "", /^the role "untold" and the database/);
  assert.equal(await ownerOf("untold"), undefined);

  // A reload with create makes them.
  await replaceConfig(pgTask, { ...config, "pg_task.json": [{ data: "untold", create: true }, { data: "postgres" }] });
  await pgTask.reload();
  const { changed } = await pgTask.line("configuration reloaded");
  assert.deepEqual(Object.values(changed ?? {}), [["create"]]);
  await pgTask.line("role created");
  await pgTask.line("database created");
  await pgTask.line("serving table", 2);
  assert.equal(await run("untold", "SELECT session_user"), "untold");
  await pgTask.stop();
});

it("creates role and database of an entry in a bare array, unless the entry says create: false", async () => {
  const config = [{ data: "from_array" }, { data: "not_from_array", create: false }];
  const pgTask = await startPgTask(config, { env: { DATABASE_URL: server.url } });
  assert.deepEqual(
    pgTask.linesMatching(/^(role|database) created$/).map(({ msg, role, database }) => [msg, role ?? database]),
    [
      ["role created", "from_array"],
      ["database created", "from_array"],
    ],
  );
  assert.equal(await run("from_array", "SELECT session_user"), "from_array");
  assert.equal(await ownerOf("not_from_array"), undefined);
  await pgTask.stop();
});

it("logs the statement that lacked a privilege, serves other entries, and continues once it is granted", async () => {
  await admin.query("CREATE ROLE humble LOGIN");
  await admin.query("CREATE DATABASE humble OWNER humble");
  const pgTask = await startPgTask(
    creating([{ data: "humble" }, { data: "wanted", password: "secret of wanted" }], often, urlOf("humble", "humble")),
  );
  const first = await pgTask.line("role or database unavailable, retrying");
  assert.equal(first["code"], "SCHEMA_NOT_ALLOWED");
  assert.match(
    String(first["reason"]),
    /^CREATE ROLE "wanted" LOGIN PASSWORD '\*\*\*' failed: permission denied.* \(SQLSTATE 42501\)$/,
  );
  assert.equal(await run("humble", "SELECT 'works on'"), "works on");
  await admin.query("ALTER ROLE humble CREATEROLE");
  assert.match(
    String((await pgTask.line("role or database unavailable, retrying", 2))["reason"]),
    /^CREATE DATABASE "wanted" OWNER "wanted" failed: permission denied.* \(SQLSTATE 42501\)$/,
  );
  await admin.query("ALTER ROLE humble CREATEDB");
  await pgTask.line("database created");
  assert.equal(await ownerOf("wanted"), "wanted");
  await pgTask.line("serving table", 2);
  assert.equal(await run("wanted", "SELECT session_user"), "wanted");
  const { rows } = await admin.query<{ member: boolean }>(
    "SELECT pg_has_role('humble', 'wanted', $1) AS member",
    // From PostgreSQL 16 on, the SET option of a membership is checked.
    [(await serverMajor()) < 16 ? "MEMBER" : "SET"],
  );
  assert.equal(rows[0]?.member, false, "the creator must not remain a member of the role");
  await pgTask.stop();
  assert.ok(!JSON.stringify(pgTask.lines).includes("secret of wanted"));
});

it("retries while the template database is in use", async () => {
  const user = await connectTo(urlOf("postgres", "template1"));
  const pgTask = launch(creating([{ data: "templated", user: "postgres" }], often));
  const waits = await pgTask.line("role or database unavailable, retrying");
  assert.equal(waits["code"], "SCHEMA_NOT_CREATED");
  assert.match(String(waits["reason"]), /^CREATE DATABASE "templated" .*SQLSTATE 55006/);
  // pg-task becomes ready without waiting for this entry.
  await pgTask.line("ready");
  await user.end();
  await pgTask.line("serving table");
  assert.equal(await run("templated", "SELECT 1"), "1");
  await pgTask.stop();
});

/** Drops a database despite open connections. */
async function dropForced(name: string): Promise<void> {
  if ((await serverMajor()) < 13) await dropDatabase(admin, name);
  else await admin.query(`DROP DATABASE ${name} WITH (FORCE)`);
}

it("creates a dropped database and role again", async () => {
  const pgTask = await startPgTask(creating([{ data: "dropped" }], often));
  await dropForced("dropped");
  await pgTask.line("database created", 2);
  await pgTask.line("serving table", 2);
  assert.equal(await run("dropped", "SELECT 'again'"), "again");
  assert.equal(pgTask.linesMatching("role created").length, 1);

  // Without its objects, the role can be dropped before the database, which pg-task would create again at once.
  await withConnectionTo(urlOf("postgres", "dropped"), (client) =>
    client.query("REASSIGN OWNED BY dropped TO postgres; DROP OWNED BY dropped; DROP ROLE dropped"),
  );
  await dropForced("dropped");
  await pgTask.line("role created", 2);
  await pgTask.line("database created", 3);
  await pgTask.line("serving table", 3);
  assert.equal(await ownerOf("dropped"), "dropped");
  assert.equal(await run("dropped", "SELECT session_user"), "dropped");
  await pgTask.stop();
});

it("two clusters can create the same roles and databases concurrently", async () => {
  const entries = Array.from({ length: 4 }, (_, index) => ({
    user: `both_${index % 3}`,
    data: `both_${index % 2}`,
    table: `task_${index}`,
  }));
  const both = await Promise.all(
    ["one", "two"].map((name) => startPgTask(creating(entries, { "pg_conf.name": name, ...often }))),
  );
  for (const pgTask of both) {
    assert.deepEqual(pgTask.linesMatching("role or database unavailable, retrying"), []);
  }
  const { rows } = await admin.query("SELECT FROM pg_roles WHERE rolname ~ '^both_'");
  assert.equal(rows.length, 3);
  for (const pgTask of both) await pgTask.stop();
});

it("creates roles and databases on a separate connection from the leader's", async () => {
  // CREATE ROLE waits for the open transaction that creates the same role.
  await admin.query("BEGIN");
  await admin.query("CREATE ROLE slow LOGIN");
  const watcher = await connectTo(server.url);
  const pgTask = launch(creating([{ data: "slow" }, { data: "postgres" }]));
  const waiting = await waitForRow<{ pid: number }>(
    watcher,
    `SELECT pid FROM pg_stat_activity
     WHERE application_name = 'pg_conf' AND wait_event_type = 'Lock' AND query ~ '^CREATE ROLE'`,
  );
  const { rows } = await watcher.query<{ pid: number }>(
    "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = $1::oid",
    [0x70677401],
  );
  assert.notEqual(rows[0]?.pid, waiting.pid);
  await pgTask.line("serving table");
  assert.equal(await run("postgres", "SELECT 'meanwhile'"), "meanwhile");
  await admin.query("COMMIT");
  await pgTask.line("ready");
  await waitForRow(
    watcher,
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pg_conf' HAVING count(*) = 1",
  );
  await watcher.end();
  await pgTask.stop();
});

it("waits for missing rights on another owner's table or database, and logs which", async () => {
  const setUp = await startPgTask(creating([{ data: "postgres", schema: "theirs" }]));
  await setUp.stop();
  await admin.query("CREATE ROLE guest LOGIN; GRANT USAGE ON SCHEMA theirs TO guest");
  const pgTask = await startPgTask(
    creating(
      [
        { data: "postgres", user: "guest", schema: "theirs" },
        { data: "shared", user: "first", schema: "first" },
        { data: "shared", user: "second", schema: "second" },
      ],
      often,
    ),
  );
  const waitsOf = async (name: string) =>
    await pgTask.logged((line) => line.name === `pg_work ${name}` && line.msg === "manager unavailable, retrying");
  const serves = async (name: string) =>
    await pgTask.logged((line) => line.name === `pg_work ${name}` && line.msg === "serving table");
  const waits = await waitsOf("postgres theirs.task");
  assert.equal(waits["code"], "SCHEMA_NOT_ALLOWED");
  assert.match(
    String(waits["reason"]),
    /^cannot create or change "theirs"\."task": permission denied for .*: ALTER TABLE "theirs"\."task" OWNER TO "guest"$/,
  );
  await admin.query("GRANT postgres TO guest");
  await serves("postgres theirs.task");
  assert.equal(await run("postgres", "SELECT session_user", "theirs.task"), "guest");

  // One of the two roles owns the database. The other one needs a privilege to create its schema.
  const owner = await ownerOf("shared");
  const other = owner === "first" ? "second" : "first";
  assert.equal((await waitsOf(`shared ${other}.task`))["code"], "SCHEMA_NOT_ALLOWED");
  assert.equal(await run("shared", "SELECT session_user", `${owner}.task`), owner);
  await admin.query(`GRANT CREATE ON DATABASE shared TO ${other}`);
  await serves(`shared ${other}.task`);
  assert.equal(await run("shared", "SELECT session_user", `${other}.task`), other);
  await pgTask.stop();
});
