import assert from "node:assert/strict";
import { access, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { it } from "node:test";
import { freePort } from "../../../src/embedded/port.js";
import { createDatabase } from "../../support/database.js";
import { connectTo } from "../../support/connectTo.js";
import { startProcess } from "../../support/process.js";
import { insertTask, waitForState, waitForRow } from "../../support/tasks.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";
import { replaceConfig } from "../../support/configFile.js";

const database = await createDatabase("empty");

it("starts with pg_task.json in its folder and logs ready once, with pid and URL", async () => {
  const program = await startProcess({ config: { url: database.url } });
  const ready = await program.line("ready");
  assert.equal(ready.pid, program.pid);
  assert.equal(ready["url"], database.url);
  const client = await database.connect();
  const id = await insertTask(client, "SELECT 1");
  await waitForState(client, id, "DONE");
  await program.stop();
  assert.equal(program.linesMatching("ready").length, 1);
  const written = program.output.stdout.trimEnd().split("\n");
  assert.equal(written.length, program.lines.length, "every line is JSON");
  assert.equal(program.output.stderr, "");
});

it("starts with the file given by --config, also a bare array", async () => {
  const folder = await temporaryFolder();
  const file = join(folder, "other.json");
  await writeFile(file, JSON.stringify([{ data: database.target.database, user: "postgres" }]));
  const program = await startProcess({
    args: ["start", "--config", file],
    env: { DATABASE_URL: database.url },
    until: "ready",
  });
  await program.stop();
});

it("with only DATABASE_URL, sends ready to its parent process and stops at its shutdown message", async () => {
  const program = await startProcess({ env: { DATABASE_URL: database.url }, forked: true });
  await program.message("ready");
  assert.equal(program.linesMatching("ready").length, 1);
  assert.equal((await program.line("ready"))["url"], database.url);
  program.child.send("shutdown");
  await program.stopped();
  assert.deepEqual(program.messages, ["ready"]);
});

it("starts an embedded server with --embedded, and reuses its data at the next start", async () => {
  const args = ["start", "--embedded"];
  const first = await startProcess({ args });
  const ready = await first.line("ready");
  await access(join(first.cwd, ".pg-task/data/PG_VERSION"));
  const client = await connectTo(String(ready["url"]));
  const id = await insertTask(client, "SELECT 'kept'");
  await waitForState(client, id, "DONE");
  await client.end();
  await first.stop();

  const second = await startProcess({ args, cwd: first.cwd });
  const again = await connectTo(String((await second.line("ready"))["url"]));
  assert.equal((await waitForState(again, id, "DONE")).output, "kept");
  await again.end();
  await second.stop();
});

it("starts the embedded server with the given data directory and port", async () => {
  const folder = await temporaryFolder();
  const port = await freePort();
  const data = join(folder, "there");
  const program = await startProcess({
    args: ["start", "--embedded", "--data", data, "--port", String(port)],
    // The option --embedded takes precedence over the environment.
    env: { DATABASE_URL: database.url },
  });
  const url = (await program.line("ready"))["url"];
  assert.equal(url, `postgresql://postgres@127.0.0.1:${port}/postgres`);
  const warned = await program.line("embedded server used instead of the one in the environment");
  assert.equal(warned["ignored"], "DATABASE_URL");
  await access(join(data, "PG_VERSION"));
  await program.stop();
});

it("exits with 0 when it is stopped while its embedded server starts", async () => {
  const program = await startProcess({ args: ["start", "--embedded"], until: /^creating the data folder/ });
  await program.stop();
  assert.equal(program.linesMatching("ready").length, 0);
});

const own = { data: "postgres" };
const reloaded = "configuration reloaded";

it("handles SIGHUP while its embedded server starts, and reloads afterwards", async () => {
  const program = await startProcess({
    args: ["start", "--embedded"],
    config: [own],
    until: /^creating the data folder/,
  });
  program.child.kill("SIGHUP");
  await program.line(reloaded);
  const ready = await program.line("ready");
  await replaceConfig(program, [own, { ...own, table: "second" }]);
  await program.line(reloaded, 2);
  const inside = await connectTo(String(ready["url"]));
  await waitForRow(inside, "SELECT FROM pg_class WHERE relname = 'second'");
  await inside.end();
  await replaceConfig(program, { url: String(ready["url"]), "pg_task.json": [own] });
  const rejected = "configuration not reloaded, keeping the old one";
  assert.equal((await program.line(rejected))["code"], "CONFIG_CONFLICT");
  await program.stop();
});
