import assert from "node:assert/strict";
import { describe } from "node:test";
import { createDatabase } from "../../support/database.js";
import { cli, cliOnTerminal, envOf, failsWith, commandsOn } from "../../support/cli.js";
import { test } from "../../support/limitedTest.js";
import { createRole } from "../../support/taskTables.js";

const database = await createDatabase();
const client = await database.connect();
const { env, run, onTerminal } = commandsOn(database);
const huge = "9223372036854775806";

/** Returns the id of each printed result, and what happened to it. */
const outcomes = (stdout: string): string[] =>
  stdout
    .trimEnd()
    .split("\n")
    .map((line) => line.split("\t").slice(0, 2).join(" "));

/** Inserts a task with these columns and returns its id. */
async function insert(columns: Readonly<Record<string, unknown>> = {}): Promise<string> {
  const all = { input: "SELECT 1", ...columns };
  const names = Object.keys(all).map((name) => `"${name}"`);
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (${names.join()}) VALUES (${names.map((_, index) => `$${index + 1}`).join()}) RETURNING id::text AS id`,
    Object.values(all),
  );
  return rows[0]?.id ?? "";
}

async function row(id: string): Promise<Record<string, unknown>> {
  const { rows } = await client.query(
    `SELECT state::text AS state, crash, attempt, errors, due, output, error, start, stop, take, pid, ready, repeat::text AS repeat,
       plan BETWEEN now() - interval '1 hour' AND now() AS now FROM task WHERE id = $1`,
    [id],
  );
  return rows[0];
}

/** The exit code of a command, and what it says has happened to each task. */
async function results(...args: readonly string[]): Promise<[number | null, string[]]> {
  const { code, stdout } = await run(...args);
  return [code, outcomes(stdout)];
}

async function states(...ids: string[]): Promise<unknown[]> {
  const found: unknown[] = [];
  for (const id of ids) found.push((await row(id))["state"]);
  return found;
}

const past = { plan: "2024-01-01", start: "2024-01-01", stop: "2024-01-01" };

describe("pg-task stop", () => {
  test("stops waiting and running tasks, and reports the outcome of each id", async () => {
    const waiting = await insert();
    const running = await insert({ state: "WORK", owner: "1 x" });
    const done = await insert({ state: "DONE" });
    const { code, stdout } = await run("stop", waiting, running, `${done},404`, waiting);
    assert.equal(code, 1);
    assert.deepEqual(outcomes(stdout), [`${waiting} changed`, `${running} changed`, `${done} refused`, "404 missing"]);
    assert.match(stdout, /cancelling; ends as DONE if already committed/);
    assert.match(stdout, /already DONE/);
    assert.deepEqual(await states(waiting, running, done), ["STOP", "STOP", "DONE"]);
    assert.equal((await row(waiting))["ready"], null);
  });

  test("says of a task that waits for its next try that it has run", async () => {
    const id = await insert({ attempt: 2, retry: 3, plan: "2999-01-01" });
    const { code, stdout } = await run("stop", id);
    assert.deepEqual([code, stdout], [0, `${id}\tchanged\tstopped before its retry 2\n`]);
  });

  test("exits with 0 when everything was done, and accepts ids beyond safe integers", async () => {
    await insert({ id: huge });
    const { code, stdout } = await run("stop", huge, "--json");
    assert.equal(code, 0);
    const { changed, tasks } = JSON.parse(stdout);
    assert.equal(changed, 1);
    assert.equal(tasks[0].id, huge);
    assert.equal((await row(huge))["state"], "STOP");
  });

  test("skips a row that another transaction has locked, and reports it", async () => {
    const locked = await insert();
    const free = await insert();
    const other = await database.connect();
    await other.query("BEGIN; UPDATE task SET data = 'mine' WHERE id = " + locked);
    const { code, stdout } = await run("stop", locked, free);
    await other.query("ROLLBACK");
    assert.deepEqual([code, outcomes(stdout)], [1, [`${locked} locked`, `${free} changed`]]);
    assert.equal((await row(locked))["state"], "PLAN");
  });

  for (const args of [[], ["abc"], ["1.5"], ["--all"]]) {
    test(`refuses the arguments [${args.join(" ")}]`, async () => {
      await failsWith(run("stop", ...args), 2, /^pg-task: /);
    });
  }
});

describe("pg-task retry", () => {
  for (const state of ["DONE", "FAIL", "GONE", "STOP"]) {
    test(`runs a task in ${state} again in its own row, as if it were new`, async () => {
      const id = await insert({
        ...past,
        take: "2024-01-01",
        state,
        crash: 2,
        attempt: 3,
        errors: "[]",
        due: "2023-12-31",
        output: "o",
        error: "e",
        pid: 7,
      });
      assert.deepEqual(await results("retry", id), [0, [`${id} changed`]]);
      assert.deepEqual(await row(id), {
        state: "PLAN",
        crash: 0,
        attempt: 0,
        errors: null,
        due: null,
        output: null,
        error: null,
        start: null,
        stop: null,
        take: null,
        pid: null,
        ready: true,
        repeat: "00:00:00",
        now: true,
      });
    });
  }

  test("refuses waiting, running and just ending tasks", async () => {
    const waiting = await insert();
    const running = await insert({ state: "WORK", owner: "1 x" });
    const ending = await insert({ state: "STOP", owner: "1 x" });
    const { code, stdout } = await run("retry", waiting, running, ending);
    assert.equal(code, 1);
    assert.deepEqual(
      outcomes(stdout),
      [waiting, running, ending].map((id) => `${id} refused`),
    );
    assert.match(stdout, /already waiting[\s\S]*running[\s\S]*its run is just ending/);
  });

  test("starts no second series from a task that has a successor", async () => {
    const repeated = await insert({ ...past, state: "FAIL", repeat: "1 day" });
    await insert({ parent: repeated, repeat: "1 day", plan: "2999-01-01" });
    const last = await insert({ ...past, state: "STOP", repeat: "1 day" });
    const { code, stdout } = await run("retry", repeated, last);
    assert.equal(code, 0);
    assert.match(stdout, new RegExp(`^${repeated}\\tchanged\\t.*its successor exists`, "m"));
    assert.equal((await row(repeated))["repeat"], "00:00:00");
    assert.equal((await row(last))["repeat"], "1 day");
  });

  test("makes all tries again, and leaves the schedule in its place", async () => {
    const id = await insert({
      ...past,
      state: "FAIL",
      repeat: "1 day",
      retry: 3,
      attempt: 3,
      due: "2023-12-31 00:00Z",
    });
    assert.equal((await run("retry", id)).code, 0);
    const { attempt, due } = await row(id);
    assert.deepEqual([attempt, due], [0, new Date("2023-12-31T00:00:00Z")]);
  });

  test("retries all tasks of a state and group", async () => {
    const mine = [await insert({ state: "GONE", group: "mine" }), await insert({ state: "GONE", group: "mine" })];
    const other = await insert({ state: "GONE", group: "other" });
    assert.deepEqual(await results("retry", "--state", "GONE", "--group", "mine", "--yes"), [
      0,
      mine.map((id) => `${id} changed`),
    ]);
    assert.equal((await row(other))["state"], "GONE");
  });

  test("says once that tasks of a filter have keys that are taken, and how many", async () => {
    const done = [];
    for (let n = 0; n < 3; n += 1) done.push(await insert({ state: "GONE", group: "taken", key: "taken" }));
    const free = await insert({ state: "GONE", group: "taken" });
    const next = await insert({ plan: "infinity", group: "taken", key: "taken" });
    const args = ["retry", "--state", "GONE", "--group", "taken", "--yes"];
    const json = JSON.parse((await run(...args, "--json", "--text", "SELECT")).stdout);
    assert.equal(json.tasks.length, 4);
    await client.query("UPDATE task SET state = 'GONE' WHERE id = $1", [free]);
    const { code, stdout, stderr } = await run(...args);
    const summary = `3 tasks refused: another task with the same key waits: pg-task run-now ${next} runs the waiting task with the same key\n`;
    assert.deepEqual([code, outcomes(stdout), stderr], [1, [`${free} changed`], `pg-task: ${summary}`]);
    await client.query("UPDATE task SET state = 'GONE' WHERE id = $1", [free]);
    const { shown } = await cliOnTerminal(args, { env: { ...env, NO_COLOR: "1" } });
    assert.ok(shown.includes(`\n${summary}`), shown);
    assert.ok(!shown.includes(`${done[0]}  `), shown);
    await client.query(`DELETE FROM task WHERE "group" = 'taken'`);
  });

  test("retries more tasks than one batch holds", async () => {
    await client.query(
      `INSERT INTO task (input, "group", state) SELECT '', 'many', 'FAIL' FROM generate_series(1, 1201)`,
    );
    const { code, stdout } = await run("retry", "--state", "FAIL", "-g", "many", "--json", "--yes");
    assert.deepEqual([code, JSON.parse(stdout).changed], [0, 1201]);
  });

  test("asks on a terminal, and changes nothing unless confirmed", async () => {
    const id = await insert({ state: "FAIL", group: "asked" });
    const args = ["retry", "--state", "FAIL", "--group", "asked"];
    for (const typed of ["n\n", "\n", "\x03", "\x04"]) {
      const { code, shown } = await cliOnTerminal(args, { env, typed });
      assert.equal(code, 1, shown);
      assert.match(shown, /Retry 1 task of "public"\."task" in \w+\? \[y\/N\] /);
      assert.equal((await row(id))["state"], "FAIL");
    }
    const { code, shown } = await cliOnTerminal(args, { env, typed: "y\n" });
    assert.equal(code, 0, shown);
    assert.equal((await row(id))["state"], "PLAN");
  });

  test("changes nothing without a terminal, unless --yes is given", async () => {
    const id = await insert({ state: "FAIL", group: "unattended" });
    const args = ["retry", "--state", "FAIL", "--group", "unattended"];
    await failsWith(
      run(...args),
      2,
      /^pg-task: Retry 1 task of "public"\."task" in \w+\? Without a terminal, give --yes\n$/,
    );
    assert.equal((await row(id))["state"], "FAIL");
    assert.equal((await run(...args, "--yes")).code, 0);
    assert.equal((await row(id))["state"], "PLAN");
  });

  test("runs those of the ids again that are in one of the given states, without asking", async () => {
    const failed = await insert({ ...past, state: "FAIL" });
    const done = await insert({ ...past, state: "DONE" });
    const gone = await insert({ ...past, state: "GONE" });
    const waiting = await insert({ plan: "2999-01-01" });
    const ids = [failed, done, gone, waiting];
    const { code, stdout } = await run("retry", `${failed},${done}`, gone, waiting, "-s", "FAIL,GONE");
    assert.equal(code, 1);
    assert.equal(
      stdout,
      [
        `${failed}\tchanged\twas FAIL, runs again now\n`,
        `${done}\trefused\tis DONE, which is none of the given states\n`,
        `${gone}\tchanged\twas GONE, runs again now\n`,
        `${waiting}\trefused\talready waiting (PLAN)\n`,
      ].join(""),
    );
    assert.deepEqual(await states(...ids), ["PLAN", "DONE", "PLAN", "PLAN"]);
  });

  test("does not ask with --yes", async () => {
    const id = await insert({ state: "FAIL", group: "unasked" });
    const { code } = await onTerminal("retry", "-s", "FAIL", "-g", "unasked", "--yes");
    assert.deepEqual([code, (await row(id))["state"]], [0, "PLAN"]);
  });

  for (const [args, said] of [
    [[], /expected ids, --state \(such as --state FAIL\) or --key/],
    [["--group", "g"], /expected ids, --state .* or --key/],
    [["1", "--group", "g"], /expected ids or a filter, got both: only --state can be combined with ids/],
    [["1", "--key", "k", "--state", "FAIL"], /expected ids or a filter, got both/],
    [["--state", "PLAN"], /^pg-task: --state: expected states from DONE, FAIL, GONE, STOP, got "PLAN"\n$/],
    [["3,3,x"], /^pg-task: expected a task id, got "x"\n$/],
  ] as const) {
    test(`refuses the arguments [${args.join(" ")}]`, async () => {
      await failsWith(run("retry", ...args), 2, said);
    });
  }
});

describe("pg-task run-now", () => {
  test("plans waiting tasks for now, and refuses others", async () => {
    const later = await insert({ plan: "2999-01-01" });
    const never = await insert({ plan: "infinity" });
    const done = await insert({ ...past, state: "DONE" });
    const { code, stdout } = await run("run-now", later, never, done);
    assert.deepEqual([code, outcomes(stdout)], [1, [`${later} changed`, `${never} changed`, `${done} refused`]]);
    assert.match(stdout, new RegExp(`pg-task retry ${done} runs it again`));
    for (const id of [later, never]) {
      const { now, ready } = await row(id);
      assert.deepEqual([now, ready], [true, true]);
    }
  });
});

describe("pg-task delete", () => {
  test("deletes waiting and finished tasks, running ones only with --running", async () => {
    const waiting = await insert();
    const done = await insert({ state: "DONE" });
    const running = await insert({ state: "WORK", owner: "1 x" });
    assert.deepEqual(await results("delete", waiting, done, running), [
      1,
      [`${waiting} changed`, `${done} changed`, `${running} refused`],
    ]);
    assert.deepEqual(await results("delete", running, "--running"), [0, [`${running} changed`]]);
    const { rowCount } = await client.query("SELECT FROM task WHERE id = ANY ($1)", [[waiting, done, running]]);
    assert.equal(rowCount, 0);
  });

  test("deletes the other tasks when the server refuses one", async () => {
    const needed = await insert({ state: "DONE" });
    const free = await insert({ state: "DONE" });
    await client.query(`CREATE TABLE needs (id bigint REFERENCES task); INSERT INTO needs VALUES (${needed})`);
    const { code, stdout } = await run("delete", needed, free);
    await client.query("DROP TABLE needs");
    assert.deepEqual([code, outcomes(stdout)], [1, [`${needed} failed`, `${free} changed`]]);
    assert.match(stdout, /the server refused: .*foreign key/);
  });

  test("exits with 4 when privileges are missing", async () => {
    const id = await insert({ state: "DONE" });
    const role = await createRole(client, `changing_${database.target.database}`);
    await client.query(`GRANT SELECT ON task TO ${role}`);
    const { code, stdout } = await cli(["delete", id, huge], { env: envOf(database, role) });
    assert.equal(code, 4);
    assert.match(stdout, /permission denied for table task/);
    assert.equal((await row(id))["state"], "DONE");
  });
});

describe("--key", () => {
  const later = { plan: "2999-01-01" };

  test("stop takes the task that waits and the one that runs", async () => {
    const key = "stop 1";
    const done = await insert({ ...past, state: "DONE", key });
    const running = await insert({ state: "WORK", owner: "1 x", key });
    const waiting = await insert({ ...later, key });
    const other = await insert({ key: "stop 10" });
    const { code, stdout } = await run("stop", "--key", key);
    assert.equal(code, 0);
    assert.deepEqual(outcomes(stdout), [`${running} changed`, `${waiting} changed`]);
    assert.deepEqual(await states(done, other), ["DONE", "PLAN"]);
  });

  test("run-now takes the task that waits, and says so if it runs", async () => {
    const key = "now 1";
    const running = await insert({ state: "WORK", owner: "1 x", key });
    const waiting = await insert({ ...later, key });
    assert.deepEqual(await results("run-now", "--key", key), [0, [`${waiting} changed`]]);
    assert.equal((await row(waiting))["now"], true);
    await client.query("DELETE FROM task WHERE id = $1", [waiting]);
    const second = await run("run-now", "--key", key);
    assert.deepEqual([second.code, second.stdout], [1, `${running}\trefused\trunning (WORK)\n`]);
  });

  test("retry takes the newest task that has failed, or that is in one of the given states", async () => {
    const key = "retry 1";
    const older = await insert({ ...past, state: "FAIL", key });
    const failed = await insert({ ...past, state: "FAIL", key });
    const done = await insert({ ...past, state: "DONE", key });
    assert.deepEqual(await results("retry", "--key", key), [0, [`${failed} changed`]]);
    const second = await run("retry", "--key", key, "--state", "DONE,FAIL");
    assert.deepEqual([second.code, outcomes(second.stdout)], [1, [`${done} refused`]]);
    assert.match(second.stdout, new RegExp(`pg-task run-now ${failed} runs the waiting task with the same key`));
    const third = await run("retry", "--key", key, "--group", "another");
    assert.deepEqual(
      [third.code, third.stderr],
      [1, `pg-task: no such task in FAIL with the key "${key}": task ${failed} with this key is PLAN\n`],
    );
    assert.equal((await row(older))["state"], "FAIL");
  });

  test("delete takes all tasks, and asks if there are several", async () => {
    const key = "delete 1";
    const one = await insert({ ...past, state: "DONE", key });
    assert.deepEqual(await results("delete", "--key", key), [0, [`${one} changed`]]);
    const done = await insert({ ...past, state: "DONE", key });
    const running = await insert({ state: "WORK", owner: "1 x", key });
    const waiting = await insert({ ...later, key });
    await failsWith(
      run("delete", "--key", key),
      2,
      /^pg-task: Delete 3 tasks with the key "delete 1" of "public"\."task" in \w+\? Without a terminal, give --yes\n$/,
    );
    const declined = await cliOnTerminal(["delete", "--key", key], { env, typed: "n\n" });
    assert.equal(declined.code, 1, declined.shown);
    assert.match(declined.shown, /Delete 3 tasks with the key/);
    assert.equal((await row(waiting))["state"], "PLAN");
    const all = await run("delete", "--key", key, "--yes");
    assert.equal(all.code, 1);
    assert.deepEqual(outcomes(all.stdout), [`${done} changed`, `${running} refused`, `${waiting} changed`]);
    assert.deepEqual(await results("delete", "--key", key, "--running"), [0, [`${running} changed`]]);
  });

  for (const [args, what] of [
    [["stop"], "no task waits or runs"],
    [["run-now"], "no task waits or runs"],
    [["retry"], "no such task in FAIL"],
    [["retry", "--state", "GONE,STOP"], "no such task in GONE or STOP"],
  ] as const) {
    test(`changes no other task: ${args.join(" ")}`, async () => {
      const id = await insert({ ...past, state: "DONE", key: "ended\n" });
      const message = `${what} with the key "ended\\n": the newest task with this key, ${id}, is DONE`;
      assert.deepEqual(await run(...args, "--key", "ended\n"), {
        code: 1,
        stdout: "",
        stderr: `pg-task: ${message}\n`,
      });
      const json = await run(...args, "--key", "ended\n", "--json");
      assert.deepEqual([json.code, JSON.parse(json.stdout)], [1, { changed: 0, tasks: [] }]);
      assert.equal((await row(id))["state"], "DONE");
    });
  }

  test("retry says that the task with the key runs, or that there is none", async () => {
    const running = await insert({ state: "WORK", owner: "1 x", key: "runs" });
    const { code, stderr } = await run("retry", "--key", "runs");
    const there = `task ${running} with this key is WORK`;
    assert.deepEqual([code, stderr], [1, `pg-task: no such task in FAIL with the key "runs": ${there}\n`]);
    const missing = await run("retry", "--key", "nobody's");
    assert.deepEqual([missing.code, missing.stderr], [1, `pg-task: no task with the key "nobody's"\n`]);
    const twice = await run("stop", "--key", "runs", "--key", "b");
    assert.deepEqual([twice.code, twice.stderr], [2, "pg-task: expected --key once, got it more than once\n"]);
    assert.equal((await row(running))["state"], "WORK");
  });

  test("says that no task has the key", async () => {
    assert.deepEqual(await run("delete", "--key", "nobody's"), {
      code: 1,
      stdout: "",
      stderr: `pg-task: no task with the key "nobody's"\n`,
    });
  });

  for (const command of ["stop", "run-now", "delete", "retry"]) {
    test(`is refused together with ids: ${command}`, async () => {
      await failsWith(run(command, "1", "--key", "x"), 2, /expected ids or (?:--key|a filter), got both/);
    });
  }
});

async function pauses(): Promise<unknown[]> {
  return (await client.query(`SELECT "group", reason FROM task_pause ORDER BY 1 NULLS FIRST`)).rows;
}

const pauseGroup = async (group: string): Promise<string> => (await run("pause", "--group", group)).stdout;

describe("pg-task pause and resume", () => {
  test("run-now and retry say of each task that its group or the table is paused", async () => {
    await client.query("TRUNCATE task, task_pause");
    const waiting = await insert({ group: "by night", plan: "infinity" });
    const failed = await insert({ group: "by night", state: "FAIL" });
    const other = await insert({ group: "other", plan: "infinity" });
    const texts = async (...args: string[]): Promise<(string | undefined)[]> =>
      (await run(...args)).stdout.split("\n").map((line) => line.split("\t")[2]);
    await run("pause", "--group", "by night");
    const group = `its group "by night" is paused: pg-task resume --group 'by night'`;
    assert.deepEqual((await texts("run-now", waiting, other)).slice(0, 2), [`due now, but ${group}`, "due now"]);
    assert.equal((await texts("retry", failed))[0], `was FAIL, runs again now, but ${group}`);
    await run("pause");
    assert.deepEqual((await texts("run-now", waiting, other, "--table", "task")).slice(0, 2), [
      "due now, but the whole table is paused: pg-task resume --table task; " +
        `its group "by night" is paused: pg-task resume --table task --group 'by night'`,
      "due now, but the whole table is paused: pg-task resume --table task",
    ]);
    await client.query("TRUNCATE task, task_pause");
  });

  test("escape control characters as other commands do", async () => {
    const { stdout } = await cli(["pause", "--group", 'a\x1b[31m"\\'], { env });
    assert.ok(stdout.startsWith(String.raw`group "a\x1b[31m\"\\" of "public"."task" paused`), stdout);
    await client.query("TRUNCATE task_pause");
  });

  test("pause and resume a group and the table independently", async () => {
    const group = 'it\'s a "group"';
    assert.match((await run("pause", "--group", group, "--reason", "why")).stdout, /paused; no waiting .*\n$/);
    assert.match((await run("pause", "--group", group)).stdout, /already paused\n$/);
    assert.deepEqual((await run("pause", "task")).code, 0);
    assert.deepEqual(await pauses(), [
      { group: null, reason: null },
      { group, reason: "why" },
    ]);
    const still = await run("resume", "--group", group);
    assert.match(still.stdout, /resumed; the whole table is still paused\n$/);
    const { stdout } = await run("resume", "--json");
    assert.deepEqual(JSON.parse(stdout), {
      table: '"public"."task"',
      group: null,
      changed: true,
      paused: false,
    });
    assert.match((await run("resume")).stdout, /was not paused\n$/);
    assert.deepEqual(await pauses(), []);
  });

  test("pause says that no task has the group, which may be misspelt", async () => {
    await client.query(`TRUNCATE task`);
    await insert({ group: "nightly", plan: "infinity" });
    assert.match(await pauseGroup("nightyl"), /paused; no waiting or running task has this group now\n$/);
    assert.match(await pauseGroup("nightly"), /"nightly" of "public"."task" paused\n$/);
    assert.match(await pauseGroup("nightyl"), /already paused\n$/);
    await client.query("TRUNCATE task, task_pause");
  });

  test("refuse a table that is not configured", async () => {
    await failsWith(
      run("pause", "nosuch"),
      2,
      /no table of the configuration matches --entry and --table \("nosuch" may be a group: give it with --group\); it has:/,
    );
    assert.deepEqual(await pauses(), []);
  });
});

describe("pg-task prune", () => {
  test("deletes old finished tasks in batches, and no waiting or running ones", async () => {
    await client.query(
      `TRUNCATE task;
       INSERT INTO task (input, state, plan, start, stop) SELECT '', 'DONE', '2024-01-01', '2024-01-01', '2024-01-01' FROM generate_series(1, 2500);
       INSERT INTO task (input, state, plan, stop, data) VALUES ('', 'FAIL', '2024-01-01', '2024-01-01', 'fail'),
         ('', 'DONE', now(), now(), 'fresh'), ('', 'PLAN', '2024-01-01', '2024-01-01', 'waits'), ('', 'STOP', '2024-01-01', NULL, 'stopped');
       INSERT INTO task (input, state, plan, stop, owner, data) VALUES ('', 'WORK', '2024-01-01', '2024-01-01', '1 x', 'runs')`,
    );
    const dry = await run("prune", "--older", "1 day", "--dry-run");
    assert.deepEqual(dry, { code: 0, stdout: "2,502 tasks would be deleted\n", stderr: "" });
    const done = await run("prune", "--older", "1 day", "--state", "DONE,STOP", "--json", "--yes");
    assert.deepEqual([done.code, JSON.parse(done.stdout)], [0, { deleted: 2501, locked: 0 }]);
    const { rows } = await client.query<{ data: string }>("SELECT data FROM task ORDER BY data");
    assert.deepEqual(
      rows.map(({ data }) => data),
      ["fail", "fresh", "runs", "waits"],
    );
  });

  test("counts from when it was added for a task that was stopped before its planned time", async () => {
    const stopped = { state: "STOP", plan: "infinity", data: "ahead" };
    const old = await insert({ ...stopped, created: "2024-01-01" });
    const fresh = await insert(stopped);
    const unknown = await insert({ ...stopped, created: null });
    const { stdout } = await run("prune", "--state", "STOP", "--older", "1 day", "--yes");
    assert.equal(stdout, "1 task deleted\n");
    const { rows } = await client.query<{ id: string }>("DELETE FROM task WHERE data = 'ahead' RETURNING id");
    assert.deepEqual(rows.map(({ id }) => id).toSorted(), [fresh, unknown].toSorted(), `not ${old}`);
  });

  test("deletes only tasks with the key", async () => {
    const mine = await insert({ ...past, state: "DONE", key: "prune 1" });
    const other = await insert({ ...past, state: "DONE", key: "prune 10" });
    const { code, stdout } = await run("prune", "--older", "1 day", "--key", "prune 1", "--yes");
    assert.deepEqual([code, stdout], [0, "1 task deleted\n"]);
    assert.deepEqual((await client.query("SELECT id FROM task WHERE id = ANY ($1)", [[mine, other]])).rows, [
      { id: other },
    ]);
    await client.query("DELETE FROM task WHERE id = $1", [other]);
  });

  test("skips a locked row, and reports it", async () => {
    const other = await database.connect();
    await other.query("BEGIN; UPDATE task SET data = 'x' WHERE data = 'fail'");
    const { code, stdout } = await run("prune", "--older", "1 day", "--yes");
    await other.query("ROLLBACK");
    assert.deepEqual([code, stdout], [1, "0 tasks deleted, 1 locked row skipped\n"]);
  });

  test("deletes nothing without a terminal, unless --yes is given", async () => {
    await failsWith(
      run("prune", "--older", "1 day"),
      2,
      /^pg-task: Delete 1 task of "public"\."task" that ended before .*\? Without a terminal, give --yes\n$/,
    );
  });

  test("asks on a terminal", async () => {
    const { code, shown } = await cliOnTerminal(["prune", "--older", "1 day"], { env, typed: "y\n" });
    assert.equal(code, 0, shown);
    assert.match(shown, /Delete 1 task of "public"\."task"[^]*1 task deleted/);
  });

  for (const [args, said] of [
    [[], /required option '--older <interval>' not specified/],
    [["--older", "-1 day", "--dry-run"], /expected --older to be an interval of 0 or more, got "-1 day"/],
    [["--older", "soon"], /invalid input syntax for type interval: "soon"/],
    [["--older", "1 day", "--state", "PLAN"], /expected states from DONE/],
  ] as const) {
    test(`refuses the arguments [${args.join(" ")}]`, async () => {
      await failsWith(run("prune", ...args), 2, said);
    });
  }
});
