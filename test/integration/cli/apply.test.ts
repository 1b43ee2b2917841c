import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, describe } from "node:test";
import { createDatabase } from "../../support/database.js";
import { cli, cliOnTerminal, commandsOn, envOf, failsWith, linesOf, type CliResult } from "../../support/cli.js";
import { test } from "../../support/limitedTest.js";
import { createRole } from "../../support/taskTables.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";
import { asManager, Tasks, eventually } from "../../support/tasks.js";

const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
const { env } = commandsOn(database);
const cwd = await temporaryFolder();

type Jobs = Readonly<Record<string, unknown>>;

async function apply(jobs: Jobs, ...options: string[]): Promise<CliResult> {
  await writeFile(join(cwd, "jobs.json"), JSON.stringify({ jobs }));
  return await cli(["apply", "jobs.json", ...options], { env, cwd });
}

/** The key and the outcome of each job. */
const outcomes = ({ stdout }: CliResult): string[] =>
  linesOf(stdout).map((line) => line.split("\t").slice(0, 2).join(" "));

const nightly = { rule: "0 3 * * *", zone: "UTC", input: "VACUUM", keep: "7 days" };
const poll = { repeat: "1 hour", input: ["SELECT 1;", "SELECT 2"] };

const rows = () =>
  tasks.rows<Record<string, unknown>>(
    `SELECT key, state::text, rule, repeat::text, input, keep::text, plan = 'infinity' AS paused FROM task ORDER BY id`,
  );

const nightlyRow = {
  key: "nightly",
  state: "PLAN",
  rule: "0 3 * * *",
  repeat: "00:00:00",
  input: "VACUUM",
  keep: "7 days",
  paused: false,
};

/** These columns of each row. */
const columns = async (...names: string[]): Promise<unknown[][]> =>
  (await rows()).map((row) => names.map((name) => row[name]));

/** A row as the manager writes it when a session has the task. */
async function claim(key: string): Promise<void> {
  const set = "state = 'WORK', owner = 'x', ready = NULL, take = now(), start = now(), plan = now()";
  await asManager(client, `UPDATE task SET ${set} WHERE key = $1`, [key]);
}

beforeEach(() => client.query("TRUNCATE task RESTART IDENTITY"));

describe("pg-task apply", () => {
  test("adds jobs, leaves those that are the same, and changes what differs", async () => {
    assert.deepEqual(outcomes(await apply({ nightly, poll })), ["nightly added", "poll added"]);
    const first = await rows();
    assert.deepEqual(first, [
      nightlyRow,
      {
        key: "poll",
        state: "PLAN",
        rule: null,
        repeat: "01:00:00",
        input: "SELECT 1;\nSELECT 2",
        keep: "00:00:00",
        paused: false,
      },
    ]);
    assert.ok(
      await tasks.value(
        "SELECT plan BETWEEN now() + interval '59 minutes' AND now() + interval '1 hour' FROM task WHERE key = 'poll'",
      ),
    );
    assert.deepEqual(outcomes(await apply({ poll, nightly })), ["nightly same", "poll same"]);
    assert.deepEqual(await rows(), first);
    const { keep: _, ...short } = nightly;
    const changed = await apply({ nightly: { ...short, rule: "0 4 * * *", max: 2 }, poll });
    assert.deepEqual(outcomes(changed), ["nightly changed", "poll same"]);
    assert.match(changed.stdout, /max: 0 → 2.*keep: 7 days → 00:00:00.*rule: 0 3 \* \* \* → 0 4 \* \* \*/);
    const hour = await tasks.value<number>(
      "SELECT extract(hour FROM plan AT TIME ZONE 'UTC')::int FROM task WHERE key = 'nightly'",
    );
    assert.equal(hour, 4);
    assert.equal((await rows()).length, 2);
  });

  test("compares values as the server writes them, so that other spellings are no change", async () => {
    await apply({ poll: { ...poll, repeat: "60 minutes", keep: "168 hours", args: { b: 1, a: [2] } } });
    const again = await apply({ poll: { ...poll, repeat: "1 hour", keep: "168:00:00", args: { a: [2], b: 1 } } });
    assert.deepEqual(outcomes(again), ["poll same"]);
  });

  test("keeps the plan of a job whose schedule stays, and gives a new interval its first run one interval later", async () => {
    await apply({ poll });
    await client.query("UPDATE task SET plan = now() + interval '10 minutes'");
    await apply({ poll: { ...poll, input: "SELECT 3" } });
    assert.ok(await tasks.value("SELECT plan < now() + interval '11 minutes' FROM task"));
    await apply({ poll: { ...poll, repeat: "2 hours" } });
    assert.ok(await tasks.value("SELECT plan > now() + interval '119 minutes' FROM task"));
    await apply({ poll: nightly });
    assert.deepEqual(await rows(), [{ ...nightlyRow, key: "poll" }]);
  });

  test("with --dry-run, only shows what would change", async () => {
    const dry = await apply({ nightly }, "--dry-run");
    assert.deepEqual([dry.code, outcomes(dry)], [0, ["nightly added"]]);
    assert.match(dry.stderr, /dry run: nothing was changed\n$/);
    assert.deepEqual(await rows(), []);
    await apply({ nightly });
    const before = await rows();
    const changed = await apply({ nightly: { ...nightly, input: "ANALYZE" }, poll }, "--dry-run", "--prune");
    assert.deepEqual(outcomes(changed), ["nightly changed", "poll added"]);
    assert.deepEqual(await rows(), before);
  });

  test("changes nothing at all if one job is refused, and says which", async () => {
    const result = await apply({
      broken: { ...nightly, rule: "61 * * * *" },
      late: { ...poll, timeout: "often" },
      nightly,
    });
    assert.equal(result.code, 2);
    assert.deepEqual(outcomes(result), ["broken refused", "late refused", "nightly added"]);
    assert.match(result.stdout, /^broken\trefused\t.*'61' is not within 0-59/);
    assert.match(result.stdout, /\nlate\trefused\t.*timeout: .*"often"/);
    assert.match(result.stderr, /nothing was changed\n$/);
    assert.deepEqual(await rows(), []);
  });

  test("changes the row that runs, for its successor, and does not double it", async () => {
    await apply({ nightly, poll });
    await claim("nightly");
    await apply({ nightly: { ...nightly, rule: "0 5 * * *", input: "ANALYZE" }, poll });
    const [row, ...others] = await rows();
    assert.equal(others.length, 1);
    assert.deepEqual({ ...row }, { ...nightlyRow, state: "WORK", rule: "0 5 * * *", input: "ANALYZE" });
  });

  test("adds the schedule beside a task with its key that only runs once", async () => {
    await client.query("INSERT INTO task (key, input) VALUES ('nightly', 'SELECT 1')");
    await claim("nightly");
    assert.deepEqual(outcomes(await apply({ nightly })), ["nightly added"]);
    assert.deepEqual(await columns("state", "input"), [
      ["WORK", "SELECT 1"],
      ["PLAN", "VACUUM"],
    ]);
  });

  test("waits for a run that ends just now, and changes its successor", async () => {
    await apply({ nightly });
    await claim("nightly");
    const other = await database.connect();
    await other.query("BEGIN; SET LOCAL pgtask.manager = on");
    await other.query("UPDATE task SET state = 'DONE', owner = NULL");
    await other.query(
      "INSERT INTO task (key, input, rule, zone, keep, plan, ready) VALUES ('nightly', 'VACUUM', '0 3 * * *', 'UTC', '7 days', '2999-01-01', false)",
    );
    const applying = apply({ nightly: { ...nightly, input: "ANALYZE" } });
    await eventually(
      client,
      "SELECT FROM pg_stat_activity WHERE application_name = 'pg-task apply' AND wait_event_type = 'Lock' AND datname = current_database()",
      (waiting) => waiting.length > 0,
    );
    await other.query("COMMIT");
    assert.deepEqual(outcomes(await applying), ["nightly changed"]);
    assert.deepEqual(await columns("state", "input"), [
      ["DONE", "VACUUM"],
      ["PLAN", "ANALYZE"],
    ]);
  });

  test("pauses and resumes jobs, and leaves the pause of a job alone about which it says nothing", async () => {
    assert.match((await apply({ nightly: { ...nightly, paused: true }, poll })).stdout, /^nightly\tadded\tpaused\n/);
    assert.deepEqual(await columns("paused"), [[true], [false]]);
    assert.deepEqual(outcomes(await apply({ nightly, poll: { ...poll, paused: true } })), [
      "nightly same",
      "poll changed",
    ]);
    assert.deepEqual(await columns("paused"), [[true], [true]]);
    await apply({ nightly: { ...nightly, rule: "0 4 * * *" }, poll: { ...poll, repeat: "2 hours" } });
    assert.deepEqual(await columns("paused"), [[true], [true]]);
    const resumed = await apply({
      nightly: { ...nightly, rule: "0 4 * * *", paused: false },
      poll: { ...poll, repeat: "2 hours", paused: false },
    });
    assert.match(resumed.stdout, /paused: true → false/);
    assert.deepEqual(await columns("paused"), [[false], [false]]);
    assert.equal(
      await tasks.value("SELECT extract(hour FROM plan AT TIME ZONE 'UTC')::int FROM task WHERE key = 'nightly'"),
      4,
    );
  });

  test("pauses a job that runs by a row that replaces it", async () => {
    await apply({ nightly });
    await claim("nightly");
    await apply({ nightly: { ...nightly, paused: true } });
    assert.deepEqual(await columns("state", "paused"), [
      ["WORK", false],
      ["PLAN", true],
    ]);
    assert.deepEqual(outcomes(await apply({ nightly: { ...nightly, paused: true } })), ["nightly same"]);
  });

  test("with --prune, ends the schedules that the file does not name, of those with its prefix", async () => {
    await apply({ "a 1": nightly, "a 2": poll, "a 3": nightly, "b 1": nightly });
    await client.query(
      "INSERT INTO task (key, input, plan) VALUES ('a 4', 'SELECT 4', 'infinity'), (NULL, 'SELECT 5', 'infinity')",
    );
    await claim("a 3");
    await writeFile(join(cwd, "jobs.json"), JSON.stringify({ prefix: "a ", jobs: { 1: nightly } }));
    await failsWith(
      cli(["apply", "jobs.json", "--prune"], { env, cwd }),
      2,
      /End 2 schedules: "a 2", "a 3"\? Without a terminal, give --yes/,
    );
    const declined = await cliOnTerminal(["apply", "jobs.json", "--prune"], { env, cwd, typed: "n\n" });
    assert.equal(declined.code, 1);
    const pruned = await cli(["apply", "jobs.json", "--prune", "--yes"], { env, cwd });
    assert.deepEqual(outcomes(pruned), ["a 1 same", "a 2 ended", "a 3 ended"]);
    assert.deepEqual(
      await tasks.rows("SELECT key, state::text, rule IS NOT NULL OR repeat > '0' AS repeats FROM task ORDER BY id"),
      [
        { key: "a 1", state: "PLAN", repeats: true },
        { key: "a 2", state: "STOP", repeats: true },
        { key: "a 3", state: "WORK", repeats: false },
        { key: "b 1", state: "PLAN", repeats: true },
        { key: "a 4", state: "PLAN", repeats: false },
        { key: null, state: "PLAN", repeats: false },
      ],
    );
  });

  test("takes recurrences that begin when they are added, or at their DTSTART, as the same later", async () => {
    const jobs = {
      weekly: { ...nightly, rule: "FREQ=WEEKLY;INTERVAL=2" },
      counted: { ...nightly, rule: "DTSTART:20260101T000000\nRRULE:FREQ=DAILY;COUNT=4000" },
      fixed: { ...nightly, rule: "RRULE:FREQ=DAILY;UNTIL=29991231\nDTSTART:20260101T000000" },
    };
    await apply(jobs);
    assert.deepEqual(outcomes(await apply(jobs)), ["counted same", "fixed same", "weekly same"]);
    // A successor has the number of times that are left.
    await client.query(`SET pgtask.manager = on;
      UPDATE task SET (rule, plan) = (SELECT s.rule, s.plan FROM task_successor(task.rule, zone, plan) AS s) WHERE key = 'counted'; RESET pgtask.manager`);
    assert.notEqual(await tasks.value("SELECT rule FROM task WHERE key = 'counted'"), jobs.counted.rule);
    assert.deepEqual(outcomes(await apply(jobs)), ["counted same", "fixed same", "weekly same"]);
    const more = { ...jobs, counted: { ...nightly, rule: "DTSTART:20260101T000000\nRRULE:FREQ=DAILY;COUNT=5000" } };
    assert.deepEqual(outcomes(await apply(more)), ["counted changed", "fixed same", "weekly same"]);
    const other = { ...more, weekly: { ...nightly, rule: "FREQ=WEEKLY;INTERVAL=3" } };
    assert.deepEqual(outcomes(await apply(other)), ["counted same", "fixed same", "weekly changed"]);
  });

  test("does not fail for a job that is over, and ends its schedule", async () => {
    const over = { ...nightly, rule: "FREQ=DAILY;UNTIL=20200101" };
    const result = await apply({ over });
    assert.deepEqual([result.code, outcomes(result)], [0, ["over over"]]);
    await apply({ over: nightly });
    assert.deepEqual(outcomes(await apply({ over })), ["over ended"]);
    assert.deepEqual(await columns("state"), [["STOP"]]);
  });

  test("sets columns of the user's own", async () => {
    await client.query("ALTER TABLE task ADD COLUMN team text");
    const job = { ...nightly, columns: { team: "sales" } };
    await apply({ nightly: job });
    assert.equal(await tasks.value("SELECT team FROM task"), "sales");
    assert.deepEqual(outcomes(await apply({ nightly: job })), ["nightly same"]);
    assert.match((await apply({ nightly: { ...job, columns: { team: "it" } } })).stdout, /team: sales → it/);
    // A column about which the job says nothing is not its business.
    assert.deepEqual(outcomes(await apply({ nightly })), ["nightly same"]);
    await client.query("ALTER TABLE task DROP COLUMN team");
  });

  test("refuses what is no job, with the name of the job and the place in the file", async () => {
    const cases: [Jobs, RegExp][] = [
      [{ a: { input: "SELECT 1" } }, /jobs\.json: job "a": expected a rule or a repeat/],
      [{ a: { ...nightly, repeat: "1 h" } }, /expected a rule or a repeat/],
      [{ a: { ...nightly, key: "b" } }, /"key" is not a property of a job/],
      [{ a: { ...nightly, ruel: "x" } }, /"ruel" is not a property of a job.*perhaps "rule" is meant/],
      [{ a: { ...nightly, input: 3 } }, /expected input to be the SQL/],
      [{ a: { ...nightly, paused: 1 } }, /expected paused to be true or false/],
      [{ a: { ...nightly, rule: "FREQ=DAILY;COUNT=3" } }, /COUNT needs a DTSTART/],
      [{ a: 1 }, /expected an object with the columns of its task/],
    ];
    for (const [jobs, error] of cases) await failsWith(apply(jobs), 2, error);
    for (const [text, error] of [
      ["[]", /expected an object with "jobs"/],
      ['{"jobs": {}, "job": 1}', /"job" is not a property of a file with jobs/],
      ['{"jobs": []}', /expected jobs to be an object/],
      ['{"jobs": {"a": {},\n "a": {}}}', /jobs\.json:2:2: not JSON: expected each key once/],
    ] as const) {
      await writeFile(join(cwd, "jobs.json"), text);
      await failsWith(cli(["apply", "jobs.json"], { env, cwd }), 2, error);
    }
    await failsWith(cli(["apply", "none.json"], { env, cwd }), 2, /cannot read the file with jobs: .*no such file/);
    assert.deepEqual(await rows(), []);
  });

  test("hides passwords, prints JSON, and reads standard input", async () => {
    const remote = { ...nightly, remote: "host=h password=secret" };
    await apply({ nightly });
    const input = JSON.stringify({ jobs: { nightly: remote } });
    const { stdout } = await cli(["apply", "-", "--json"], { env, cwd, input });
    assert.deepEqual(JSON.parse(stdout), {
      applied: true,
      jobs: [
        {
          key: "nightly",
          outcome: "changed",
          changes: [{ column: "remote", from: null, to: "host=h password=***" }],
          paused: false,
          reason: null,
        },
      ],
    });
  });

  test("shows on a terminal each change on a line, and a summary", async () => {
    await apply({ nightly, poll });
    await writeFile(
      join(cwd, "jobs.json"),
      JSON.stringify({ jobs: { nightly: { ...nightly, input: "ANALYZE" }, poll, new: poll } }),
    );
    const { shown } = await cliOnTerminal(["apply", "jobs.json"], { env: { ...env, NO_COLOR: "1" }, cwd });
    assert.equal(
      shown,
      "+ new: added\n~ nightly: changed\n    input: VACUUM → ANALYZE\n= poll: the same\n1 added, 1 changed, 1 the same\n",
    );
  });

  test("escapes what would change how other text is shown", async () => {
    const hostile = "a\u202eb";
    await apply({ [hostile]: nightly, other: poll });
    for (const jobs of [
      { [hostile]: { ...nightly, input: hostile } },
      { [hostile]: 1 },
      { [hostile]: { ...nightly, rule: hostile } },
      {},
    ]) {
      await writeFile(join(cwd, "jobs.json"), JSON.stringify({ jobs }));
      for (const options of [["--dry-run"], ["--dry-run", "--json"], ["--prune"]]) {
        const { shown } = await cliOnTerminal(["apply", "jobs.json", ...options], { env, cwd, typed: "n\n" });
        assert.ok(shown.length > 0 && !shown.includes("\u202e"), JSON.stringify(shown));
      }
    }
  });

  test("says what has to be granted to a role that may not apply jobs", async () => {
    const role = await createRole(client, `limited_${database.target.database}`);
    await client.query(`GRANT SELECT ON task TO ${role}`);
    await writeFile(join(cwd, "jobs.json"), JSON.stringify({ jobs: { nightly } }));
    const asRole = (): Promise<CliResult> => cli(["apply", "jobs.json"], { env: envOf(database, role), cwd });
    const sequence = `GRANT USAGE ON SEQUENCE public\\.task_id_seq TO ${role}`;
    await failsWith(asRole(), 4, new RegExp(`: GRANT INSERT, UPDATE ON "public"\\."task" TO ${role}; ${sequence}\n$`));
    await client.query(`GRANT INSERT, UPDATE ON task TO ${role}`);
    await failsWith(asRole(), 4, new RegExp(`: ${sequence}\n$`));
    await client.query(`GRANT USAGE ON SEQUENCE task_id_seq TO ${role}`);
    assert.deepEqual(outcomes(await asRole()), ["nightly added"]);
  });
});
