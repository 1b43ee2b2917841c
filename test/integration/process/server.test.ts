import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { it } from "node:test";
import { freePort } from "../../../src/embedded/port.js";
import { connectTo } from "../../support/connectTo.js";
import { RestartableServer } from "../../support/restartableServer.js";
import type { LogLine } from "../../support/logLines.js";
import { PgTask } from "../../support/pgTask.js";
import { insertTask, waitForRun, waitForState } from "../../support/waitFor.js";

const program = new PgTask();
const server = await RestartableServer.create(await freePort());

/** Returns the log lines that repeat the message and reason of an earlier line of the same thread. */
function repetitions(lines: readonly LogLine[]): string[] {
  const seen = new Set<string>();
  return lines.flatMap(({ name, msg, ...rest }) => {
    const text = `${name}: ${msg} ${JSON.stringify(rest["reason"])}`;
    const repeated = seen.has(text);
    seen.add(text);
    return repeated ? [text] : [];
  });
}

async function runOne(input: string): Promise<void> {
  const client = await connectTo(server.url);
  await waitForState(client, await insertTask(client, input), "DONE");
  await client.end();
}

it("waits for an unreachable server, logs its address once, and continues when it is up", async () => {
  program.launch(undefined, { env: { DATABASE_URL: server.url } });
  const line = await program.line("control connection failed, retrying");
  assert.ok(Number.isInteger(line["pauseMs"]), JSON.stringify(line));
  assert.match(String(line["reason"]), new RegExp(`127\\.0\\.0\\.1, port ${server.port}\\b`));
  await server.start();
  await program.line("ready");
  const refused = program.lines.filter(({ reason }) => /ECONNREFUSED/.test(String(reason)));
  assert.equal(refused.length, 1);
  assert.deepEqual(repetitions(program.lines), []);
  await runOne("SELECT 1");
});

it("stops while it waits for a server", async () => {
  const port = await freePort();
  const waiting = new PgTask();
  waiting.launch(undefined, { env: { DATABASE_URL: `postgresql://postgres@127.0.0.1:${port}/postgres` } });
  await waiting.line("control connection failed, retrying");
  await waiting.stop();
});

for (const how of ["fast", "immediate", "killed"] as const) {
  it(`recovers from a server restart (${how}) and runs the interrupted task again`, async (context) => {
    const before = await connectTo(server.url);
    await before.query("SELECT pg_advisory_lock(1)");
    const id = await insertTask(before, "SELECT pg_advisory_lock_shared(1)");
    const { owner } = await waitForRun(before, id);
    const heard = program.lines.length;

    if (how === "fast") await server.stop();
    else await server.crash(how === "killed" ? "SIGKILL" : "SIGQUIT");
    await server.start();
    const since = performance.now();

    const client = await connectTo(server.url);
    const { owner: later, crash } = await waitForState(client, id, "DONE");
    context.diagnostic(`server restarted, ${how}: ${Math.round(performance.now() - since)} ms`);
    assert.notEqual(later, owner);
    assert.equal(crash, 0, "it is not the task's fault");
    await runOne("SELECT 2");
    await program.logged(({ msg }) => msg === "leadership regained", heard);
    await client.end();
    assert.deepEqual(repetitions(program.lines.slice(heard)), []);
    assert.equal(program.linesMatching("ready").length, 1);
  });
}

it("logs the server's error for a wrong password without showing it", async () => {
  await program.stop();
  const client = await connectTo(server.url);
  // Servers before PostgreSQL 14 store md5 passwords by default.
  await client.query("SET password_encryption = 'scram-sha-256'; ALTER ROLE postgres PASSWORD 'right-secret'");
  const file = join(server.dataDirectory, "pg_hba.conf");
  const trust = await readFile(file, "utf8");
  await writeFile(file, trust.replaceAll(/trust$/gm, "scram-sha-256"));
  await client.query("SELECT pg_reload_conf()");
  const withPassword = (password: string) => server.url.replace("@", `:${password}@`);
  const start = (password: string): PgTask => {
    const started = new PgTask();
    started.launch({ url: withPassword(password), "pg_conf.log": "trace" });
    return started;
  };

  const wrong = start("wrong-secret");
  const line = await wrong.line("control connection failed, retrying");
  assert.match(String(line["reason"]), /password authentication failed for user "postgres"/);
  assert.equal(line["code"], "CONNECTION_REJECTED");
  await wrong.stop();
  assert.doesNotMatch(JSON.stringify(wrong.lines), /secret/);

  const none = new PgTask();
  none.launch({ url: server.url });
  const asked = await none.line("control connection failed, retrying");
  assert.match(String(asked["reason"]), /none was given for .*: give one in the URL, in PGPASSWORD or/);
  await none.stop();

  const right = start("right-secret");
  assert.equal((await right.line("ready"))["url"], server.url);
  await waitForState(client, await insertTask(client, "SELECT 1"), "DONE");
  await client.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()");
  await right.line("leadership regained");
  await waitForState(client, await insertTask(client, "SELECT 1"), "DONE");
  await right.stop();
  assert.doesNotMatch(JSON.stringify(right.lines), /secret/);
  await client.end();
});
