import assert from "node:assert/strict";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { it } from "node:test";
import { cli } from "../../support/cli.js";
import { connectTo } from "../../support/connectTo.js";
import { RestartableServer } from "../../support/restartableServer.js";
import { startProcess, type TestProcess } from "../../support/process.js";
import { configFolder } from "../../support/configFile.js";
import { secretRemotes } from "../../support/secretRemotes.js";
import { insertTask, waitForRow, waitForState } from "../../support/tasks.js";

/** Every secret in these tests contains this text. */
const secret = "hush";
const server = await RestartableServer.started();
const client = await connectTo(server.url);
await client.query(`SET password_encryption = 'scram-sha-256';
  CREATE ROLE supervisor LOGIN CREATEROLE CREATEDB PASSWORD 'supervisor-${secret}'`);
const hba = join(server.dataDirectory, "pg_hba.conf");
const trust = await readFile(hba, "utf8");
await writeFile(hba, `host all postgres 127.0.0.1/32 trust\n${trust.replaceAll(/trust$/gm, "scram-sha-256")}`);
await client.query("SELECT pg_reload_conf()");
const target = server.url.replace("postgres@", `supervisor:supervisor-${secret}@`);

const config = {
  url: target,
  "pg_conf.log": "trace",
  "pg_task.json": [{ data: "shop", user: "keeper", create: true, password: { env: "KEEPER_PASSWORD" } }],
};
const env = { KEEPER_PASSWORD: `keeper-${secret}`, UNRELATED: `unrelated-${secret}` };

/** Returns the pids of the running descendants of a process. */
async function descendants(pid: number): Promise<number[]> {
  const found: number[] = [];
  for (const thread of await readdir(`/proc/${pid}/task`)) {
    const text = await readFile(`/proc/${pid}/task/${thread}/children`, "utf8");
    for (const child of text.trim().split(" ").filter(Boolean)) {
      found.push(Number(child), ...(await descendants(Number(child))));
    }
  }
  return found;
}

const ofProcess = async (pid: number, what: "cmdline" | "environ"): Promise<string> =>
  (await readFile(`/proc/${pid}/${what}`, "utf8")).replaceAll("\0", " ");

function assertSilent({ output, cwd }: Pick<TestProcess, "output" | "cwd">): void {
  const written = output.stdout + output.stderr;
  assert.ok(written.length > 0, cwd);
  const index = written.indexOf(secret);
  assert.equal(index, -1, written.slice(Math.max(0, index - 200), index + 50));
}

it("shows no secret in its log, its arguments, the server's activity or a task's error", async () => {
  const program = await startProcess({ config, env, until: "ready" });
  const shop = await connectTo(server.url.replace(/postgres$/, "shop"));

  // From here on, the queries of all sessions are watched.
  const watcher = await connectTo(server.url);
  const seen: string[] = [];
  const over = new AbortController();
  const watching = (async () => {
    while (!over.signal.aborted) {
      const { rows } = await watcher.query<{ text: string }>(
        `SELECT concat_ws(' ', application_name, query) AS text FROM pg_stat_activity
         WHERE strpos(concat_ws(' ', application_name, query), $1) > 0 AND pid <> pg_backend_pid()`,
        [secret],
      );
      seen.push(...rows.map(({ text }) => text));
    }
  })();
  const remote = async (text: string, state: string): Promise<string | null> =>
    (await waitForState(shop, await insertTask(shop, "SELECT 1", { remote: text }), state)).error;
  const at = `host=127.0.0.1 port=${server.port} dbname=shop`;
  await remote(`${at} user=keeper password=keeper-${secret}`, "DONE");
  const errors = [
    await remote(`${at} user=keeper password=wrong-${secret}`, "FAIL"),
    await remote(`${at} user=nobody password=nobody-${secret}`, "FAIL"),
    await remote(`${at} user=keeper passwort=typo-${secret}`, "FAIL"),
    await remote(`postgresql://keeper:half-${secret}@127.0.0.1:${server.port}0/shop`, "FAIL"),
  ];
  for (const text of secretRemotes(`form-${secret}`)) errors.push(await remote(text, "FAIL"));
  // The server's message about a row that it refuses contains the row.
  await shop.query("ALTER TABLE task ADD CHECK (parent IS NULL)");
  await shop.query("INSERT INTO task (input, remote, repeat) VALUES ('SELECT 2', $1, '1 day')", [
    `port=1 password=${secret}`,
  ]);
  const { error } = await waitForRow<{ error: string }>(
    shop,
    "SELECT error FROM task WHERE input = 'SELECT 2' AND state = 'FAIL'",
    [],
  );
  assert.match(error, /next run was not planned: .* violates check constraint/);
  errors.push(error);
  await waitForState(shop, await insertTask(shop, "SELECT 1/0"), "FAIL");
  for (const args of [
    ["list", "-n", "100"],
    ["list", "--json"],
    ["show", "2"],
    ["show", "9", "--json"],
  ]) {
    const { code, stdout, stderr } = await cli(args, { cwd: program.cwd, env });
    assert.equal(code, 0, stderr);
    errors.push(stdout, stderr);
  }
  over.abort();
  await watching;
  assert.deepEqual(seen, []);
  assert.doesNotMatch(errors.join("\n"), new RegExp(secret));
  assert.doesNotMatch(await ofProcess(program.pid, "cmdline"), new RegExp(secret));
  assert.deepEqual(await descendants(program.pid), []);

  // Later errors are logged without secrets, too.
  await client.query("ALTER ROLE keeper PASSWORD 'another'");
  await client.query(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename IN ('keeper', 'supervisor')",
  );
  await program.line(/^manager unavailable/);
  await program.line("leadership regained");
  await program.stop();
  assertSilent(program);
  await client.query(`ALTER ROLE keeper PASSWORD 'keeper-${secret}'`);
  await Promise.all([shop.end(), watcher.end()]);
});

it("logs the server's error for a wrong password without showing it", async () => {
  for (const [url, code, reason] of [
    [config.url.replace("supervisor-", "wrong-"), "CONNECTION_REJECTED", /authentication failed for user "supervisor"/],
    [
      config.url.replace(/:supervisor-[^@]*/, ""),
      undefined,
      /none was given for .*: give one in the URL, in PGPASSWORD or/,
    ],
  ] as const) {
    const program = await startProcess({ config: { ...config, url }, env });
    const line = await program.line("control connection failed, retrying");
    assert.match(String(line["reason"]), reason);
    if (code !== undefined) assert.equal(line["code"], code);
    await program.stop();
    assertSilent(program);
  }
});

for (const [what, wrong] of [
  ["a wrong password", { ...config, url: target.replace("supervisor-", "wrong-") }],
  ["a key that is unknown", { ...config, passwort: `file-${secret}` }],
  ["a url that is none", { ...config, url: `postgresql://user:url-${secret}@[::1/x` }],
  ["a port that is none", { ...config, url: `postgresql://user:port-${secret}@localhost:99999/x` }],
  ["a password of the wrong type", { ...config, "pg_task.json": [{ data: "shop", password: [`type-${secret}`] }] }],
] as const) {
  it(`shows no secret when it rejects ${what}`, async () => {
    const cwd = await configFolder(wrong);
    const { stdout, stderr } = await cli(["check"], { cwd, env });
    assertSilent({ output: { stdout, stderr }, cwd });
  });
}

it("hides its environment from the embedded server and its tasks", async () => {
  const program = await startProcess({ args: ["start", "--embedded"], env });
  const { url } = await program.line("ready");
  const children = await descendants(program.pid);
  assert.ok(children.length > 0);
  for (const pid of children) {
    for (const what of ["cmdline", "environ"] as const) {
      assert.doesNotMatch(await ofProcess(pid, what), new RegExp(secret));
    }
  }
  const embedded = await connectTo(String(url));
  // The program reads its input first. If it ended without that, the server could fail to write to it.
  const run = "COPY (SELECT 1) TO PROGRAM 'cat >/dev/null; env >&2; env'";
  await waitForState(embedded, await insertTask(embedded, run), "DONE");
  await embedded.query("CREATE TABLE environment (line text)");
  const copied = await insertTask(embedded, "COPY environment FROM PROGRAM 'env' WITH (DELIMITER E'\\x01')");
  await waitForState(embedded, copied, "DONE");
  const { rows } = await embedded.query<{ line: string }>("SELECT line FROM environment");
  assert.ok(rows.some(({ line }) => line.startsWith("PWD=")));
  assert.deepEqual(
    rows.filter(({ line }) => line.includes(secret)),
    [],
  );
  await embedded.end();
  await program.stop();
  assertSilent(program);
});

it("lets an ordinary user's task read nothing of the host", async () => {
  const program = await startProcess({ config, env, until: "ready" });
  const shop = await connectTo(server.url.replace(/postgres$/, "shop"));
  // The message depends on the server's version.
  const denied = /permission denied|must be superuser/;
  const refused: readonly [string, RegExp][] = [
    ["COPY environment FROM PROGRAM 'env'", denied],
    ["COPY environment FROM '/proc/self/environ'", denied],
    ["SELECT pg_read_file('/proc/self/environ')", denied],
    ["SELECT pg_read_binary_file('pg_hba.conf')", denied],
    ["SELECT pg_ls_dir('.')", denied],
    ["SELECT lo_import('/etc/passwd')", denied],
    ["SELECT rolpassword FROM pg_authid", denied],
    ["SELECT * FROM pg_hba_file_rules", denied],
    ["SET SESSION AUTHORIZATION supervisor", denied],
    ["SET ROLE supervisor", denied],
    ["ALTER SYSTEM SET archive_command = 'env'", denied],
  ];
  await shop.query("CREATE TABLE environment (line text); GRANT ALL ON environment TO keeper");
  for (const [input, error] of refused) {
    const id = await insertTask(shop, input, { group: input });
    assert.match((await waitForState(shop, id, "FAIL")).error ?? "", error, input);
  }
  const borrowed = await insertTask(shop, "SELECT 1", { remote: "application_name=test" });
  assert.match((await waitForState(shop, borrowed, "FAIL")).error ?? "", /password is required/);
  const visible = await insertTask(
    shop,
    `SELECT (SELECT string_agg(concat(name, '=', setting), ' ') FROM pg_settings),
       (SELECT string_agg(concat(s), ' ') FROM pg_stat_activity AS s WHERE pid <> pg_backend_pid()),
       (SELECT string_agg(concat(d), ' ') FROM pg_db_role_setting AS d)`,
  );
  const { output } = await waitForState(shop, visible, "DONE");
  assert.match(output ?? "", /search_path=/);
  assert.doesNotMatch(output ?? "", new RegExp(secret));
  await shop.end();
  await program.stop();
  assertSilent(program);
  await client.end();
});
