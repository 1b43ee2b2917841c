import assert from "node:assert/strict";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe } from "node:test";
import { connectTo } from "../../support/connectTo.js";
import { cli, OnTerminal } from "../../support/cli.js";
import { test } from "../../support/limitedTest.js";
import { startProcess } from "../../support/process.js";
import { projectText } from "../../support/project.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";

/** Replaces what differs between two starts: addresses and the page's token. */
const anywhere = (text: string): string =>
  text
    .replaceAll(/127\.0\.0\.1:\d+/g, "ADDRESS")
    .replaceAll(/token=\S+/g, "token")
    .trim();

describe("pg-task start on a terminal", () => {
  test("ends with what to do next, each of it works, and commands find the server in its folder", async () => {
    const cwd = await temporaryFolder();
    const terminal = new OnTerminal(["start", "--embedded"], { cwd, env: { NO_COLOR: "1" }, columns: 200 });
    await terminal.until("Ctrl-C stops it.");
    const shown = terminal.shown.replaceAll("\r\n", "\n");
    const steps = shown.slice(shown.indexOf("pg-task runs."));
    assert.match(steps, /^pg-task runs\. To go on, in another terminal in this folder:\n/);
    const [, documented = ""] = /```text\n(pg-task runs[^]*?)```/.exec(projectText("README.md")) ?? [];
    assert.equal(anywhere(documented), anywhere(steps));
    const [, url = ""] = /^ {2}connect +psql (postgresql:\S+)$/m.exec(steps) ?? [];
    assert.match(steps, /^ {2}add a task +npx pg-task add "SELECT 42" --wait$/m);
    const [, page = "", token = ""] = /^ {2}page +(http:\S+)#token=(\S+)$/m.exec(steps) ?? [];
    const added = await cli(["add", "SELECT 42", "--wait"], { cwd });
    assert.deepEqual([added.code, added.stdout], [0, "42\n"]);
    const inside = await connectTo(url);
    const { rows } = await inside.query("SELECT input FROM task");
    await inside.end();
    assert.deepEqual(rows, [{ input: "SELECT 42" }]);
    const tables = await fetch(`${page}api/tables`, { headers: { Authorization: `Bearer ${token}` } });
    assert.equal(tables.status, 200);
    assert.equal((await fetch(`${page}api/tables`)).status, 401);
    assert.equal(new URL(page).hostname, "127.0.0.1");
    assert.ok(token.length >= 20, token);

    const bare = await cli(["check", "--json"], { cwd });
    const wrote = await cli(["init"], { cwd });
    assert.equal(wrote.code, 0, wrote.stderr);
    const checked = await cli(["check", "--json"], { cwd });
    for (const each of [bare, checked]) {
      const { control, entries, exitCode } = JSON.parse(each.stdout);
      assert.deepEqual([control.from, entries.length, exitCode], ["the embedded server", 1, 0]);
    }
    const second = await startProcess({ cwd, until: "standby" });
    await second.end();

    terminal.type("\x03");
    assert.equal(await terminal.end(), 0);
    await rm(join(cwd, "pg_task.json"));
    const { code, stderr } = await cli(["list"], { cwd });
    assert.equal(code, 2);
    assert.match(stderr, /no embedded server running in this folder/);
  });

  test("says how to reach a server that commands do not find, and how many tables wait", async () => {
    const cwd = await temporaryFolder();
    const file = join(cwd, "other.json");
    await writeFile(file, JSON.stringify({ "pg_task.json": [{ user: "postgres" }, { data: "nowhere" }] }));
    const args = ["start", "--embedded", "--data", "elsewhere", "--config", file];
    const terminal = new OnTerminal(args, { cwd, env: { NO_COLOR: "1" }, columns: 200 });
    await terminal.until("Ctrl-C stops it.");
    const shown = terminal.shown.replaceAll("\r\n", "\n");
    assert.match(shown, /^pg-task runs, but 1 of 2 tables wait\. To go on/m);
    const [, server = ""] =
      /add a task +DATABASE_URL=(\S+) npx pg-task add "SELECT 42" --wait --config/.exec(shown) ?? [];
    assert.match(shown, /problems +DATABASE_URL=\S+ npx pg-task doctor --config /);
    const options = { cwd, env: { DATABASE_URL: server } };
    const added = await cli(["add", "SELECT 42", "--wait", "--config", file], options);
    assert.deepEqual([added.code, added.stdout], [0, "42\n"]);
    terminal.type("\x03");
    assert.equal(await terminal.end(), 0);
  });
});

test("start warns when neither a server is configured nor an embedded server runs", async () => {
  const cwd = await temporaryFolder();
  await cli(["init"], { cwd });
  const program = await startProcess({ cwd, until: "no server configured, using libpq's default" });
  await program.end();
});
