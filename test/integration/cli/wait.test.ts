import assert from "node:assert/strict";
import { describe } from "node:test";
import { cliOnTerminal, commandsOn, failsWith, type CliResult } from "../../support/cli.js";
import { test } from "../../support/limitedTest.js";
import { eventually } from "../../support/tasks.js";
import { serve } from "../../support/serve.js";

const { database, client } = await serve({ "pg_task.sleep": 100 });
const { env, run } = commandsOn(database);

const add = async (...args: readonly string[]): Promise<string> => (await run("add", ...args)).stdout.trim();

describe("pg-task wait", () => {
  test("waits for the end, prints the output, and exits with a code for the state", async () => {
    const done = await add("SELECT 1 AS a, 'ü' AS b", "--in", "500 ms");
    assert.deepEqual(await run("wait", done), { code: 0, stdout: "a\tb\n1\tü\n", stderr: "" });
    const fail = await add("SELECT 'before'; SELECT 1/0", "--key", "failing");
    for (const which of [[fail], ["--key", "failing"]]) {
      assert.deepEqual(await run("wait", ...which), {
        code: 10,
        stdout: "before\n",
        stderr: "ERROR:  division by zero\nSTATEMENT:  SELECT 'before'; SELECT 1/0\n",
      });
    }
    const gone = await run("wait", await add("SELECT 1", "--plan", "2000-01-01"));
    assert.deepEqual([gone.code, gone.stderr], [11, "ERROR:  task not active\n"]);
    assert.equal((await run("wait", await add("SELECT 1", "--set", "state=STOP"))).code, 12);
  });

  test("prints the result as JSON", async () => {
    const id = await add("SELECT 5");
    const { code, stdout } = await run("wait", id, "--json");
    assert.deepEqual([code, JSON.parse(stdout)], [0, { id, state: "DONE", output: "5", error: null }]);
  });

  test("exits with 13 when the row is deleted meanwhile, and with 1 when there is no task", async () => {
    const id = await add("SELECT pg_sleep(3600)");
    const deletes: Promise<CliResult>[] = [];
    const { code, shown } = await cliOnTerminal(["wait", id], {
      env,
      onOutput: (text) => {
        if (text.includes("not ended after") && deletes.length === 0) deletes.push(run("delete", id, "--running"));
      },
    });
    await Promise.all(deletes);
    assert.equal(code, 13, shown);
    await failsWith(run("wait", id), 1, new RegExp(`^pg-task: no task ${id}\n$`));
    await failsWith(run("wait", "--key", "nobody"), 1, /^pg-task: no task with the key "nobody"\n$/);
    await failsWith(run("wait"), 2, /expected an id or --key/);
  });

  test("says that the result cannot be read, and does not claim that a task was added", async () => {
    const id = await add("SELECT pg_sleep(3600)");
    const ended = run("wait", id);
    await eventually(
      client,
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
       WHERE application_name = 'pg-task wait' AND datname = current_database() AND query LIKE '%AS claimed%'`,
    );
    await failsWith(ended, 3, /^pg-task: (?!.*was added)/);
    await run("stop", id);
  });

  test("shows its exit codes in the help, and so does add", async () => {
    const codes = "exit codes 0 (DONE), 10 (FAIL), 11 (GONE), 12 (STOP), 13 (the row was deleted)";
    assert.ok((await run("wait", "--help")).stdout.includes(`\n${codes}\n`));
    assert.ok((await run("add", "--help")).stdout.includes(`\nWith --wait: ${codes}\n`));
  });
});
