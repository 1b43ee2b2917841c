import assert from "node:assert/strict";
import { TaskClient } from "../../../src/library/index.js";
import { chmod, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { cli } from "../../support/cli.js";
import { connectTo } from "../../support/connectTo.js";
import { replaceConfig, configFolder } from "../../support/configFile.js";
import { doctor } from "../../support/doctor.js";
import { valueOf, waitForRow } from "../../support/tasks.js";
import { clusterSchema, processesSchema } from "../../../src/web/api/schemas.js";
import { token, Web } from "../../support/web.js";
import { projectText } from "../../support/project.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";
import { controlPassword, PasswordServer, startWith, startWithFile } from "../../support/passwordServer.js";

const server = await PasswordServer.start();
const { admin, rules } = server;
const readme = projectText("README.md");
const [ownersText = "", creatingText = ""] = [...readme.matchAll(/```json\n([^]*?)```/g)].map(([, text = ""]) => text);
const shopPassword = "shop's password";
const withPassword = server.urlOf("postgres", controlPassword);
const env = { PGPASSWORD: controlPassword, SHOP_PASSWORD: shopPassword };

/**
 * Runs `pg-task check` on a configuration.
 *
 * @returns the exit code, the output, and the folder of the configuration file
 */
async function check(content: object): Promise<{ code: number | null; text: string; cwd: string }> {
  const cwd = await configFolder(content);
  const { code, stdout, stderr } = await cli(["check"], { cwd, env });
  return { code, text: stdout + stderr, cwd };
}

/** Runs a task on a server that requires passwords with a configuration that gives the role `shop` its table. */
async function serveShop(content: object, more: Readonly<Record<string, string>>, table: string): Promise<void> {
  const program = startWith(content, more);
  const ready = await program.line("ready");
  assert.deepEqual([ready["serving"], ready["waiting"]], [1, []]);
  const client = await connectTo(server.urlOf("shop", env.SHOP_PASSWORD));
  await client.query(`INSERT INTO ${table} (input) VALUES ('SELECT session_user')`);
  const done = await waitForRow<{ output: string }>(client, `SELECT output FROM ${table} WHERE state = 'DONE'`, []);
  assert.equal(done.output, "shop");
  await client.end();
  await program.stop();
}

test("the README's configuration that makes role and database works on a server that requires passwords", async () => {
  const configuration = { ...JSON.parse(creatingText), url: server.url };
  const before = await check(configuration);
  assert.equal(before.code, 0, before.text);
  assert.match(before.text, /role +shop +would be created/);
  assert.doesNotMatch(before.text, /^warning/m);
  await serveShop(configuration, env, "task");
});

test("the README's configuration for the owner of the tables works with a password file", async () => {
  const file = join(await temporaryFolder(), ".pgpass");
  await writeFile(file, `127.0.0.1:${server.port}:shop:shop:${shopPassword}\n`, { mode: 0o600 });
  const owners: { url: string } = JSON.parse(ownersText);
  const url = new URL(owners.url);
  url.host = `127.0.0.1:${server.port}`;
  await serveShop({ ...owners, url: url.href }, { PGPASSFILE: file }, "shop.task");
});

test("the library does not call a wrong or missing password retryable", async () => {
  for (const [password, sqlState] of [
    ["wrong", "28P01"],
    ["", undefined],
  ] as const) {
    const tasks = new TaskClient(server.urlOf("postgres", password));
    await assert.rejects(tasks.wait(1), { code: "CONNECTION_REJECTED", sqlState, retryable: false });
    await tasks.end();
  }
});

test("says what to do about a missing database and a role without LOGIN", async () => {
  await admin.query("CREATE ROLE nobody NOLOGIN PASSWORD 'nobody'");
  for (const [url, remedy] of [
    [
      server.urlOf("postgres", controlPassword, "misspelt"),
      /\(SQLSTATE 3D000\): create the database "misspelt", or correct its name$/,
    ],
    [server.urlOf("nobody", "nobody", "postgres"), /\(SQLSTATE 28000\): ALTER ROLE "nobody" LOGIN$/],
  ] as const) {
    const { stderr } = await cli(["list"], { cwd: await temporaryFolder(), env: { DATABASE_URL: url } });
    assert.match(stderr.trim(), remedy);
  }
});

test("a missing password of the control connection is not to be given in an entry, that of an entry is", async () => {
  const cwd = await temporaryFolder();
  const file = join(cwd, "pg_task.json");
  await admin.query("CREATE ROLE kept LOGIN");
  await writeFile(file, JSON.stringify({ url: server.url }));
  for (const command of ["check", "list", "status", "doctor"]) {
    const { stdout, stderr } = await cli([command], { cwd, env: {} });
    // The remedy is a field of its own in the output of doctor, where the text does not repeat it.
    const given = /none was given for [^\t\n]*(?:: |\t)give one in the URL, in PGPASSWORD or in a password file/;
    assert.match(stdout + stderr, given, command);
    assert.match(stdout + stderr, /; the password of an entry does not count for the control connection; /, command);
    assert.doesNotMatch(stdout + stderr, /in the entry/, command);
  }
  const passwords = join(cwd, "passwords");
  const withFile = async () => (await cli(["list"], { cwd, env: { PGPASSFILE: passwords } })).stderr;
  assert.match(await withFile(), new RegExp(`password file \\(there is no ${passwords}\\)`));
  await writeFile(passwords, "other:*:*:*:secret\n", { mode: 0o600 });
  assert.match(await withFile(), new RegExp(`password file \\(no matching line was read from ${passwords}\\)`));
  await writeFile(passwords, "*:*:*:*:secret\n");
  assert.match(await withFile(), new RegExp(`28P01\\): the password is from ${passwords}: give the role's password`));
  // A password that is given has precedence over the file.
  const wrong = (await cli(["list"], { cwd, env: { PGPASSFILE: passwords, PGPASSWORD: "wrong" } })).stderr;
  assert.match(wrong, /28P01\): the password is from the connection's settings or PGPASSWORD, so no password file/);
  await chmod(passwords, 0o644);
  const refused = await withFile();
  assert.match(
    refused,
    new RegExp(`none was given for [^ ]*: password file ${passwords} is not used: its group or others`),
  );
  const [line = ""] = /none was given for .*/.exec(refused) ?? [];
  assert.equal(line.split("is not used").length, 2, "said once");
  assert.doesNotMatch(refused, /no matching line/);
  // The driver does not warn in its own words, too.
  assert.doesNotMatch(refused, /WARNING/);
  const program = startWith({ url: server.url, "pg_http.listen": "127.0.0.1:0", "pg_http.token": token });
  const web = await Web.connect(program);
  const { tables } = await web.get(clusterSchema, "/api/tables");
  const { error, managers } = await web.get(processesSchema, "/api/processes");
  for (const reason of [error, managers[0]?.error, tables[0]?.error]) {
    assert.match(reason ?? "", /none was given for .*: give one in the URL, in PGPASSWORD or in a password file/);
  }
  await program.stop();
  await writeFile(file, JSON.stringify({ url: withPassword, "pg_task.json": [{ user: "kept", data: "postgres" }] }));
  const { stderr } = await cli(["list"], { cwd, env: {} });
  assert.match(stderr, /none was given for .*: give one in the entry or the URL, in PGPASSWORD or in a password file/);
});

test("check fails for a role that could not log in, and the entry's password is set later", async () => {
  const before = await check(server.config({ data: "bare", create: true }));
  assert.equal(before.code, 3, before.text);
  assert.match(
    before.text,
    /^error .*: the server asks for a password, and the role "bare" would be created without one: set "password" in its entry/,
  );
  const { program, folder } = await startWithFile(server.config({ data: "bare", create: true }), env);
  const ready = await program.line("ready");
  assert.deepEqual([ready["serving"], ready["waiting"]], [0, [`127.0.0.1:${server.port}/bare/public.task`]]);
  const { reason } = await program.line("manager unavailable, retrying");
  assert.match(String(reason), /ALTER ROLE "bare" PASSWORD '…'/);

  // With a password, the entry serves its table: the role is pg-task's own.
  const entry = { data: "bare", password: "new" };
  const fixed = await check(server.config(entry));
  assert.deepEqual([fixed.code, /error:/.test(fixed.text)], [0, false], fixed.text);
  assert.match(fixed.text, /role +bare +exists: with another password than the entry's, which pg-task start sets\n/);
  assert.match(
    fixed.text,
    /table +task +unknown: cannot be inspected before the role "bare" has the entry's password\n/,
  );
  await replaceConfig(folder, server.config(entry));
  assert.equal((await program.line("password of the role changed"))["role"], "bare");
  await program.line("serving table");
  await program.stop();
  for (const changed of ["newer", "newest"]) {
    const again = startWith(server.config({ ...entry, password: changed }), env);
    const line = await again.line("ready");
    assert.deepEqual([line["serving"], line["waiting"]], [1, []]);
    assert.equal(again.linesMatching("password of the role changed").length, 1);
    await again.stop();
    assert.ok(!JSON.stringify(again.lines).includes(changed));
  }
  const same = startWith(server.config({ ...entry, password: "newest" }), env);
  await same.line("ready");
  // Nobody has changed the entry, so this change is not undone while pg-task runs.
  await admin.query("ALTER ROLE bare PASSWORD 'changed by hand'");
  await admin.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'bare'");
  await same.line("manager unavailable, retrying");
  // The manager's next attempt fails for another reason. By then, the first failure has been dealt with.
  await admin.query("ALTER ROLE bare NOLOGIN");
  await same.line("manager unavailable, retrying", 2);
  await admin.query("ALTER ROLE bare LOGIN");
  assert.ok(await valueOf(admin, "SELECT shobj_description('bare'::regrole, 'pg_authid') IS NOT NULL AS own"));
  assert.equal(same.linesMatching("password of the role changed").length, 0);
  await same.stop();
});

test("check fails for a role that pg_hba.conf would keep out once it exists", async () => {
  const before = await readFile(rules, "utf8");
  await writeFile(rules, `host all kept_out 127.0.0.1/32 reject\n${before}`);
  await admin.query("SELECT pg_reload_conf()");
  const entry = { data: "kept_out", create: true, password: "any" };
  const { code, text } = await check(server.config(entry));
  await writeFile(rules, before);
  await admin.query("SELECT pg_reload_conf()");
  assert.equal(code, 3, text);
  assert.match(text, /^error .*: the server refused the connection .*pg_hba.conf rejects connection/);
  const open = await check(server.config(entry));
  assert.equal(open.code, 0, open.text);
});

test("a control role that sees no passwords sets a changed one too", async () => {
  await admin.query("CREATE ROLE maker LOGIN CREATEROLE CREATEDB PASSWORD 'made'");
  await admin.query("CREATE DATABASE maker OWNER maker");
  const url = server.urlOf("maker", "made");
  for (const [password, changes] of [
    ["first", 0],
    ["second", 1],
    ["second", 0],
  ] as const) {
    const entry = { data: "made", create: true, password };
    const program = startWith({ url, "pg_task.json": [entry] });
    assert.equal((await program.line("ready"))["serving"], 1);
    assert.equal(program.linesMatching("password of the role changed").length, changes);
    await program.stop();
  }
  // Without the right to set it, check fails as start would.
  const changed = { url, "pg_task.json": [{ data: "made", create: true, password: "third" }] };
  assert.equal((await check(changed)).code, 0);
  await admin.query("ALTER ROLE maker NOCREATEROLE");
  const { code, text } = await check(changed);
  assert.equal(code, 4, text);
  assert.match(
    text,
    /^error .*: role made not allowed: it has another password than the entry's, and the control connection's user maker may not change it\n/,
  );
  const refused = startWith(changed);
  assert.equal((await refused.line("role or database unavailable, retrying"))["code"], "SCHEMA_NOT_ALLOWED");
  await refused.stop();
});

test("the password of a role that pg-task did not create stays, and ALTER ROLE is suggested", async () => {
  await server.createOwner("theirs", "theirs");
  const entry = { data: "theirs", create: true, password: "mine" };
  const { code, text, cwd } = await check(server.config(entry));
  assert.equal(code, 3);
  assert.match(text, /ALTER ROLE "theirs" PASSWORD '…'/);
  const { lines } = await doctor(env, cwd);
  const refused = lines.find(({ level }) => level === "fail");
  assert.equal(refused?.remedy, `give the role's password, or set it by ALTER ROLE "theirs" PASSWORD '…'`);
  assert.match(
    refused.text,
    /password authentication failed for user "theirs" \(SQLSTATE 28P01\): the password is from the connection's settings or PGPASSWORD, so no/,
  );
  const program = startWith(server.config(entry), env);
  const { reason } = await program.line("manager unavailable, retrying");
  assert.match(String(reason), /ALTER ROLE "theirs" PASSWORD '…'/);
  await admin.query("ALTER ROLE theirs PASSWORD 'mine'");
  await program.line("serving table");
  await program.stop();
});

test("commands name a missing role instead of its password", async () => {
  const content = server.config({ data: "nobody_yet", password: "unknown" });
  const cwd = await configFolder(content);
  const missing = /the role "nobody_yet" and the database "nobody_yet" are missing/;
  const listed = await cli(["list"], { cwd, env });
  assert.equal(listed.code, 4);
  assert.match(listed.stderr, missing);
  assert.match(listed.stderr, /are missing: create what is missing/);
  const { code, lines } = await doctor(env, cwd);
  const failed = lines.filter(({ level }) => level === "fail");
  assert.equal(code, 4);
  assert.deepEqual([failed.length, missing.test(failed[0]?.text ?? "")], [1, true]);
  // The remedy is not said twice.
  assert.match(failed[0]?.text ?? "", /are missing$/);
  assert.match(failed[0]?.remedy ?? "", /^create what is missing/);
  assert.doesNotMatch(JSON.stringify(failed), /password authentication|ALTER ROLE/);
});

test("check and doctor agree about the changed password of a role that pg-task has created", async () => {
  const content = server.config({ data: "agreed", password: "first password", create: true });
  const program = startWith(content, env);
  await program.line("ready");
  await program.stop();
  await admin.query("ALTER ROLE agreed PASSWORD 'second password'");
  const { text, cwd, code } = await check(content);
  assert.equal(code, 0, text);
  assert.match(text, /role +agreed +exists: with another password than the entry's, which pg-task start sets\n/);
  const { lines } = await doctor({ ...env }, cwd);
  const failed = lines.find(({ level }) => level === "fail");
  assert.equal(failed?.text, 'the role "agreed" has another password than its entry');
  assert.match(failed.remedy, /^pg-task created the role, and sets the entry's password when it starts /);
});

test("a role that another session changes at the same time gets its entry's password all the same", async () => {
  const content = server.config({ data: "raced", password: "first password", create: true });
  const first = startWith(content, env);
  await first.line("ready");
  await first.stop();
  await admin.query("BEGIN; ALTER ROLE raced CONNECTION LIMIT 50");
  const program = startWith(server.config({ data: "raced", password: "second password", create: true }), env);
  const other = await connectTo(withPassword);
  await waitForRow(
    other,
    "SELECT FROM pg_stat_activity WHERE query LIKE 'ALTER ROLE %' AND wait_event_type = 'Lock'",
    [],
  );
  await admin.query("COMMIT");
  await program.line("password of the role changed");
  await program.line("ready");
  assert.deepEqual(program.linesMatching(/unavailable/), []);
  await other.end();
  await program.stop();
});
