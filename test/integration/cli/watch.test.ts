import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { describe } from "node:test";
import { cli, failsWith, OnTerminal } from "../../support/cli.js";
import { test } from "../../support/limitedTest.js";
import { bin } from "../../support/project.js";
import { serve } from "../../support/serve.js";

const { database, tasks } = await serve({ "pg_task.sleep": 100 });
const env = { DATABASE_URL: database.url };

const enter = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const leave = "\x1b[?7h\x1b[?25h\x1b[?1049l";

// Keys, signals and sizes of the terminal: test/integration/process/watch.test.ts.
describe("pg-task watch", () => {
  test("shows the table live and restores the terminal", async () => {
    const program = new OnTerminal(["watch"], { env: { ...env, NO_COLOR: "1" } });
    await program.until("q quits");
    const [id = ""] = await tasks.insert({ input: "SELECT 'seen by watch'", group: "watched" });
    await program.until(new RegExp(`${id} {2}DONE {3}watched`));
    program.type("q");
    assert.equal(await program.end(), 0);
    assert.ok(program.shown.startsWith(enter), "the alternate screen is not opened first");
    assert.ok(program.shown.endsWith(leave), "the main screen is not restored");
  });

  test("with --json prints one line per refresh until it is interrupted", async () => {
    const child = spawn(process.execPath, [bin, "watch", "--json"], {
      env: { PATH: process.env["PATH"], ...env },
      stdio: ["ignore", "pipe", "inherit"],
    });
    const closed = once(child, "close");
    const lines = createInterface({ input: child.stdout });
    let id: string | null = null;
    const seen: (string | undefined)[] = [];
    for await (const line of lines) {
      const snapshot = JSON.parse(line);
      assert.equal(snapshot.table, "task");
      assert.ok(snapshot.backlog.due.exact);
      assert.ok(Array.isArray(snapshot.groups.groups));
      const task = snapshot.tasks.find((each: { id: string }) => each.id === id);
      if (task !== undefined) seen.push(task.state);
      if (task?.state === "DONE") child.kill("SIGINT");
      id ??= (await tasks.insert({ input: "SELECT 'seen by a program'" }))[0] ?? "";
    }
    await closed;
    assert.equal(child.exitCode, 0);
    assert.equal(seen.at(-1), "DONE");
  });
  test("requires a terminal without --json", async () => {
    await failsWith(cli(["watch"], { env }), 2, /watch needs a terminal: in scripts use pg-task watch --json/);
  });
});
