import assert from "node:assert/strict";
import { describe } from "node:test";
import { cli, cliOnTerminal, commandsOn, envOf } from "../../support/cli.js";
import { test } from "../../support/limitedTest.js";
import { createRole } from "../../support/taskTables.js";
import { serve } from "../../support/serve.js";
import { eventually } from "../../support/tasks.js";

const { database, client, tasks } = await serve({ "pg_task.sleep": 100 });
const { env, run } = commandsOn(database);

const idOf = ({ stdout }: { readonly stdout: string }): string => stdout.trim();

/** Returns the codes of the reasons that `why` reports. */
async function reasons(id: string): Promise<string[]> {
  const { stdout } = await run("why", id, "--json");
  return JSON.parse(stdout).reasons.map(({ code }: { code: string }) => code);
}

/** Returns the text of the reason that a chain runs alone. */
async function turnText(id: string): Promise<string | undefined> {
  const { stdout } = await run("why", id);
  return /^turn\t([^\t]+)/m.exec(stdout)?.[1];
}

describe("pg-task why", () => {
  test("has the aliases explain-plan and explain", async () => {
    const id = idOf(await run("add", "SELECT 1", "--plan", "infinity"));
    const { stdout } = await run("why", id);
    for (const name of ["explain-plan", "explain"])
      assert.deepEqual(await run(name, id), { code: 0, stdout, stderr: "" });
  });

  test("reports that a task is not due, never due, or has ended", async () => {
    const [later = "", never = "", done = ""] = await tasks.insert(
      { input: "", plan: "2999-01-01" },
      { input: "", plan: "infinity" },
      { input: "", state: "STOP" },
    );
    assert.deepEqual(
      [await reasons(later), await reasons(never), await reasons(done)],
      [["not-due"], ["never-due"], ["ended"]],
    );
  });

  test("shows local times on a terminal, and ISO 8601 elsewhere", async () => {
    const [id = ""] = await tasks.insert({ input: "", plan: "2999-01-01 00:00:00.5+00" });
    const shown = await cliOnTerminal(["why", id], { env: { ...env, TZ: "Asia/Tokyo" } });
    assert.match(shown.shown, /^it is planned for 2999-01-01 09:00:00\.500 \+09:00\n/);
    assert.match((await run("why", id)).stdout, /planned for 2999-01-01T00:00:00\.5\+00:00\t/);
  });

  test("takes a key instead of an id", async () => {
    const ended = { input: "", key: "explained", state: "DONE" };
    const [, newest = ""] = await tasks.insert(ended, ended);
    const explained = async (): Promise<string> =>
      JSON.parse((await run("why", "--key", "explained", "--json")).stdout).id;
    assert.equal(await explained(), newest);
    const [waiting = ""] = await tasks.insert({ input: "", key: "explained", plan: "infinity" });
    await tasks.insert(ended);
    assert.equal(await explained(), waiting);
    const missing = await run("why", "--key", "nobody's");
    assert.deepEqual(missing, { code: 1, stdout: "", stderr: `pg-task: no task with the key "nobody's"\n` });
    for (const [args, message] of [
      [[], "expected an id or --key"],
      [[waiting, "--key", "explained"], "expected an id or --key, got both"],
    ] as const) {
      assert.deepEqual(await run("why", ...args), { code: 2, stdout: "", stderr: `pg-task: ${message}\n` });
    }
  });

  test("names the running tasks of the group and those that are due earlier", async () => {
    const [first = "", second = "", third = ""] = await tasks.insert(
      { input: "SELECT pg_sleep(60)", group: "one" },
      { input: "SELECT 2", group: "one" },
      { input: "SELECT 3", group: "one" },
    );
    await tasks.sleeping(first);
    assert.deepEqual(await reasons(first), ["running"]);
    assert.deepEqual(await reasons(third), ["group-limit", "behind-others"]);
    const { code, stdout } = await run("why", second);
    assert.equal(code, 0);
    assert.match(
      stdout,
      new RegExp(`^group-limit\\tits group "one" runs 1 \\(${first}\\), and its max allows 0 besides it\\t`),
    );
    await run("stop", first);
    await tasks.ended(second, third);
    assert.deepEqual(await reasons(second), ["ended"]);
  });

  test("says for which lock a running task waits, and who blocks it", async () => {
    await client.query("CREATE TABLE account (id integer PRIMARY KEY); INSERT INTO account VALUES (1)");
    const holder = await database.connect();
    await holder.query("SET application_name = 'nightly batch'");
    await holder.query("BEGIN");
    await holder.query("UPDATE account SET id = 1");
    const { rows } = await holder.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
    const [id = ""] = await tasks.insert({ input: "UPDATE account SET id = 1", group: "waits for a row" });
    const waits = async (): Promise<string> => {
      for (;;) {
        const { stdout } = await run("why", id);
        if (stdout.startsWith("waits-for-lock\t")) return stdout;
        assert.match(stdout, /^(?:due|queued|running|no-session)\t/);
      }
    };
    const blocker = `blocked by server process ${rows[0]?.pid} \\(nightly batch, user postgres, `;
    assert.match(
      await waits(),
      new RegExp(
        `^waits-for-lock\\tit has been running since .* waits for a row of public.account, ${blocker}idle in transaction since .*pg_terminate_backend\\(${rows[0]?.pid}\\)`,
      ),
    );
    // A role that must not see what other roles do.
    const reader = await createRole(client, `${database.target.database}_why`);
    await client.query(`GRANT SELECT, UPDATE ON task TO ${reader}; GRANT SELECT ON task_pause, task_turn TO ${reader}`);
    const { stdout } = await cli(["why", id], { env: envOf(database, reader) });
    assert.match(
      stdout,
      new RegExp(`waits for a row of public.account, ${blocker}only members of pg_read_all_stats see`),
    );
    await holder.query("ROLLBACK");
    await holder.query("BEGIN");
    await tasks.ended(id);
    await holder.query("LOCK TABLE account");
    const [later = ""] = await tasks.insert({ input: "UPDATE account SET id = 1", group: "waits for a table" });
    for (;;) {
      const { stdout: now } = await run("why", later);
      if (now.includes(", and waits for the table public.account (RowExclusiveLock), blocked by")) break;
      assert.match(now, /^(?:due|queued|running|no-session)\t/);
    }
    await holder.query("ROLLBACK");
    await tasks.ended(later);
    assert.deepEqual(await reasons(later), ["ended"]);
  });

  test("says from when on a task can start that waits for its gap", async () => {
    const [first = ""] = await tasks.insert({ input: "SELECT 1", group: "gapped", gap: "1 us" });
    await tasks.ended(first);
    const id = idOf(await run("add", "SELECT 1", "--group", "gapped", "--gap", "1 hour"));
    const behind = idOf(await run("add", "SELECT 1", "--group", "gapped"));
    assert.deepEqual([await reasons(id), await reasons(behind)], [["gap"], ["behind-others"]]);
    const { stdout } = await run("why", id);
    const { rows } = await tasks.client.query<{ start: string }>(
      `SELECT to_char(start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS') AS start FROM task WHERE id = $1`,
      [first],
    );
    assert.match(
      stdout,
      new RegExp(
        `^gap\\tits gap is 1 h, and a task of its group may have started at ${rows[0]?.start}.*: it waits for at least (?:59 min|1 h).* more\\t`,
      ),
    );
    const groups = await run("groups", "--json");
    const found = JSON.parse(groups.stdout).groups.find(({ group }: { group: string }) => group === "gapped");
    assert.equal(found.gapMs, 3_600_000);
    await run("delete", id, behind);
  });

  test("reports a pause with its start and reason", async () => {
    await run("pause", "-g", "halted", "--reason", "because");
    const [id = ""] = await tasks.insert({ input: "SELECT 1", group: "halted" });
    assert.deepEqual(await reasons(id), ["group-paused"]);
    const { stdout } = await run("why", id);
    assert.match(stdout, /its group "halted" has been paused since [-\dT:.+]+: because/);
    await run("resume", "-g", "halted");
    await tasks.ended(id);
  });

  test("says for what a chain that runs alone waits, and what waits for it", async () => {
    const { id: held, open } = await tasks.held({ group: "solo" });
    const gate = await tasks.gate();
    const [first = ""] = await tasks.insert({ input: gate.wait, group: "solo", max: 9, alone: "group", delete: false });
    await eventually(client, "SELECT FROM task_turn");
    const [second = ""] = await tasks.insert({ input: "SELECT 1", group: "solo", max: 9, alone: "group" });
    const [other = ""] = await tasks.insert({ input: "SELECT 1", group: "solo", max: 9 });
    const [whole = ""] = await tasks.insert({ input: "SELECT 1", group: "all", alone: "table" });
    const chain = `it waits for the chain of task ${first}, which`;
    const runs = `${chain} runs alone in group "solo"`;
    assert.equal(await turnText(first), `it is to run alone in its group: it waits until these have ended: ${held}`);
    assert.equal(
      await turnText(other),
      `${chain} is to run alone in group "solo" as soon as these have ended: ${held}`,
    );
    await open();
    await tasks.running(first);
    assert.equal(await turnText(other), runs);
    assert.equal(await turnText(second), `it is to run alone in its group: ${runs}`);
    assert.equal(await turnText(whole), `it is to run alone in the table: ${runs}`);
    await gate.open();
    await tasks.ended(first, second, other, whole);
  });

  test("names the server process that locks the row", async () => {
    const other = await database.connect();
    const { rows } = await other.query("SELECT pg_backend_pid() AS pid");
    await run("pause", "-g", "locked");
    const [id = ""] = await tasks.insert({ input: "SELECT 1", group: "locked" });
    await other.query("BEGIN");
    await other.query("UPDATE task SET data = 'mine' WHERE id = $1", [id]);
    assert.deepEqual(await reasons(id), ["group-paused", "row-locked"]);
    const { stdout } = await run("why", id);
    assert.match(stdout, new RegExp(`its row is locked by the open transaction of server process ${rows[0].pid} `));
    await other.query("ROLLBACK");
    await run("resume", "-g", "locked");
    await tasks.ended(id);
  });

  test("reports an unknown id", async () => {
    assert.deepEqual(await run("why", "404404"), {
      code: 1,
      stdout: "",
      stderr: "pg-task: no task 404404\n",
    });
  });
});
