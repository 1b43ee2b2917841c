import assert from "node:assert/strict";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import type { CheckReport } from "../../../../src/cli/commands/check.js";
import { ensureTable } from "../../../../src/manager/schema/ensureTable.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { loadConfiguration } from "../../../../src/shared/config/loadConfiguration.js";
import { createLog } from "../../../../src/shared/log.js";
import { cli } from "../../../support/cli.js";
import { createDatabase, onServer } from "../../../support/database.js";
import { ensureTaskTable } from "../../../support/taskTables.js";

const database = await createDatabase("empty");
const { host, port, database: name } = database.target;
const role = `${name}_role`;
const password = "hunter2";
const cwd = await mkdtemp(join(tmpdir(), "pg-task-check-"));
after(() => rm(cwd, { recursive: true }));

await onServer((client) => client.query(`CREATE ROLE ${role} LOGIN`));
after(() => onServer((client) => client.query(`DROP ROLE ${role}`)));

async function run(
  content: unknown,
  options: { json?: boolean; all?: boolean } = {},
): Promise<{ exitCode: number; text: string }> {
  await writeFile(join(cwd, "c.json"), JSON.stringify(content));
  const flags = (["json", "all"] as const).filter((flag) => options[flag] === true).map((flag) => `--${flag}`);
  const env = { HOME: cwd, DATABASE_URL: database.url };
  const { code, stdout, stderr } = await cli(["check", "--config", "c.json", ...flags], { cwd, env });
  return { exitCode: code ?? -1, text: stdout + stderr };
}

/** Checks a configuration with this entry. Returns the exit code, and the report's findings for the entry. */
async function states(entry: object): Promise<[number, Record<string, string>, string]> {
  const { exitCode, text } = await run([entry], { json: true });
  const report: CheckReport = JSON.parse(text);
  const [first] = report.entries;
  assert.equal(report.exitCode, exitCode);
  const objects = Object.fromEntries((first?.objects ?? []).map((it) => [it.what, it.state]));
  return [exitCode, objects, first?.error?.message ?? ""];
}

const created = "would be created";

/** An entry for the database of this file, with a superuser. */
const ours = { data: name, user: "postgres" };

/** Returns a port on which nothing listens. */
async function closedPort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const address = server.address();
  await new Promise((closed) => server.close(closed));
  return typeof address === "object" && address !== null ? address.port : assert.fail();
}

void test("reports what exists and what would be created, and changes nothing", async () => {
  const expected = { role: "exists", database: "exists", schema: "exists" };
  assert.deepEqual(await states(ours), [0, { ...expected, type: created, table: created }, ""]);
  assert.deepEqual(await states({ ...ours, schema: "not_there" }), [
    0,
    { ...expected, schema: created, type: created, table: created },
    "",
  ]);
  const client = await database.connect();
  await client.query(`CREATE TABLE task (id bigserial, plan timestamptz, state text DEFAULT 'PLAN', input text)`);
  assert.deepEqual(await states(ours), [0, { ...expected, type: "exists", table: "exists" }, ""]);
  assert.match((await run([ours])).text, /exists: not created by pg-task, would be adopted/);
  const asItIs = await states({ ...ours, create: false });
  assert.deepEqual([asItIs[0], asItIs[1]["table"]], [4, "missing"]);
  const { rows } = await client.query("SELECT FROM pg_attribute WHERE attrelid = 'task'::regclass AND attnum > 0");
  assert.equal(rows.length, 4);
});

void test("reports the type of an existing table's column state", async () => {
  const client = await database.connect();
  await client.query(
    `CREATE SCHEMA typed; CREATE TYPE typed.state AS ENUM ('PLAN'); CREATE DOMAIN typed.mood AS varchar(9);
     CREATE TABLE typed.one (id bigserial, plan timestamptz, input text, state text);
     CREATE TABLE typed.two (id bigserial, plan timestamptz, input text, state varchar(8));
     CREATE TABLE typed.three (id bigserial, plan timestamptz, input text, state typed.mood);
     CREATE TABLE typed.four (id bigserial, plan timestamptz, input text, state typed.state)`,
  );
  for (const [table, line] of [
    ["one", "type +text +exists: type of the column state"],
    ["two", "type +character varying\\(8\\) +exists: type of the column state"],
    ["three", "type +typed\\.mood +exists: type of the column state"],
    ["four", "type +state +exists"],
    ["five", "type +state +exists"],
  ] as const) {
    const { text } = await run([{ ...ours, schema: "typed", table }]);
    assert.match(text, new RegExp(`^ +${line}$`, "m"));
  }
  const { text } = await run([{ ...ours, table: "absent" }]);
  assert.match(text, /^ +type +state +would be created$/m);
});

void test("reports relations that cannot be adopted as start does", async () => {
  const client = await database.connect();
  await client.query(
    `CREATE VIEW v AS SELECT; CREATE SEQUENCE s; CREATE TABLE lacking ();
     CREATE FOREIGN DATA WRAPPER nowhere; CREATE SERVER nowhere FOREIGN DATA WRAPPER nowhere;
     CREATE FOREIGN TABLE far (id bigint) SERVER nowhere`,
  );
  for (const [table, why] of [
    ["v", "the name belongs to a view, which cannot be adopted"],
    ["s", "the name belongs to a sequence, which cannot be adopted"],
    ["far", "the name belongs to a foreign table, which cannot be adopted"],
    ["lacking", '"public"."lacking" exists and was not created by pg-task: it has no column id'],
  ] as const) {
    const { exitCode, text } = await run([{ ...ours, table }]);
    assert.equal(exitCode, 4, text);
    assert.ok(text.includes(`not allowed: ${why}`), text);
  }
});

void test("reports conflicting names as start does", async () => {
  const client = await database.connect();
  for (const [schema, statement, line] of [
    ["n1", "CREATE TABLE n1.state ()", /type +state +not allowed: expected "n1"\.state to be an enum/],
    ["n2", "CREATE TYPE n2.state AS ENUM ('a')", /type +state +not allowed: expected the enum/],
    [
      "n3",
      "CREATE FUNCTION n3.task_wake_up() RETURNS int LANGUAGE sql AS 'SELECT 1'",
      /table +task +not allowed: .* the function n3\.task_wake_up\(\) exists/,
    ],
    ["n4", "CREATE TABLE n4.task_pause (a int)", /table +task +not allowed: .* the relation n4\.task_pause exists/],
    ["n5", "CREATE TABLE n5.task_due_idx ()", /table +task +not allowed: .* the relation n5\.task_due_idx exists/],
    [
      "n6",
      "CREATE VIEW n6.task_ledger_2 AS SELECT",
      /table +task +not allowed: .* the relation n6\.task_ledger_2 exists/,
    ],
  ] as const) {
    await client.query(`CREATE SCHEMA ${schema}; ${statement}`);
    const { exitCode, text } = await run([{ ...ours, schema }]);
    assert.equal(exitCode, 4, text);
    assert.match(text, line);
    const configuration = await loadConfiguration({
      file: "c.json",
      cwd,
      env: { DATABASE_URL: database.url },
    });
    const [found] = configuration.entries;
    assert.ok(found);
    await assert.rejects(
      ensureTable(
        client,
        taskTable(schema, "task"),
        found,
        createLog({ level: "silent", name: "test", write: () => {} }),
      ),
      (error: Error) => text.includes(error.message),
    );
  }
  const { text } = await run([{ ...ours, schema: "n7", table: "state" }]);
  assert.match(text, /type +state +not allowed: the type of the column state already has the name "n7"\."state"/);
});

void test("reports an invalid pg_task.plan, whether the table exists or not", async () => {
  for (const [plan, words] of [
    ["now(", "syntax error"],
    ["no_such()", "function no_such\\(\\) does not exist"],
    ["'x'::text", "types .* cannot be matched"],
    ["now()); SELECT (1", "syntax error"],
  ] as const) {
    const { exitCode, text } = await run({
      "pg_task.plan": plan,
      "pg_task.json": [ours],
    });
    assert.equal(exitCode, 2, text);
    assert.match(text, new RegExp(`error .*: expected pg_task\\.plan to be an expression .*${words}`));
    assert.match(text, /table +task +/);
  }
  for (const plan of ["now() -- soon", "'tomorrow'", "current_date + 1"]) {
    const { exitCode, text } = await run([{ ...ours, "pg_task.plan": plan }]);
    assert.equal(exitCode, 0, text);
  }
});

void test("reports a zone that the server does not know, wherever it is set", async () => {
  const wholly = await createDatabase();
  const { database: own } = wholly.target;
  const entry = { data: own, user: "postgres" };
  const inFile = await run({ "pg_task.zone": "Europe/Belrin", "pg_task.json": [entry] });
  assert.equal(inFile.exitCode, 2, inFile.text);
  assert.match(inFile.text, /error .*: pg_task\.zone \(file\) is "Europe\/Belrin".*SELECT name FROM pg_timezone_names/);
  const inEntry = await run({ "pg_task.zone": "UTC", "pg_task.json": [{ ...entry, "pg_task.zone": "CET" }] });
  assert.equal(inEntry.exitCode, 2, inEntry.text);
  assert.match(inEntry.text, /pg_task\.zone \(entry\) is "CET"/);
  const client = await wholly.connect();
  await client.query(`ALTER DATABASE ${own} SET pg_task.zone = 'Moon/Sea'`);
  // A role that only inserts tasks. Other roles do not matter.
  await client.query(`ALTER ROLE ${role} IN DATABASE ${own} SET pg_task.zone = 'UTC+3'`);
  const inDatabase = await run([entry]);
  assert.equal(inDatabase.exitCode, 2, inDatabase.text);
  assert.match(
    inDatabase.text,
    new RegExp(`\\(DATABASE ${own}\\) is "Moon/Sea".*ALTER DATABASE ${own} SET pg_task\\.zone`),
  );
  assert.doesNotMatch(inDatabase.text, /UTC\+3/);
  await client.query(`GRANT INSERT ON task TO ${role}`);
  await client.query(`ALTER DATABASE ${own} SET pg_task.zone = 'Europe/Berlin'`);
  assert.match((await run([entry])).text, new RegExp(`\\(ROLE ${role} IN DATABASE ${own}\\) is "UTC\\+3"`));
  await client.query(`REVOKE INSERT ON task FROM ${role}`);
  for (const zone of ["", "utc", "Etc/GMT-3", "america/new_york"]) {
    const { exitCode, text } = await run([{ ...entry, "pg_task.zone": zone }]);
    assert.equal(exitCode, 0, text);
  }
  await client.query(`ALTER ROLE ${role} IN DATABASE ${own} RESET ALL`);
});

for (const [what, flaw, code, said] of [
  [
    "a task table with a missing column",
    "ALTER TABLE task RENAME output TO outp",
    4,
    /^error .* table task incomplete: it no longer has the column output; pg-task doctor names/m,
  ],
  [
    "a user's columns with the names of pg-task's",
    "COMMENT ON FUNCTION task_wake_up() IS 'pg-task wake-up, own columns: key role'",
    4,
    /table task not allowed: .*its column key has the name of one of pg-task's columns; its column role[^]*ALTER TABLE "public"\."task" RENAME COLUMN key TO key_before;/,
  ],
  [
    "a user's function that keeps asynchronous triggers off",
    `CREATE OR REPLACE FUNCTION task_async() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
     COMMENT ON FUNCTION task_async() IS 'mine'`,
    0,
    /exists.*off: asynchronous triggers, because another function is called "public"\."task_async"\(\)/,
  ],
] as const) {
  void test(`reports ${what}`, async () => {
    const whole = await createDatabase();
    await (await whole.connect()).query(flaw);
    const { exitCode, text } = await run([{ data: whole.target.database, user: "postgres" }]);
    assert.equal(exitCode, code, text);
    assert.match(text, said);
  });
}

void test("reports that a schema with a reserved name cannot be created", async () => {
  for (const schema of ["pg_x", "pg_catalog"]) {
    const { exitCode, text } = await run([{ ...ours, schema }]);
    assert.equal(exitCode, 4);
    assert.match(text, /not allowed: missing, and schema names that begin with "pg_" are reserved/);
  }
});

void test("shows settings of the server, including those that move the table", async () => {
  const client = await database.connect();
  for (const setting of [
    "pg_task.\"table\" = 'elsewhere'",
    "pg_task.sleep = '77'",
    "pg_task.max = '3'",
    "pg_conf.restart = '9'",
    "pg_conf.close = 'soon'",
    "pg_task.quote = 'ab'",
  ]) {
    await client.query(`ALTER DATABASE ${name} SET ${setting}`);
  }
  try {
    const { exitCode, text } = await run([ours]);
    assert.equal(exitCode, 0);
    assert.match(text, /table +elsewhere +would be created/);
    assert.match(text, /pg_task\.sleep +"77" +server\n/);
    assert.match(text, /pg_task\.max +"3" +server\n/);
    assert.match(text, /pg_conf\.restart +9 s +server\n/);
    assert.match(text, /warning +invalid setting pg_conf\.close "soon" on the server, using 60000/);
    assert.match(text, /warning +setting pg_task\.quote "ab" on the server is longer than one character, using "a"/);
    const own = await run([{ ...ours, table: "mine" }], { json: true });
    const report: CheckReport = JSON.parse(own.text);
    assert.equal(report.entries[0]?.table, "mine");
  } finally {
    await client.query(`ALTER DATABASE ${name} RESET ALL`);
  }
});

void test("keeps a name with a line feed on one line", async () => {
  const { text } = await run([{ ...ours, schema: "two\nlines", table: "\u001b[31m" }]);
  assert.match(text, /schema +two\\u000alines +would be created\n/);
  assert.match(text, /table +\\u001b\[31m +would be created\n/);
});

void test("reports that a missing role or database and its objects would be created", async () => {
  const all = { role: created, database: created, schema: created, type: created, table: created };
  assert.deepEqual(await states({ data: `${name}_missing` }), [0, all, ""]);
  const unknown = { schema: "unknown", type: "unknown", table: "unknown" };
  assert.deepEqual(await states({ data: name, user: `${name}_missing` }), [
    0,
    { role: created, database: "exists", ...unknown },
    "",
  ]);
  assert.deepEqual(await states({ data: `${name}_missing`, create: false }), [
    4,
    { role: "missing", database: "missing", ...unknown },
    "",
  ]);
});

void test("reports that a role with a name that PostgreSQL reserves cannot be created", async () => {
  const [code, objects] = await states({ data: name, user: "pg_nobody" });
  assert.deepEqual([code, objects["role"]], [4, "not allowed"]);
  const { text } = await run([{ data: name, user: "pg_nobody" }]);
  assert.match(text, /role +pg_nobody +not allowed.*PostgreSQL reserves names that begin with pg_/);
});

void test("reports missing privileges to create objects, with exit code 4", async () => {
  const entry = { data: name, user: role, schema: "not_there" };
  const [code, objects] = await states(entry);
  assert.deepEqual([code, objects["schema"]], [4, "not allowed"]);

  const inDatabase = await run([entry]);
  assert.match(
    inDatabase.text,
    new RegExp(`^error .* may not create a schema .*: GRANT CREATE ON DATABASE ${name} TO "${role}"$`, "m"),
  );
  const client = await database.connect();
  await client.query(`CREATE SCHEMA seen; GRANT USAGE ON SCHEMA seen TO ${role}`);
  const inSchema = await run([{ ...entry, schema: "seen" }]);
  assert.match(
    inSchema.text,
    new RegExp(`^error .* may not create in the schema seen: GRANT CREATE ON SCHEMA seen TO "${role}"$`, "m"),
  );

  const url = `postgresql://${role}@${host}:${port}/${name}`;
  const entries = [{ data: `${name}_missing`, create: true }];
  const { exitCode, text } = await run({ url, "pg_task.json": entries });
  assert.equal(exitCode, 4);
  assert.match(text, new RegExp(`not allowed: missing, and .* user ${role} lacks CREATEROLE`));
  assert.match(text, new RegExp(`not allowed: missing, and .* user ${role} lacks CREATEDB`));
});

void test("reports a role setting that hides the sessions from the entry's user", async () => {
  const [user, owner] = [`${role}_as_owner`, `${role}_owner`];
  const client = await database.connect();
  await client.query(`
    CREATE ROLE ${user} LOGIN; CREATE ROLE ${owner};
    GRANT ${owner} TO ${user};
    GRANT CREATE ON SCHEMA public TO ${owner};
    ALTER ROLE ${user} SET role = '${owner}'`);
  const entry = { data: name, user, table: "unseen" };
  const [code, , error] = await states(entry);
  assert.equal(code, 3);
  assert.match(
    error,
    new RegExp(`the setting "role" of ${user} is ${owner}, which may not see it; ALTER ROLE ${user} RESET`),
  );
  await client.query(`GRANT pg_read_all_stats TO ${owner}`);
  assert.deepEqual((await states(entry))[0], 0);
  await client.query(`REVOKE CREATE ON SCHEMA public FROM ${owner}; DROP ROLE ${user}; DROP ROLE ${owner}`);
});

void test("reports missing privileges on a table beside the other findings", async () => {
  const client = await database.connect();
  await client.query('CREATE SCHEMA private; CREATE TABLE private.task_pause ("group" text)');
  await client.query(`GRANT USAGE ON SCHEMA private TO ${role}`);
  const { exitCode, text } = await run([{ data: name, user: role, schema: "private" }]);
  assert.equal(exitCode, 4);
  assert.match(text, /^error .*: permission denied on "private"."task": permission denied for table task_pause/);
  await client.query("CREATE TABLE private.task (id bigint)");
  const owned = await run([{ data: name, user: role, schema: "private" }]);
  assert.match(
    owned.text,
    new RegExp(
      `^error .*: permission denied for table task_pause .*: ALTER TABLE "private"."task" OWNER TO "${role}"$`,
      "m",
    ),
  );
  const entry = text.slice(text.indexOf("\nentries\n"));
  for (const what of ["role", "database", "schema", "table"]) {
    assert.equal(entry.match(new RegExp(`^ +${what} `, "gm"))?.length, 1, text);
  }
  const neither = await run([{ data: `${name}_missing`, create: false }]);
  assert.match(neither.text, /unknown: cannot be inspected before the role and database exist\n/);
});

void test("warns of a password in a file that everybody can read", async () => {
  const file = join(cwd, "c.json");
  const warning =
    /^warning +\S+c\.json holds a password, and every user of this machine can read it: chmod 600 \S+c\.json, or /m;
  const url = `postgresql://postgres:${password}@${host}:${port}/${name}`;
  await run([ours]);
  for (const [content, mode, isWarned] of [
    [{ url }, 0o644, true],
    [[{ ...ours, password }], 0o644, true],
    [[ours], 0o644, false],
    [{ url }, 0o640, false],
  ] as const) {
    await chmod(file, mode);
    assert.equal(warning.test((await run(content)).text), isWarned, JSON.stringify({ content, mode }));
  }
});

void test("names sources and values, but no passwords", async () => {
  const url = `postgresql://postgres:${password}@${host}:${port}/${name}`;
  const { exitCode, text } = await run({
    url,
    "pg_task.sleep": 123,
    "pg_task.json": [{ ...ours, password, "pg_task.null": "nil" }],
  });
  assert.equal(exitCode, 0);
  assert.ok(text.startsWith(`configuration  ${join(cwd, "c.json")}\n`), text);
  assert.match(text, /password \*\*\* sslmode prefer \(url in the file\), PostgreSQL \d+/);
  assert.match(text, /pg_task\.sleep +123 ms +file\n/);
  assert.doesNotMatch(text, /pg_task\.crash/);
  assert.match((await run({ url }, { all: true })).text, /pg_task\.crash +3 +default\n/);
  assert.match(text, /pg_task\.null +"nil" +entry\n/);
  assert.doesNotMatch(text, /hunter2/);
  assert.doesNotMatch((await run({ url }, { json: true })).text, /hunter2/);
});

void test("reports an unreachable control server first, with exit code 3 and little else", async () => {
  const closed = await closedPort();
  const url = `postgresql://postgres:${password}@127.0.0.1:${closed}/${name}`;
  const { exitCode, text } = await run({ url, "pg_task.json": [{ data: "shop" }] });
  assert.equal(exitCode, 3);
  const [first = "", ...others] = text.trimEnd().split("\n");
  assert.match(first, new RegExp(`^error {10}control connection: no connection .* 127.0.0.1, port ${closed} `));
  assert.match(text, new RegExp(`\\nentries\\n +postgresql://.*:${closed}/shop +public.task\\n`));
  assert.ok(others.length < 10, text);
  assert.doesNotMatch(text, /hunter2/);
});

void test("inspects an entry on another server there, and reports its failure beside the other entries", async () => {
  const url = `postgresql://u:${password}@127.0.0.1:${await closedPort()}/d`;
  const { exitCode, text } = await run([{ url }, ours]);
  assert.equal(exitCode, 3);
  assert.match(
    text,
    /^error {10}entry d public\.task: no connection to the server at 127\.0\.0\.1, port [^]*database +d\n/,
  );
  assert.match(text, new RegExp(`database +${name} +exists`));
  assert.doesNotMatch(text, /hunter2/);
});

void test("fails as start does if nothing is configured", async () => {
  const empty = await mkdtemp(join(tmpdir(), "pg-task-nothing-"));
  const { code, stderr } = await cli(["check"], { cwd: empty });
  assert.equal(code, 2);
  assert.match(stderr, /^pg-task: no server configured/);
  await rm(empty, { recursive: true });
});

void test("fails before it connects if the configuration is invalid", async () => {
  assert.equal((await run([{ sleep: 0 }])).exitCode, 2);
});

void test("reports a table that its user may not adopt or serve, and so do status and doctor", async () => {
  const client = await database.connect();
  const columns = "(id bigserial, plan timestamptz, state text, input text)";
  await client.query(
    `CREATE SCHEMA narrow; GRANT USAGE ON SCHEMA narrow TO ${role}; CREATE TABLE narrow.mine ${columns};
     ALTER TABLE narrow.mine OWNER TO ${role}; CREATE TABLE narrow.others ${columns}; GRANT ALL ON narrow.others TO ${role};
     CREATE TABLE narrow.served ${columns}`,
  );
  const ensure = (user: string, table: string): Promise<unknown> =>
    ensureTaskTable({ ...database.target, user }, { schema: "narrow", table });
  await ensure(database.target.user, "served");
  await client.query(`GRANT ALL ON ALL TABLES IN SCHEMA narrow TO ${role}`);
  const grant = `GRANT CREATE ON SCHEMA narrow TO "${role}"`;
  const takeOver = (table: string): string => `ALTER TABLE "narrow"."${table}" OWNER TO "${role}"`;
  for (const [table, why, isAdopted] of [
    ["mine", `the entry's user may not create what belongs to it: ${grant}`, false],
    ["others", `the entry's user needs the privileges of its owner: ${takeOver("others")}`, false],
    ["served", `the entry's user needs the privileges of its owner: ${takeOver("served")}`, true],
  ] as const) {
    const entry = { data: name, user: role, schema: "narrow", table };
    const { exitCode, text } = await run([entry]);
    assert.equal(exitCode, isAdopted ? 0 : 4, text);
    assert.ok(text.includes(`${isAdopted ? "exists" : "not allowed"}: ${why}`), text);
    if (isAdopted) continue;
    await assert.rejects(ensure(role, table), {
      code: "SCHEMA_NOT_ALLOWED",
      message: new RegExp(`: ${(table === "mine" ? grant : takeOver(table)).replaceAll(".", "\\.")}`),
    });
    for (const command of ["status", "doctor"]) {
      const env = { HOME: cwd, DATABASE_URL: database.url };
      const { stdout, stderr } = await cli([command, "--config", "c.json"], { cwd, env });
      assert.ok((stdout + stderr).includes(`is not adopted yet: ${why}`), stdout + stderr);
    }
  }
  await client.query(grant);
  assert.deepEqual((await states({ data: name, user: role, schema: "narrow", table: "mine" }))[0], 0);
  await client.query("DROP SCHEMA narrow CASCADE");
});

void test("commands say that start creates what an entry of an array names", async () => {
  const entry = { data: `${name}_absent`, user: `${name}_absent` };
  const env = { HOME: cwd, DATABASE_URL: database.url };
  for (const [content, remedy] of [
    [[entry], "run pg-task start, which creates what is missing"],
    [{ "pg_task.json": [entry] }, 'create what is missing, or set "create": true'],
  ] as const) {
    await writeFile(join(cwd, "c.json"), JSON.stringify(content));
    const { stdout, stderr } = await cli(["list", "--config", "c.json"], { cwd, env });
    assert.ok((stdout + stderr).includes(`are missing: ${remedy}`), stdout + stderr);
  }
});
