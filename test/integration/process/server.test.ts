import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { it } from "node:test";
import { freePort } from "../../../src/embedded/port.js";
import { connectTo } from "../../support/connectTo.js";
import { OwnServer } from "../../support/ownServer.js";
import { startProcess, type LogLine, type TestProcess } from "../../support/process.js";
import { insertTask, waitForState } from "../../support/waitFor.js";

const server = await OwnServer.at(await freePort());

/** Lines that say the same as an earlier one of the same speaker, changing numbers aside. */
function repetitions(lines: readonly LogLine[]): string[] {
  const told = new Set<string>();
  return lines.flatMap(({ name, msg, ...rest }) => {
    const text = `${name}: ${msg} ${JSON.stringify(rest["reason"])}`;
    const repeated = told.has(text);
    told.add(text);
    return repeated ? [text] : [];
  });
}

async function runOne(input: string): Promise<void> {
  const client = await connectTo(server.url);
  await waitForState(client, await insertTask(client, input), "DONE");
  await client.end();
}

it("waits for a server that is not there, says where once, and goes on when it comes", async () => {
  const program = await startProcess({ env: { DATABASE_URL: server.url } });
  const line = await program.line("supervisor waits for the server");
  assert.match(String(line["reason"]), new RegExp(`127\\.0\\.0\\.1, port ${server.port}\\b`));
  await server.start();
  await program.line("ready");
  const refused = program.lines.filter(({ reason }) => /ECONNREFUSED/.test(String(reason)));
  assert.equal(refused.length, 1);
  assert.deepEqual(repetitions(program.lines), []);
  await runOne("SELECT 1");
  assert.equal((await program.end()).code, 0);
});

it("stops while it waits for a server", async () => {
  const port = await freePort();
  const program = await startProcess({
    env: { DATABASE_URL: `postgresql://postgres@127.0.0.1:${port}/postgres` },
  });
  await program.line("supervisor waits for the server");
  assert.deepEqual(await program.end(), { code: 0, signal: null });
});

for (const how of ["fast", "immediate"] as const) {
  it(`goes on by itself after a restart of the server (${how}), and runs again what ran`, async () => {
    const program = await startProcess({ env: { DATABASE_URL: server.url } });
    await program.line("ready");
    const before = await connectTo(server.url);
    await before.query("SELECT pg_advisory_lock(1)");
    const id = await insertTask(before, "SELECT pg_advisory_lock_shared(1)");
    const { owner } = await waitForState(before, id, "WORK");
    const heard = program.lines.length;

    await (how === "fast" ? server.stop() : server.crash());
    await server.start();

    const client = await connectTo(server.url);
    const { owner: later, crash } = await waitForState(client, id, "DONE");
    assert.notEqual(later, owner);
    assert.equal(crash, 0, "it is not the task's fault");
    await runOne("SELECT 2");
    await program.line("leads again");
    await client.end();
    assert.deepEqual(repetitions(program.lines.slice(heard)), []);
    assert.equal(program.said("ready").length, 1);
    assert.equal((await program.end()).code, 0);
  });
}

it("says in the server's words that a password is wrong, and never shows one", async () => {
  const client = await connectTo(server.url);
  // Servers before 14 keep them as md5 otherwise.
  await client.query(
    "SET password_encryption = 'scram-sha-256'; ALTER ROLE postgres PASSWORD 'right-secret'",
  );
  const file = join(server.dataDirectory, "pg_hba.conf");
  const trust = await readFile(file, "utf8");
  await writeFile(file, trust.replaceAll(/trust$/gm, "scram-sha-256"));
  await client.query("SELECT pg_reload_conf()");
  const withPassword = (password: string) => server.url.replace("@", `:${password}@`);
  const start = (password: string): Promise<TestProcess> =>
    startProcess({ config: { url: withPassword(password), "pg_conf.log": "trace" } });

  const wrong = await start("wrong-secret");
  const line = await wrong.line("supervisor waits for the server");
  assert.match(String(line["reason"]), /password authentication failed for user "postgres"/);
  assert.equal(line["code"], "CONNECTION_REJECTED");
  assert.equal((await wrong.end()).code, 0);
  assert.doesNotMatch(wrong.output.stdout + wrong.output.stderr, /secret/);

  const none = await startProcess({ config: { url: server.url } });
  const asked = await none.line("supervisor waits for the server");
  assert.match(String(asked["reason"]), /asks for a password, and none was given/);
  assert.equal((await none.end()).code, 0);

  const right = await start("right-secret");
  assert.equal((await right.line("ready"))["url"], server.url);
  await waitForState(client, await insertTask(client, "SELECT 1"), "DONE");
  await client.query(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()",
  );
  await right.line("leads again");
  await waitForState(client, await insertTask(client, "SELECT 1"), "DONE");
  assert.equal((await right.end()).code, 0);
  assert.doesNotMatch(right.output.stdout + right.output.stderr, /secret/);
  await client.end();
});
