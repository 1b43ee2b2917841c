import assert from "node:assert/strict";
import { describe } from "node:test";
import { until } from "../../support/tasks.js";
import { cli, OnTerminal } from "../../support/cli.js";
import { test } from "../../support/limitedTest.js";
import { startProcess } from "../../support/process.js";
import { bin, projectText } from "../../support/project.js";
import { serve } from "../../support/serve.js";

const { database, client, tasks } = await serve({ "pg_task.sleep": 100 });
const env = { DATABASE_URL: database.url };

/** Runs a command whose output goes to a full device. Returns its exit code and what it writes to standard error. */
async function onFullDevice(...args: string[]): Promise<readonly [number | null, string]> {
  const command = ["/bin/sh", "-c", 'exec "$@" >/dev/full', "sh", process.execPath, bin, ...args] as const;
  const { exit, output } = await startProcess({ command, env });
  return [(await exit).code, output.stderr];
}

describe("a command whose output cannot be written", () => {
  const problem = "the output cannot be written: no space left on the device (ENOSPC)";

  test("reports it in one line", async () => {
    for (const command of ["list", "check", "--help"]) {
      assert.deepEqual(await onFullDevice(command), [1, `pg-task: ${problem}\n`], command);
    }
  });

  for (const more of [["--plan", "infinity"], ["--wait"]]) {
    test(`says that the task was added: ${more.join(" ")}`, async () => {
      const [code, stderr] = await onFullDevice("add", "SELECT 5", "--data", "unwritten", ...more);
      const { rows } = await client.query<{ id: string }>("DELETE FROM task WHERE data = 'unwritten' RETURNING id");
      assert.equal(stderr, `pg-task: task ${rows[0]?.id} was added, but ${problem}\n`);
      assert.equal(code, 14);
    });
  }
});

test("pg-task add leaves the task running when its wait is interrupted", async () => {
  const program = await startProcess({
    args: ["add", "--wait", "SELECT pg_sleep(60)", "--data", "interrupted", "-t", "task"],
    env,
  });
  const [{ id } = { id: "" }] = await until<{ id: string }>(
    client,
    "SELECT id::text AS id FROM task WHERE data = 'interrupted' AND state = 'WORK'",
  );
  program.child.kill("SIGINT");
  assert.deepEqual(await program.exit, { code: 130, signal: null });
  assert.equal(
    program.output.stderr,
    `pg-task: no longer waiting for task ${id}, which was not cancelled; pg-task stop --table task ${id} stops it\n`,
  );
  assert.equal((await tasks.row(id)).state, "WORK");
  assert.equal((await cli(["stop", id], { env })).code, 0);
  const row = await tasks.released(id);
  assert.equal(row.state, "STOP");
});

test("Ctrl-C at a question means no, and y means yes", async () => {
  const id = await tasks.add("SELECT 1", { group: "asked", state: "FAIL" });
  for (const [keys, code, state] of [
    ["\x03", 1, "FAIL"],
    ["y\r", 0, "DONE"],
  ] as const) {
    const program = new OnTerminal(["retry", "--state", "FAIL", "--group", "asked"], { env });
    await program.until("[y/N]");
    program.type(keys);
    assert.equal(await program.end(), code, program.shown);
    if (code === 0) await tasks.ended(id);
    assert.equal((await tasks.row(id)).state, state);
  }
});

/** Runs `pg-task --version` on a Node that says that it has this version. */
async function runOn(version: string): Promise<object> {
  const pretend = `Object.defineProperty(process, "versions", { value: { ...process.versions, node: "${version}" } })`;
  const preload = `data:text/javascript,${encodeURIComponent(pretend)}`;
  const { exit, output } = await startProcess({ command: [process.execPath, "--import", preload, bin, "--version"] });
  return { code: (await exit).code, ...output };
}

test("a Node that is too old is refused in one line", async () => {
  for (const version of ["14.21.3", "18.20.8", "20.18.3"]) {
    assert.deepEqual(await runOn(version), {
      code: 2,
      stdout: "",
      stderr: `pg-task: expected Node.js 20.19 or later, got ${version}\n`,
    });
  }
});

test("the oldest version that is accepted is the one in package.json", async () => {
  const { version, engines }: { version: string; engines: { node: string } } = JSON.parse(projectText("package.json"));
  assert.equal(engines.node, ">=20.19");
  for (const accepted of ["20.19.0", "22.0.0", "100.1.0"]) {
    assert.deepEqual(await runOn(accepted), { code: 0, stdout: `${version}\n`, stderr: "" });
  }
});
