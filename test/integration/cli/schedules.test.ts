import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, describe } from "node:test";
import { taskTable } from "../../../src/manager/schema/taskTable.js";
import { readSchedules } from "../../../src/tasks/queries/schedules.js";
import { createDatabase } from "../../support/database.js";
import { cli, cliOnTerminal, failsWith, commandsOn, linesOf } from "../../support/cli.js";
import { doctor, type DoctorLine } from "../../support/doctor.js";
import { test } from "../../support/limitedTest.js";
import { asManager as writeAsManager } from "../../support/tasks.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";

const database = await createDatabase();
const empty = await createDatabase("empty");
const client = await database.connect();
const { env, run, fieldsOf, shownBy } = commandsOn(database);
const emptyClient = await empty.connect();

/** Runs a command that changes tasks, and returns what it says of each. */
const texts = async (...args: string[]): Promise<(string | undefined)[]> =>
  linesOf((await cli(args, { env })).stdout).map((line) => line.split("\t")[2]);

const asManager = (sql: string): Promise<void> => writeAsManager(client, sql);

const daily = (start: string, days: readonly number[], end: string): string =>
  days.map((day) => `${start}${day}${end}`).join(", ");

const storedRows = async (): Promise<unknown[]> =>
  (await client.query("SELECT id, plan = 'infinity' AS halted, due FROM task ORDER BY id")).rows;

const heading = async (): Promise<string | undefined> =>
  linesOf(await shownBy(["list", "--schedules"], { columns: 200 }))[0];

const pausedFields = async (): Promise<(string | undefined)[]> =>
  (await fieldsOf("list", "--schedules")).map((line) => `${line[0]} ${line[7]}`).toSorted();

const outcome = async (...args: string[]): Promise<string> => {
  const { code, stdout, stderr } = await cli(args, { env });
  return `${code} ${stdout.replaceAll("\t", " ")}${stderr}`;
};

const nextOnTerminal = async (...args: string[]): Promise<string> => await shownBy(["next", ...args]);

/** What doctor says about schedules. */
const findings = async (): Promise<DoctorLine[]> =>
  (await doctor(env)).lines.filter(({ name }) => name === "schedules");

const warnings = async (): Promise<DoctorLine[]> => (await findings()).filter(({ level }) => level === "warn");

const past = (from: number, id: number, seconds: number, columns: string, values: string): string =>
  `INSERT INTO task (id, parent, input, plan, state, ready, start, stop, "group", max, ${columns}) VALUES
     (${from}, NULL, '${id}', '2020-01-01', 'DONE', NULL, '2020-01-01', '2020-01-01'::timestamptz + interval '${seconds} s', 'busy', 0, ${values}),
     (${id}, ${from}, '${id}', '2199-01-01 00:00+00', 'PLAN', false, NULL, NULL, 'busy', 0, ${values})`;

beforeEach(() => client.query("TRUNCATE task, task_pause RESTART IDENTITY"));

describe("pg-task list --schedules", () => {
  beforeEach(async () => {
    await client.query(
      `INSERT INTO task (id, input, "group", rule, zone, plan, parent) VALUES
         (2, 'SELECT 2', 'mail', '30 2 * * *', 'Europe/Berlin', '2199-03-30 00:00+00', 1),
         (3, 'SELECT 3', 'news', 'FREQ=YEARLY', 'UTC', '2198-01-01 00:00+00', NULL)`,
    );
    await client.query(
      `INSERT INTO task (id, input, "group", repeat, plan) VALUES (4, 'SELECT 4', 'mail', '1 day', '2197-01-01 00:00+00')`,
    );
    await asManager(
      `INSERT INTO task (id, input, state, ready, plan, start, stop, error) VALUES
         (1, 'SELECT 2', 'FAIL', NULL, '2020-01-01', '2020-01-01 00:00+00', '2020-01-01 00:00:02+00', E'ERROR:  no\\nmore'),
         (5, 'SELECT 5', 'PLAN', true, '2020-01-01', NULL, NULL, NULL)`,
    );
  });

  test("filters by key", async () => {
    await client.query("UPDATE task SET key = 'nightly' WHERE id = 2; UPDATE task SET key = 'nightly 2' WHERE id = 4");
    const { code, stdout } = await run("list", "--schedules", "--key", "nightly");
    assert.deepEqual([code, linesOf(stdout).map((line) => line.split("\t")[0])], [0, ["2"]]);
  });

  test("marks a schedule as late whose time came more than five seconds ago", async () => {
    await asManager(
      `INSERT INTO task (id, input, "group", repeat, plan, ready, state) VALUES
         (6, 'SELECT 6', 'late', '1 day', now() - interval '2 hours', true, 'PLAN'),
         (8, 'SELECT 8', 'due', '1 day', now(), true, 'PLAN')`,
    );
    const { stdout } = await run("list", "--schedules", "--json");
    const schedules: { id: string; overdueMs: number | null }[] = JSON.parse(stdout).schedules;
    const overdueMs = (id: string) => schedules.find((each) => each.id === id)?.overdueMs;
    assert.ok((overdueMs("6") ?? 0) >= 7_200_000);
    assert.ok((overdueMs("8") ?? -1) >= 0);
    assert.equal(overdueMs("4"), null);
    const shown = await shownBy(["list", "--schedules"], { columns: 140 });
    assert.match(shown, /6 {2}late .*late by 2 h/);
    assert.doesNotMatch(shown, /4 {2}mail .*late by/);
  });

  test("shows the runs before a change of a schedule that has a key", async () => {
    await asManager(
      `INSERT INTO task (id, parent, input, "group", key, rule, zone, plan, ready, state) VALUES
         (6, NULL, 'SELECT 1', 'changed', 'report', '0 5 1 1 *', 'UTC', '2020-01-01', NULL, 'DONE'),
         (7, 6, 'SELECT 2', 'changed', 'report', '0 6 1 1 *', 'UTC', '2021-01-01', NULL, 'FAIL'),
         (8, 7, 'SELECT 3', 'changed', 'report', '0 7 1 1 *', 'UTC', '2199-01-01', false, 'PLAN')`,
    );
    const { schedules } = await readSchedules(client, taskTable("public", "task"), {
      filter: { key: "report" },
      limit: 1,
      characters: 1,
      runs: 9,
    });
    assert.deepEqual(
      schedules.map(({ id, last }) => [id, ...last.map((each) => [each.id, each.state])]),
      [["8", ["7", "FAIL"], ["6", "DONE"]]],
    );
    const { stdout } = await run("list", "--schedules", "--key", "report", "--json");
    assert.deepEqual(JSON.parse(stdout).schedules[0].last[0].id, "7");
  });

  test("says that a run waits for its next try, and why", async () => {
    await asManager(
      `INSERT INTO task (id, input, "group", repeat, plan, ready, state, retry, attempt, error) VALUES
         (6, 'SELECT 1/0', 'tried', '1 day', now() + interval '1 hour', false, 'PLAN', 3, 2, E'ERROR:  division by zero\nSTATEMENT:  SELECT 1/0')`,
    );
    const { stdout } = await run("list", "--schedules", "--group", "tried", "--json");
    const [{ failedTries, tryError, last }] = JSON.parse(stdout).schedules;
    assert.deepEqual(
      { failedTries, tryError, last },
      { failedTries: 2, tryError: "ERROR:  division by zero", last: [] },
    );
    assert.match(
      await shownBy(["list", "--schedules"], { columns: 140 }),
      /6 {2}tried .*try 2 failed division by zero/,
    );
  });

  test("lists schedules by planned time, with three times in the rule's zone and the last outcome", async () => {
    const { code, stdout, stderr } = await run("list", "--schedules");
    assert.deepEqual([code, stderr], [0, ""]);
    const none = String.raw`\N`;
    const unused = ["false", none, "0", none, none, none];
    const yearlyRule = String.raw`DTSTART;TZID=UTC:21980101T000000\nRRULE:FREQ=YEARLY`;
    assert.deepEqual(
      linesOf(stdout).map((line) => line.split("\t")),
      [
        ["4", "mail", "1 day", none, daily("2197-01-0", [1, 2, 3], "T00:00:00+00:00"), none, "SELECT 4", ...unused],
        ["3", "news", yearlyRule, "UTC", yearly, none, "SELECT 3", ...unused],
        ["2", "mail", "30 2 * * *", "Europe/Berlin", overGap, "FAIL", "SELECT 2", ...unused],
      ],
    );
  });
  const yearly = [2198, 2199, 2200].map((year) => `${year}-01-01T00:00:00+00:00`).join(", ");
  const overGap = "2199-03-30T02:30:00+01:00, 2199-03-31T03:00:00+02:00, 2199-04-01T02:30:00+02:00";

  test("shows keys: in a field, in JSON, and on a terminal if a schedule has one", async () => {
    assert.match((await heading()) ?? "", /^id +group +rule/);
    await client.query("UPDATE task SET key = 'nightly' WHERE id = 2");
    assert.match((await heading()) ?? "", /^id +group +key +rule/);
    const piped = await run("list", "--schedules");
    assert.deepEqual(
      linesOf(piped.stdout).map((line) => line.split("\t")[8]),
      ["\\N", "\\N", "nightly"],
    );
    const { stdout } = await run("list", "--schedules", "--json");
    assert.deepEqual(
      JSON.parse(stdout).schedules.map(({ key }: { key: string | null }) => key),
      [null, null, "nightly"],
    );
  });

  test("says in a field whether a schedule, its group or the table is paused", async () => {
    await client.query(`INSERT INTO task_pause ("group") VALUES ('mail')`);
    assert.deepEqual(await pausedFields(), ["2 true", "3 false", "4 true"]);
    await run("pause", "--schedule", "3");
    assert.deepEqual(await pausedFields(), ["2 true", "3 true", "4 true"]);
  });

  test("prints JSON with the last run", async () => {
    const { schedules, more } = JSON.parse(
      (await run("list", "--schedules", "--json", "--group", "mail", "--text", "30 2")).stdout,
    );
    assert.deepEqual([schedules.length, more], [1, false]);
    const { id, plan, next, last, problem, paused } = schedules[0];
    assert.deepEqual([id, plan, problem, paused], ["2", "2199-03-30T01:30:00+00:00", null, false]);
    assert.deepEqual(next[1], { at: "2199-03-31T01:00:00+00:00", wall: "2199-03-31 03:00:00+02:00" });
    assert.deepEqual(last, [
      {
        id: "1",
        state: "FAIL",
        start: "2020-01-01T00:00:00+00:00",
        stop: "2020-01-01T00:00:02+00:00",
        tookMs: 2000,
        error: "ERROR:  no",
      },
    ]);
  });

  test("accepts the filters that apply to schedules, and rejects the others", async () => {
    for (const [args, ids] of [
      [
        ["--group", "mail"],
        ["4", "2"],
      ],
      [["--text", "YEARLY"], ["3"]],
      [["--text", "select 4"], ["4"]],
      [["--since", "2198-01-01 00:00+00", "--until", "2199-01-01 00:00+00"], ["3"]],
      [["--group", "nobody's"], []],
    ] as const) {
      const { stdout } = await run("list", "--schedules", ...args);
      assert.deepEqual(
        linesOf(stdout).map((line) => line.split("\t")[0]),
        ids,
        args.join(" "),
      );
    }
    const limited = await run("list", "--schedules", "-n", "2");
    assert.equal(linesOf(limited.stdout).length, 2);
    assert.match(limited.stderr, /more than 2 schedules: raise --limit/);
    for (const [args, message] of [
      [["--state", "PLAN"], /--state cannot be combined with --schedules/],
      [["--before", "3"], /--before cannot be combined with --schedules/],
    ] as const) {
      await failsWith(run("list", "--schedules", ...args), 2, message);
    }
  });

  test("shows on a terminal what is paused and what is invalid", async () => {
    await run("pause", "--schedule", "2");
    await run("pause", "--group", "news");
    await asManager(
      "INSERT INTO task (id, input, rule, zone, plan, ready) VALUES (6, '', '* * * * *', 'Mars/Base', '2199-01-01', false)",
    );
    const shown = await shownBy(["list", "--schedules"], { columns: 200 });
    const of = (id: number): string => linesOf(shown).find((line) => line.trimStart().startsWith(`${id} `)) ?? "";
    assert.match(of(2), /Europe\/Berlin +paused +FAIL 2020-01-01 01:00:02 no/);
    assert.match(of(3), /FREQ=YEARLY +UTC +group paused, 2198-01-01 00:00, 2199/);
    assert.match(of(4), /every 1 day/);
    assert.match(of(6), /no times: time zone "Mars\/Base" not recognized/);
    await client.query("TRUNCATE task");
    assert.equal((await cliOnTerminal(["list", "--schedules"], { env })).shown, "no schedules\n");
  });
});

const shown = async (columns: number): Promise<string[]> =>
  linesOf(await shownBy(["list", "--schedules"], { columns }));

describe("list --schedules on a terminal of 80 columns", () => {
  const key = "nightly invoices of all customers";
  const input = "SELECT send_invoices(customer) FROM customers WHERE NOT archived";

  beforeEach(async () => {
    await client.query(
      `INSERT INTO task (id, input, "group", key, rule, zone, plan, parent) VALUES
         (12, '${input}', 'reports of the north', '${key}', '30 3 * * 1-5', 'America/Argentina/Buenos_Aires', '2199-03-29 00:00+00', 1),
         (13, 'SELECT 13', 'mail', 'hourly', '5 * * * *', 'UTC', '2198-01-01 00:00+00', NULL)`,
    );
    await asManager(
      `INSERT INTO task (id, input, state, ready, plan, start, stop) VALUES
         (1, '${input}', 'DONE', NULL, '2020-01-01', '2020-01-01 00:00+00', '2020-01-01 00:00:02+00')`,
    );
  });

  test("no line wraps, and the next time is whole", async () => {
    const table = await shown(80);
    for (const line of table) assert.ok(line.length <= 80, `${line.length}: ${line}`);
    assert.match(table[0] ?? "", /^id +key +rule +zone +next +last$/);
    assert.match(table[1] ?? "", /^13 +hourly +5 \* \* \* \* +UTC +2198-01-01 00:05/);
    assert.match(
      table[2] ?? "",
      /^12 +nightly inv.*… +30 3 \* \* 1-5 +America\/A.*… +2199-03-29 03:30.* +DONE 2019-12.*…$/,
    );
    assert.deepEqual(table.slice(3), ["without group, input, which a wider terminal shows"]);
  });

  test("columns are left out only if they do not fit", async () => {
    assert.match((await shown(200))[0] ?? "", /^id +group +key +rule +zone +next +last +input$/);
    assert.equal((await shown(200)).length, 3);
    await client.query(`UPDATE task SET key = NULL, zone = 'UTC', "group" = 'mail' WHERE state = 'PLAN'`);
    const table = await shown(80);
    assert.match(table[0] ?? "", /^id +group +rule +zone +next +last +input$/);
    assert.equal(table.length, 3);
  });

  test("an error that its column cuts is whole below the row, with the id of its task", async () => {
    const error = 'insert or update on table "invoice" violates foreign key constraint "invoice_customer_id_fkey"';
    await asManager(`UPDATE task SET state = 'FAIL', error = E'ERROR:  ${error}\nDETAIL:  more' WHERE id = 1`);
    await asManager("UPDATE task SET attempt = 2, retry = 3, error = 'ERROR:  division by zero' WHERE id = 13");
    await asManager(
      "INSERT INTO task (id, input, rule, zone, plan, ready) VALUES (14, '', '* * * * *', 'Mars/Base', '2199-01-01', false)",
    );
    const table = await shown(80);
    for (const line of table) assert.ok(line.length <= 80, `${line.length}: ${line}`);
    const below = (id: number): string[] => {
      const lower = table.slice(table.findIndex((line) => line.startsWith(`${id} `)) + 1);
      return lower.slice(
        0,
        lower.findIndex((line) => !line.startsWith("  ")),
      );
    };
    assert.deepEqual(below(13), ["  try 2: division by zero"]);
    assert.deepEqual(below(14), ['  no times: time zone "Mars/Base" not recognized']);
    assert.equal(
      below(12)
        .map((line) => line.trim())
        .join(" "),
      `task 1: ${error}`,
    );
    assert.ok(!(await shown(500)).some((line) => line.startsWith("  ")));
  });

  test("zones take no space if no schedule has one", async () => {
    await client.query("TRUNCATE task");
    await client.query(
      "INSERT INTO task (id, input, repeat, plan) VALUES (4, 'SELECT 4', '1 day', '2197-01-01 00:00+00')",
    );
    assert.match((await shown(80))[0] ?? "", /^id +group +rule +next +last +input$/);
  });

  test("before a pipe, all fields are whole", async () => {
    const { stdout } = await cli(["list", "--schedules"], { env: { ...env, COLUMNS: "80" } });
    const fields = linesOf(stdout)[1]?.split("\t") ?? [];
    const [id, group, rule, zone, next, last, shownInput, paused, shownKey] = fields;
    assert.deepEqual(
      [id, group, rule, zone, last, shownInput, paused, shownKey],
      ["12", "reports of the north", "30 3 * * 1-5", "America/Argentina/Buenos_Aires", "DONE", input, "false", key],
    );
    assert.match(next ?? "", /^2199-03-29T03:30:00-03:00, 2199-.*, 2199-.*-03:00$/);
  });
});

/** Returns what doctor says about pauses. */
const pauses = async (): Promise<(readonly [level: string, text: string, remedy: string])[]> =>
  (await doctor(env)).lines
    .filter(({ name }) => name === "pauses")
    .map(({ level, text, remedy }) => [level, text, remedy]);

describe("paused schedules", () => {
  test("doctor, why and list say that a schedule or a group is suspended", async () => {
    await client.query(
      `INSERT INTO task_pause ("group", reason) VALUES ('mail', 'suspended after 3 failures in a row')`,
    );
    await asManager(
      `INSERT INTO task (id, input, key, rule, zone, plan, due, ready, suspend, failures)
       VALUES (1, '', 'nightly', '0 5 1 1 *', 'UTC', 'infinity', '2020-01-01', false, 10, 10)`,
    );
    assert.deepEqual(
      (await pauses()).map(([, text]) => text),
      [
        'paused: "mail" (suspended after 3 failures in a row)',
        "paused: 1 schedule: nightly (schedule 1), suspended after 10 failures in a row",
      ],
    );
    assert.match((await run("why", "1")).stdout, /its schedule is suspended after 10 failures in a row\t/);
    assert.match(await shownBy(["list", "--schedules"], { columns: 200 }), /suspended after 10 failures in a row/);
    const [[, changed] = []] = [await fieldsOf("resume", "--schedule", "1")].flat();
    assert.equal(changed, "changed");
    assert.deepEqual((await client.query("SELECT failures, plan > now() AS planned FROM task")).rows, [
      { failures: null, planned: true },
    ]);
  });

  test("doctor and status count them, and name the command that resumes them", async () => {
    await client.query(
      `INSERT INTO task (id, input, key, rule, zone) VALUES (1, '', 'nightly', '0 5 1 1 *', 'UTC'), (2, '', NULL, '0 6 1 1 *', 'UTC')`,
    );
    await client.query("INSERT INTO task (id, input, repeat, plan) VALUES (3, '', '1 day', '2199-01-01')");
    // Neither a task that is never due nor a schedule that waits for others is paused.
    await client.query("INSERT INTO task (id, input, plan) VALUES (4, '', 'infinity')");
    await client.query(`INSERT INTO task (id, input, "group", repeat, after) VALUES (5, '', 'g', '1 day', '{4}')`);
    assert.deepEqual(await pauses(), [["ok", "none", String.raw`\N`]]);
    assert.doesNotMatch((await run("status")).stdout, /paused/);
    assert.equal((await run("pause", "--schedule", "1,3")).code, 0);
    const resume = "pg-task resume --schedule 1,3";
    const text = "paused: 2 schedules: nightly (schedule 1), schedule 3";
    assert.deepEqual(await pauses(), [["warn", text, `resume with ${resume}`]]);
    assert.match(
      (await run("status")).stdout,
      /^ {2}paused {5}2 schedules: resume with pg-task resume --schedule 1,3$/m,
    );
    const { tables } = JSON.parse((await run("status", "--json")).stdout);
    assert.deepEqual(tables[0].pausedSchedules, {
      count: 2,
      first: [
        { id: "1", key: "nightly", role: null, suspendedAfter: null },
        { id: "3", key: null, role: null, suspendedAfter: null },
      ],
    });
    await run("pause", "--group", "g");
    assert.deepEqual(
      (await pauses()).map(([, each]) => each),
      ['paused: "g"', text],
    );
    assert.equal((await cli(resume.split(" ").slice(1), { env })).code, 0);
    await run("resume", "--group", "g");
    assert.deepEqual(await pauses(), [["ok", "none", String.raw`\N`]]);
  });

  test("doctor names five of them at most", async () => {
    await client.query(
      "INSERT INTO task (input, repeat, plan) SELECT '', '1 day', 'infinity' FROM generate_series(1, 7)",
    );
    const names = [1, 2, 3, 4, 5].map((id) => `schedule ${id}`).join(", ");
    const remedy = "resume with pg-task resume --schedule and the ids that pg-task list --schedules shows";
    assert.deepEqual(await pauses(), [["warn", `paused: 7 schedules: ${names}, 2 more`, remedy]]);
  });
});

describe("pg-task pause --schedule", () => {
  test("pauses and resumes schedules, which keep their place", async () => {
    await client.query(
      `INSERT INTO task (id, input, rule, zone) VALUES (1, 'SELECT 1', '0 5 1 1 *', 'UTC'), (2, 'SELECT 2', 'SELECT now()', NULL)`,
    );
    await client.query(
      `INSERT INTO task (id, input, repeat, plan) VALUES (3, 'SELECT 3', '1 year', '2199-01-01 00:00+00'), (4, 'SELECT 4', '0', '2199-01-01')`,
    );
    await asManager(
      `INSERT INTO task (id, input, repeat, plan, state, ready, take, owner) VALUES (5, 'SELECT 5', '1 day', '2020-01-01', 'WORK', NULL, now(), 'x')`,
    );
    const before = (await client.query("SELECT id, plan FROM task WHERE id IN (1, 3) ORDER BY id")).rows;
    const paused = await run("pause", "--schedule", "1,2,3,4,5,404");
    assert.equal(paused.code, 1);
    assert.deepEqual(
      linesOf(paused.stdout).map((line) => line.split("\t").slice(0, 3)),
      [
        ["1", "changed", "paused"],
        ["2", "refused", "its next time is being computed: try again"],
        ["3", "changed", "paused"],
        ["4", "refused", "not a schedule"],
        ["5", "refused", "running: pause its group, or pause it when the run has ended"],
        ["404", "missing", "no such task"],
      ],
    );
    assert.deepEqual((await storedRows()).filter((row) => JSON.stringify(row).includes('"halted":true')).length, 2);
    assert.match((await run("pause", "--schedule", "1")).stdout, /already paused/);
    const resumed = await run("resume", "--schedule", "1,3,4");
    assert.deepEqual(
      linesOf(resumed.stdout).map((line) => line.split("\t")[2]),
      ["resumed", "resumed", "not a schedule"],
    );
    assert.deepEqual((await client.query("SELECT id, plan FROM task WHERE id IN (1, 3) ORDER BY id")).rows, before);
    assert.deepEqual((await client.query("SELECT due FROM task WHERE id IN (1, 3)")).rows, [
      { due: null },
      { due: null },
    ]);
  });

  test("says of each other state why there is nothing to pause or resume", async () => {
    await client.query("INSERT INTO task (id, input, plan) VALUES (1, '', '2199-01-01')");
    await client.query(
      `INSERT INTO task (id, input, repeat, plan, after) VALUES (2, '', '1 day', '2199-01-01', '{1}')`,
    );
    await asManager(
      `INSERT INTO task (id, input, repeat, state, ready) VALUES (3, '', '1 day', 'DONE', NULL), (4, '', '1 day', 'STOP', NULL)`,
    );
    assert.deepEqual(await texts("pause", "--schedule", "2,3,4"), [
      "it waits for other tasks: pause its group, or pause it when these have ended",
      "is DONE: pause the task of its next run, if there is one",
      "is STOP: pause the task of its next run, if there is one",
    ]);
    assert.deepEqual(await texts("resume", "--schedule", "2,3,4"), [
      "not paused: it waits for other tasks",
      "not paused",
      "not paused",
    ]);
    assert.deepEqual((await client.query("SELECT due = '2199-01-01' AS kept FROM task WHERE id = 2")).rows, [
      { kept: true },
    ]);
    // It is not listed as paused either.
    assert.match(await shownBy(["list", "--schedules"]), /2 .* every 1 day .* not yet known/);
  });

  test("goes on at the first time after now, in step with the schedule", async () => {
    await asManager(
      `INSERT INTO task (id, input, repeat, plan, due, ready) VALUES (1, '', '1 day', 'infinity', now() - interval '36 hours', false)`,
    );
    assert.match((await run("resume", "--schedule", "1")).stdout, /resumed/);
    const { rows: resumed } = await client.query(
      "SELECT plan > now() AND plan < now() + interval '12 hours' AS right FROM task",
    );
    assert.deepEqual(resumed, [{ right: true }]);
  });

  test("resume drops the try for which a run waits, says so, and lets the next run have all its tries", async () => {
    const results = "attempt, retry, crash, start, stop, pid, output, error, errors";
    const tried = `3, 3, 1, now(), now(), 42, 'part', 'ERROR:  no', '[{"error": "ERROR:  no"}]'`;
    await asManager(
      `INSERT INTO task (id, input, rule, zone, repeat, plan, due, ready, key, ${results}) VALUES
         (1, '', '0 5 1 1 *', 'UTC', '0', now() + interval '1 minute', '2020-01-01 05:00+00', false, 'yearly', ${tried}),
         (2, '', NULL, NULL, '1 year', now() + interval '1 minute', '2020-01-01 05:00+00', false, NULL, ${tried}),
         (3, '', NULL, NULL, '1 year', now() + interval '1 minute', '2020-01-01 05:00+00', false, NULL, ${tried})`,
    );
    const paused = "paused; resume drops its waiting retry 3, run-now makes it";
    assert.deepEqual(await texts("pause", "--schedule", "1,2,3"), [paused, paused, paused]);
    const resumed = "resumed; its waiting retry 3 was dropped, and the next run has all its tries";
    assert.deepEqual(await texts("resume", "--key", "yearly"), [resumed]);
    assert.deepEqual(await texts("resume", "--schedule", "2"), [resumed]);
    assert.deepEqual(await texts("run-now", "3"), ["due now; its schedule is no longer paused"]);
    const { rows } = await client.query(
      `SELECT id, plan > now() AND extract(month FROM plan AT TIME ZONE 'UTC') = 1 AS next, due, ${results} FROM task ORDER BY id`,
    );
    const fresh = { next: true, due: null, attempt: 0, retry: 3, crash: 0 };
    const none = { start: null, stop: null, pid: null, output: null, error: null, errors: null };
    assert.deepEqual(rows.slice(0, 2), [
      { id: "1", ...fresh, ...none },
      { id: "2", ...fresh, ...none },
    ]);
    // The try is made in its place of the schedule.
    const { rows: kept } = await client.query(
      "SELECT plan <= now() AS is_due, due = '2020-01-01 05:00+00' AS in_place, attempt, error FROM task WHERE id = 3",
    );
    assert.deepEqual(kept, [{ is_due: true, in_place: true, attempt: 3, error: "ERROR:  no" }]);
  });

  test("does not resume a schedule whose rule is over, and says why a rule is invalid", async () => {
    await asManager(
      `INSERT INTO task (id, input, rule, zone, plan, ready) VALUES
         (1, '', E'DTSTART;TZID=UTC:20200101T000000\\nRRULE:FREQ=DAILY;COUNT=1', 'UTC', 'infinity', false),
         (2, '', '61 * * * *', 'UTC', 'infinity', false)`,
    );
    const { code, stdout } = await run("resume", "--schedule", "1", "--schedule", "2");
    assert.equal(code, 1);
    assert.match(stdout, /^1\trefused\tits rule has no further times\n2\tfailed\tthe server refused: rule "61/);
  });

  test("cannot be combined with --group or --reason, nor ids with --key", async () => {
    for (const [args, message] of [
      [["--schedule", "1", "--group", "x"], /expected --group or --schedule, got both/],
      [["--schedule", "1", "--reason", "x"], /--reason cannot be combined with --schedule/],
      [["--key", "x", "--group", "x"], /expected --group or --key, got both/],
      [["--key", "x", "--reason", "x"], /--reason cannot be combined with --key/],
      [["--key", "x", "--schedule", "1"], /expected --schedule or --key, got both/],
    ] as const) {
      await failsWith(run("pause", ...args), 2, message);
    }
  });

  test("says of a word that is no id where ids and names are given", async () => {
    for (const command of ["pause", "resume"]) {
      await failsWith(
        run(command, "--schedule", "1,nightly"),
        2,
        /expected the id of a schedule, got "nightly": list --schedules shows the ids, and --key takes a key instead/,
      );
    }
  });

  test("--key pauses and resumes the schedule with the key", async () => {
    await client.query(
      `INSERT INTO task (id, input, rule, zone, key) VALUES (1, '', '0 5 1 1 *', 'UTC', 'nightly'), (2, '', '0 5 1 1 *', 'UTC', 'other')`,
    );
    const before = (await client.query("SELECT id, plan, due FROM task ORDER BY id")).rows;
    assert.equal(await outcome("pause", "--key", "nightly"), "0 1 changed paused\n");
    assert.deepEqual(await storedRows(), [
      { id: "1", halted: true, due: before[0]?.plan },
      { id: "2", halted: false, due: null },
    ]);
    assert.equal(await outcome("resume", "--key", "nightly"), "0 1 changed resumed\n");
    assert.deepEqual((await client.query("SELECT id, plan, due FROM task ORDER BY id")).rows, before);
    assert.equal(await outcome("pause", "--key", "none"), '1 pg-task: no task with the key "none"\n');
    // The row that runs carries the schedule, although another task waits with its key.
    await asManager(
      `INSERT INTO task (id, input, repeat, plan, state, ready, take, owner, key) VALUES (5, '', '1 day', '2020-01-01', 'WORK', NULL, now(), 'x', 'both')`,
    );
    await client.query("INSERT INTO task (id, input, plan, key) VALUES (6, '', '2199-01-01', 'both')");
    const running = "1 5 refused running: pause its group, or pause it when the run has ended\n";
    assert.equal(await outcome("pause", "--key", "both"), running);
    // The waiting one replaces the schedule if it has one of its own.
    await client.query("UPDATE task SET repeat = '1 day' WHERE id = 6");
    assert.equal(await outcome("pause", "--key", "both"), "0 6 changed paused\n");
    const { stdout } = await run("resume", "--key", "both", "--json");
    assert.deepEqual(
      JSON.parse(stdout).tasks.map(({ id, outcome: result }: { id: string; outcome: string }) => [id, result]),
      [["6", "changed"]],
    );
  });
});

test("says what becomes of the schedule of a task that is stopped, deleted, retried or run now", async () => {
  await client.query("INSERT INTO task (id, input, rule, zone) VALUES (1, '', '0 5 1 1 *', 'UTC')");
  await client.query("INSERT INTO task (id, input, repeat, plan) VALUES (2, '', '1 year', '2199-01-01')");
  await client.query("INSERT INTO task (id, input, plan) VALUES (3, '', '2199-01-01')");
  await asManager(
    `INSERT INTO task (id, input, repeat, plan, state, ready, take, owner) VALUES
       (4, '', '1 day', '2020-01-01', 'WORK', NULL, now(), 'x'), (5, '', '0', '2020-01-01', 'WORK', NULL, now(), 'x')`,
  );
  assert.deepEqual(await texts("stop", "1"), ["stopped before it ran; its schedule has ended"]);
  assert.deepEqual(await texts("retry", "1"), ["was STOP, runs again now; its schedule goes on"]);
  assert.deepEqual(await texts("delete", "1"), ["was PLAN, deleted; its schedule has ended"]);
  await run("pause", "--schedule", "2");
  assert.deepEqual(await texts("run-now", "2"), ["due now; its schedule is no longer paused"]);
  assert.deepEqual(await texts("run-now", "2"), ["due now"]);
  assert.deepEqual(await texts("stop", "3"), ["stopped before it ran"]);
  assert.deepEqual(await texts("delete", "3"), ["was STOP, deleted"]);
  assert.deepEqual(await texts("stop", "4"), [
    "cancelling; ends as DONE if already committed, otherwise its schedule ends",
  ]);
  assert.deepEqual(await texts("delete", "--running", "5"), ["was WORK, deleted; cancelling its run"]);
  const { stdout } = await run("stop", "2", "--json");
  assert.equal(JSON.parse(stdout).tasks[0].schedule, "ended");
  assert.deepEqual(await texts("delete", "2"), ["was STOP, deleted"]);
});

test("errors of the server are printed with their hints", async () => {
  const next = await run("next", "2:30");
  assert.equal(next.code, 2);
  assert.match(
    next.stderr,
    /got an interval \(SQLSTATE 22023\): next takes a rule; .*\nHINT: {2}for each day at 2:30, write 30 2 \* \* \*; otherwise set/,
  );
  await failsWith(
    run("next", "30 seconds"),
    2,
    /next takes a rule; with an interval as repeat, each planned time is simply the one before plus the interval\nHINT: {2}set repeat instead of rule: repeat = '30 seconds'\n$/,
  );
  const both = await run("add", "SELECT 1", "--rule", "@daily", "--repeat", "1 day");
  assert.match(
    both.stderr,
    /exclude each other \(SQLSTATE 22023\)\nHINT: {2}Set repeat = '0' for a rule, or rule = NULL and/,
  );
  const zone = await run("add", "SELECT 1", "--zone", "UTC");
  assert.match(zone.stderr, /zone is set without rule .*\nHINT: .* set zone = NULL\.\n$/);
  const plain = await run("next", "61 3 * * *");
  assert.doesNotMatch(plain.stderr, /HINT/);
  const refused = { DATABASE_URL: `${database.url}?options=-cbytea_output%3Dnone` };
  assert.match((await cli(["list"], { env: refused })).stderr, /\nHINT: {2}Available values: escape, hex\.\n$/);
});

test("next, add and INSERT say what a pasted event lacks", async () => {
  for (const [property, reason] of [
    ["SUMMARY:only", "its event has neither DTSTART nor RRULE"],
    [
      "DTSTART:20990101T090000Z",
      "its event has no RRULE or RDATE: to run once, at its DTSTART, set plan instead of rule",
    ],
  ] as const) {
    const rule = `BEGIN:VEVENT\n${property}\nEND:VEVENT`;
    const message = `rule "BEGIN:VEVENT...": ${reason}`;
    const insert = client.query("INSERT INTO task (input, rule) VALUES ('SELECT 1', $1)", [rule]);
    await assert.rejects(insert, { code: "22023", message });
    for (const args of [
      ["next", rule],
      ["add", "SELECT 1", "--rule", rule],
    ]) {
      const { code, stdout, stderr } = await cli(args, { env });
      assert.deepEqual([code, stdout], [2, ""]);
      assert.ok(stderr.includes(message), stderr);
    }
  }
});

test("next and add say that what has spaces needs quotes", async () => {
  await failsWith(
    run("next", "30", "2", "*", "*", "*"),
    2,
    /^pg-task: too many arguments .*: put the rule in quotes, such as pg-task next '30 2 \* \* \*'\n$/,
  );
  const add = await run("add", "SELECT", "1");
  assert.match(add.stderr, /^pg-task: too many arguments .*: put the SQL in quotes, such as pg-task add 'SELECT 1'\n$/);
});

for (const [how, rows] of [
  [
    "that goes on in a successor",
    `(1, NULL, '', '0 5 1 1 *', 'UTC', '2020-01-01', 'FAIL', NULL, '2020-01-01', false),
     (2, 1, '', '0 5 1 1 *', 'UTC', '2199-01-01', 'PLAN', false, NULL, false)`,
  ],
  [
    "that has left its successor with overlap",
    `(1, NULL, '', '0 5 1 1 *', 'UTC', '2020-01-01', 'GONE', NULL, '2020-01-01', true),
     (2, 1, '', NULL, NULL, '2021-01-01', 'DONE', NULL, '2021-01-01', true),
     (3, 2, '', '0 5 1 1 *', 'UTC', '2199-01-01', 'PLAN', false, NULL, true)`,
  ],
] as const) {
  test(`retry does not start a second series of a rule ${how}`, async () => {
    await asManager(
      `INSERT INTO task (id, parent, input, rule, zone, plan, state, ready, stop, overlap) VALUES ${rows}`,
    );
    const before = (await client.query("SELECT id, rule FROM task WHERE id > 1 ORDER BY id")).rows;
    assert.match((await run("retry", "1")).stdout, /does not repeat, because its successor exists/);
    assert.deepEqual((await client.query("SELECT id, rule FROM task ORDER BY id")).rows, [
      { id: "1", rule: null },
      ...before,
    ]);
    assert.deepEqual((await client.query("SELECT state FROM task WHERE id = 1")).rows, [{ state: "PLAN" }]);
  });
}

/** Returns the zone in which `next` computes the times of a rule, if the configuration has this `pg_task.zone`. */
async function zoneOf(rule: string, configured: string): Promise<unknown> {
  const config = join(await temporaryFolder(), "pg_task.json");
  await writeFile(config, JSON.stringify({ url: database.url, "pg_task.zone": configured }));
  const { stdout, stderr } = await cli(["next", rule, "--json", "--config", config]);
  assert.equal(stderr, "");
  return JSON.parse(stdout).zone;
}

/** @param change what follows ALTER DATABASE, inside quotes */
const alterDatabase = async (change: string): Promise<unknown> =>
  await client.query(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I ${change}', current_database()); END $$`);

describe("pg-task next", () => {
  const berlin = ["--zone", "Europe/Berlin", "--since", "2027-03-26 12:00+00"];

  for (const [where, url] of [
    ["of the table's schema", database.url],
    ["that it creates itself where pg-task has never run", empty.url],
  ] as const) {
    test(`shows the times of a cron rule over a change of the clocks, with the functions ${where}`, async () => {
      const { code, stdout, stderr } = await cli(["next", "30 2 * * *", ...berlin, "-n", "3"], {
        env: { DATABASE_URL: url },
      });
      assert.deepEqual([code, stderr], [0, ""]);
      assert.deepEqual(
        linesOf(stdout).map((line) => line.split("\t").slice(0, 2)),
        [
          ["2027-03-27T02:30:00+01:00", "2027-03-27T01:30:00Z"],
          ["2027-03-28T03:00:00+02:00", "2027-03-28T01:00:00Z"],
          ["2027-03-29T02:30:00+02:00", "2027-03-29T00:30:00Z"],
        ],
      );
      assert.notEqual(linesOf(stdout)[1]?.split("\t")[2], String.raw`\N`, "the change of the clocks is noted");
    });
  }

  test("reads --since by the clock of the rule's zone, unless it names another", async () => {
    for (const [zone, since, first] of [
      ["Europe/Berlin", "2027-10-31", "2027-11-01T00:00:00+01:00"],
      ["Europe/Berlin", "2027-10-30 23:59:59", "2027-10-31T00:00:00+02:00"],
      ["America/New_York", "2027-10-30 23:59:59", "2027-10-31T00:00:00-04:00"],
      ["America/New_York", "2027-10-31 00:00 Europe/Berlin", "2027-10-31T00:00:00-04:00"],
    ] as const) {
      for (const url of [database.url, empty.url]) {
        const args = ["next", "0 0 * * *", "--zone", zone, "--since", since, "-n", "1"];
        const { stdout } = await cli(args, { env: { DATABASE_URL: url } });
        assert.equal(stdout.split("\t")[0], first, `${zone} ${since}`);
      }
    }
    const { stdout } = await run("next", "0 0 * * *", "-z", "Asia/Tokyo", "--since", "2027-10-31", "--json");
    assert.match(JSON.parse(stdout).times[0].at, /^2027-10-31T15:00:00\+00:00$/, "at is in the zone of the session");
  });

  test("uses the zone that an INSERT would use", async () => {
    const named = "DTSTART;TZID=Asia/Tokyo:20300101T000000\nRRULE:FREQ=DAILY";
    assert.equal(await zoneOf("@daily", "America/New_York"), "America/New_York");
    assert.equal(await zoneOf(named, "America/New_York"), "Asia/Tokyo");
    await alterDatabase("SET pg_task.zone = ''Europe/Berlin''");
    assert.equal(await zoneOf("@daily", "America/New_York"), "Europe/Berlin");
    await alterDatabase("RESET pg_task.zone");
    await alterDatabase("SET TimeZone = ''Europe/Paris''");
    assert.equal(await zoneOf("@daily", ""), "Europe/Paris");
    await alterDatabase("RESET TimeZone");
  });

  test("leaves nothing behind in a database without pg-task", async () => {
    const untouched = await emptyClient.query(
      "SELECT count(*)::integer AS count FROM pg_proc WHERE proname LIKE 'task%'",
    );
    await cli(["next", "@daily"], { env: { DATABASE_URL: `${empty.url}?options=-csearch_path%3Dnowhere` } });
    const after = await emptyClient.query("SELECT count(*)::integer AS count FROM pg_proc WHERE proname LIKE 'task%'");
    assert.deepEqual(after.rows, untouched.rows);
  });

  test("prints JSON with the zone, which is the database's by default", async () => {
    const { stdout } = await run("next", "FREQ=DAILY;COUNT=2", "--json");
    const { rule, zone, times } = JSON.parse(stdout);
    assert.equal(rule, "FREQ=DAILY;COUNT=2");
    assert.equal(zone, (await client.query("SHOW timezone")).rows[0]?.TimeZone);
    assert.ok(times.length >= 1 && times.length <= 2);
    assert.deepEqual(Object.keys(times[0]), ["at", "wall", "offset", "note"]);
  });

  test("says on a terminal which zone the times are in, and that a rule has ended", async () => {
    assert.match(
      await nextOnTerminal("30 2 * * *", ...berlin, "-n", "1"),
      /^time +utc +note\n2027-03-27 02:30:00\+01:00 .*\nzone Europe\/Berlin\n$/,
    );
    assert.match(
      await nextOnTerminal("DTSTART:20200101T000000Z\nRRULE:FREQ=DAILY;COUNT=1"),
      /the rule has no such time\n$/,
    );
  });

  for (const [args, message] of [
    [["61 * * * *"], /61/],
    [["FREQ=NEVER"], /FREQ/],
    [["SELECT now()"], /query/],
    [["* * * * *", "--zone", "Mars/Base"], /time zone "Mars\/Base"/],
    [["* * * * *", "--zone", "Europe/Berln"], /"Europe\/Berln" not recognized .*: perhaps "Europe\/Berlin"$/m],
    [["* * * * *", "--zone", "Berlin"], /"Berlin" not recognized .*: perhaps "Europe\/Berlin"$/m],
    [["* * * * *", "--zone", "Germany/Berlin"], /: perhaps "Europe\/Berlin"$/m],
    [["* * * * *", "--zone", "new york"], /: perhaps "America\/New_York"$/m],
    [["* * * * *", "--zone", "Pariss"], /: perhaps "Europe\/Paris"$/m],
    [["* * * * *", "--zone", "Louisville"], /: perhaps "America\/.*" or "America\/.*"$/m],
    [["0 9 * * Mo-Fr"], /'Mo-Fr' is not understood .*: write MON-FRI$/m],
    [["0 9 * * MON-FR"], /: write MON-FRI$/m],
    [["0 9 * * Lun"], /: weekdays are SUN, MON, TUE, WED, THU, FRI, SAT$/m],
    [["* * * * *", "--since", "whenever"], /"whenever"/],
    [["* * * * *", "--count", "0"], /expected a whole number from 1 to 1000/],
  ] as const) {
    test(`rejects ${JSON.stringify(args)} with the server's message`, async () => {
      await failsWith(run("next", ...args), 2, message);
    });
  }
});

describe("doctor and check", () => {
  test("find nothing wrong with schedules that have all their times", async () => {
    await client.query(
      `INSERT INTO task (input, rule, zone) VALUES ('', '30 2 * * *', 'Europe/Berlin'),
         ('', 'FREQ=DAILY;BYHOUR=4;BYMINUTE=0;BYSECOND=0', 'Europe/Berlin'), ('', 'FREQ=DAILY;BYHOUR=2;BYMINUTE=30;BYSECOND=0', 'UTC'),
         ('', 'FREQ=HOURLY;BYMINUTE=30;BYSECOND=0', 'Europe/Berlin'), ('', 'SELECT now()', NULL)`,
    );
    assert.equal((await findings())[0]?.text, "5 schedules: no problem found, and no last run or try failed");
    // A schedule is the row that waits; its runs are the rows before it.
    const { rows } = await client.query<{ id: string }>(
      "INSERT INTO task (input, rule, state, start, stop, error) VALUES ('', '0 3 * * *', 'FAIL', now(), now(), 'no') RETURNING id",
    );
    const failed = rows[0]?.id;
    await client.query("INSERT INTO task (input, rule, parent) VALUES ('', '0 3 * * *', $1)", [failed]);
    const { lines: after, code } = await doctor(env);
    const warning = after.find(({ name }) => name === "schedules");
    assert.equal(warning?.level, "warn");
    assert.match(warning.text, /^the last run or try of 1 schedule failed: schedule \d+$/);
    assert.match(warning.remedy, /pg-task list --schedules/);
    // Only the missing manager lets the command fail.
    assert.deepEqual([code, after.filter(({ level }) => level === "fail").map(({ name }) => name)], [4, ["manager"]]);
    await client.query("TRUNCATE task");
    await client.query(
      "INSERT INTO task (id, input, key, rule, attempt, error) VALUES (9, '', 'nightly', '0 3 * * *', 1, 'no')",
    );
    assert.equal((await findings())[0]?.text, "the last run or try of 1 schedule failed: nightly (schedule 9)");
    await client.query("TRUNCATE task");
    assert.equal((await findings())[0]?.text, "none");
  });

  test("names the command that resumes each paused group", async () => {
    await client.query(`INSERT INTO task_pause ("group") VALUES ('mail'), ('a list')`);
    const { lines: found } = await doctor(env);
    const paused = found.find(({ name }) => name === "pauses");
    assert.match(paused?.remedy ?? "", /pg-task resume .*--group mail\b/);
    assert.match(paused?.remedy ?? "", /pg-task resume .*--group 'a list'/);
  });

  test("warn of a recurrence rule whose time does not exist on one day, and name the cron rule", async () => {
    await client.query(
      `INSERT INTO task (id, input, rule, zone) VALUES (1, '', 'FREQ=DAILY;BYHOUR=2;BYMINUTE=30;BYSECOND=0', 'Europe/Berlin'),
         (2, '', 'FREQ=MONTHLY;BYDAY=-1SU;BYHOUR=2;BYMINUTE=15;BYSECOND=0', 'Europe/Berlin')`,
    );
    // The clocks are set forward on the last Sunday of March. Within a year from then, there can be two such days.
    const { rows } = await client.query<{ day: string }>(
      `SELECT to_char(d, 'YYYY-MM-DD') AS day FROM (SELECT extract(year FROM now())::integer + i AS year FROM generate_series(0, 1) AS i) AS y,
         LATERAL generate_series(make_date(year, 3, 25), make_date(year, 3, 31), '1 day') AS d
       WHERE extract(dow FROM d) = 0 AND (d::date + time '01:00') AT TIME ZONE 'UTC' BETWEEN now() AND now() + interval '1 year' ORDER BY d`,
    );
    const lost = (time: string): string => rows.map(({ day }) => `${day} ${time}`).join(", ");
    // On the day before the last Sunday of a month, the monthly schedule comes first.
    const [everyDay, monthly] = (await warnings()).toSorted((one, other) => one.text.localeCompare(other.text));
    assert.equal(
      everyDay?.text,
      `schedule 1 (FREQ=DAILY;BYHOUR=2;BYMINUTE=30;BYSECOND=0) leaves out ${lost("02:30")}, which ${rows.length === 1 ? "does" : "do"} not exist in Europe/Berlin: the clocks are set forward`,
    );
    assert.match(everyDay?.remedy ?? "", /SET rule = '30 2 \* \* \*' WHERE id = 1/);
    assert.match(monthly?.text ?? "", new RegExp(`leaves out ${lost("02:15")}`));
    assert.doesNotMatch(monthly?.remedy ?? "", /SET rule/);
    const { stdout, code } = await run("check");
    assert.equal(code, 0);
    assert.match(stdout, new RegExp(`^warning +"public"."task": schedule 1 .*${lost("02:30")}`, "m"));
  });

  test("do not warn of times that other lines of a recurrence rule name in zones of their own", async () => {
    // The clocks of Berlin are set forward to 03:00. Tokyo's clocks show 02:30 on every day, and so do those of UTC.
    const { rows } = await client.query<{ day: string }>(
      `SELECT to_char(d, 'YYYYMMDD') AS day FROM generate_series(now(), now() + interval '1 year', '1 day') AS d
       WHERE extract(month FROM d) = 3 AND extract(day FROM d) > 24 AND extract(dow FROM d) = 0 LIMIT 1`,
    );
    const day = rows[0]?.day ?? "";
    const start = "DTSTART;TZID=Europe/Berlin:20260101T090000\nRRULE:FREQ=YEARLY";
    await client.query(`INSERT INTO task (id, input, rule) VALUES (1, '', $1), (2, '', $2), (3, '', $3), (4, '', $4)`, [
      `${start}\nRDATE;TZID=Asia/Tokyo:${day}T023000`,
      `${start}\nRDATE:${day}T023000Z`,
      // 00:30 in UTC is 01:30 in Berlin on that day, and the event is at 02:30 on each day.
      `DTSTART;TZID=Europe/Berlin:20260101T023000\nRRULE:FREQ=DAILY\nEXDATE;TZID=Asia/Tokyo:${day}T023000\nEXDATE:${day}T023000Z`,
      `DTSTART;TZID=Europe/Berlin:20260101T023000\nRRULE:FREQ=DAILY\nEXDATE;VALUE=DATE:${day}`,
    ]);
    const ids = (await warnings()).map(({ text }) => /^schedule \d+/.exec(text)?.[0]);
    assert.deepEqual(ids, ["schedule 3"]);
  });

  test("read a DTSTART in UTC by the clocks of the schedule's zone", async () => {
    await client.query(
      `INSERT INTO task (id, input, rule, zone) VALUES (1, '', E'DTSTART:20260101T013000Z\\nRRULE:FREQ=DAILY', 'Europe/Berlin'),
         (2, '', E'DTSTART:20260101T023000Z\\nRRULE:FREQ=DAILY', 'Europe/Berlin')`,
    );
    const found = (await warnings()).map(({ text }) => text);
    assert.equal(found.length, 1);
    assert.match(found[0] ?? "", /^schedule 1 .* 02:30, /);
  });

  test("warn of rules and zones that have become invalid", async () => {
    await asManager(
      `INSERT INTO task (id, input, rule, zone, plan, ready) VALUES (1, '', '* * * * *', 'Mars/Base', '2199-01-01', false),
         (2, '', '61 * * * *', 'UTC', '2199-01-01', false)`,
    );
    const [zone, rule] = await warnings();
    assert.match(zone?.text ?? "", /^schedule 1 gives no times, .*time zone "Mars\/Base" not recognized$/);
    assert.match(rule?.text ?? "", /^schedule 2 gives no times, .*61/);
  });

  test("warn of a group whose schedules need more time than it has", async () => {
    await asManager(past(1, 11, 30, "rule, zone", "'* * * * *', 'UTC'"));
    await asManager(past(2, 12, 20, "repeat", "'1 min'"));
    assert.deepEqual(await warnings(), [], "50 s of work each minute");
    await asManager(past(3, 13, 30, "repeat", "'1 min'"));
    assert.deepEqual(
      (await warnings()).map(({ text }) => text),
      [
        'the schedules of group "busy" need 1.3 runs at the same time, and max allows 1: 11 (30 s every 1 min), 13 (30 s every 1 min), 12 (20 s every 1 min)',
      ],
    );
    await client.query("UPDATE task SET max = 1 WHERE id = 11");
    assert.deepEqual(await warnings(), []);
    await client.query("UPDATE task SET max = 0 WHERE id = 11");
    await run("pause", "--schedule", "13");
    assert.deepEqual(await warnings(), [], "a paused schedule needs no time");
  });
});
