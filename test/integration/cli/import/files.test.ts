import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach, describe } from "node:test";
import { createDatabase } from "../../../support/database.js";
import { cli, failsWith, linesOf, type CliResult } from "../../../support/cli.js";
import { importedJobs } from "../../../support/importLines.js";
import { test } from "../../../support/limitedTest.js";
import { temporaryFolder } from "../../../support/temporaryFolder.js";
import { PgTask } from "../../../support/pgTask.js";
import { Tasks } from "../../../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase();
const { target } = database;
const client = await database.connect();
const tasks = await Tasks.create(client);
const cwd = await temporaryFolder();
const env = { DATABASE_URL: database.url };

async function run(source: string, text: string, ...options: string[]): Promise<CliResult> {
  await writeFile(join(cwd, "file"), text);
  return await cli(["import", source, "file", ...options], { env, cwd });
}

const jobsOf = ({ stdout }: CliResult): string[][] => importedJobs(stdout);

/** What is said of the commands of a crontab. */
async function mappings(commands: readonly string[]): Promise<string[]> {
  const lines = commands.map((command) => `0 3 * * * ${command.replaceAll("DB", target.database)}`);
  const { stdout } = await run("crontab", `PGUSER=${target.user}\n${lines.join("\n")}\n`);
  return linesOf(stdout).map((line) =>
    line
      .split("\t")
      .filter((_, index) => index % 2 === 1)
      .join(": "),
  );
}

const added = `added in public.task of ${target.database}`;

// It serves the table, and starts nothing.
await client.query("INSERT INTO task_pause DEFAULT VALUES");
await pgTask.start({ url: database.url });

beforeEach(() => client.query("TRUNCATE task RESTART IDENTITY"));

describe("pg-task import crontab", () => {
  test("takes over what only calls psql", async () => {
    await writeFile(join(cwd, "night.sql"), "-- every night\nSELECT 1;\nSELECT 2;\n");
    const same = `same: ${added}`;
    assert.deepEqual(
      await mappings([
        `psql DB -c 'SELECT 1'`,
        `/usr/bin/psql -XqAtd DB -c "SELECT \\"a\\"" > /dev/null 2>&1`,
        `psql -U ${target.user} --dbname=DB --command='SELECT 1' >/dev/null`,
        `psql "dbname=DB user=${target.user}" -c 'SELECT 1'`,
        `${target.user} psql DB -c 'VACUUM' -v ON_ERROR_STOP=1`,
        `psql DB -1 -c 'SELECT 1' -c 'SELECT 2;'`,
        `psql DB -c 'SELECT to_char(now(), $$\\%$$)'`,
      ]),
      [same, same, same, same, same, same, same],
    );
    assert.deepEqual(await mappings([`psql DB -c 'SELECT 1' -c 'SELECT 2'`, `psql DB -f night.sql >> night.log`]), [
      `differs: its statements are one transaction here; ${added}`,
      `differs: its statements are one transaction here; a later change of night.sql does not count; its output is in the row instead of night.log; ${added}`,
    ]);
  });

  test("shows what it does not take over, and why", async () => {
    await writeFile(join(cwd, "meta.sql"), "SELECT 1;\n  \\i other.sql\n");
    assert.deepEqual(
      await mappings([
        "backup.sh",
        "psql DB -c 'SELECT 1' && mail",
        "psql DB -c 'SELECT 1' | mail",
        'psql DB -c "SELECT $USER"',
        "psql DB -c SELECT* ",
        "psql DB",
        "psql DB -c 'SELECT 1'%input",
        "psql DB -c '\\copy t to f'",
        "psql DB -f none.sql",
        "psql DB -f meta.sql",
        "psql DB -c 'COPY t FROM STDIN'",
        "psql DB -v day=1 -c 'SELECT :day'",
        "psql DB -o out -c 'SELECT 1'",
        "psql other -c 'SELECT 1'",
        "psql -h elsewhere DB -c 'SELECT 1'",
        "psql -U alice DB -c 'SELECT 1'",
        "psql DB user third -c 'SELECT 1'",
        "psql DB -c",
        "psql 'host=h nonsense=1' -c 'SELECT 1'",
      ]),
      [
        ...Array.from({ length: 5 }, () => "not mapped: it does not only call psql"),
        "not mapped: psql reads its standard input",
        "not mapped: its command has an input (%)",
        "not mapped: psql's command \\\\copy",
        "not mapped: the file none.sql cannot be read here",
        "not mapped: psql's command \\\\i",
        "not mapped: it reads its standard input",
        "not mapped: psql's variable day=1",
        "not mapped: psql's option -o",
        "not mapped: no entry for the database other",
        `not mapped: no entry for the database ${target.database} on elsewhere`,
        `not mapped: owner alice: needs users; or an entry with this user; or --any-owner, to let it run as ${target.user}`,
        "not mapped: psql's argument third",
        "not mapped: psql's option -c without a value",
        'not mapped: invalid connection option "nonsense"',
      ],
    );
  });

  test("moves lines with --apply, changes and never doubles them later, and brings them back", async () => {
    const db = target.database;
    const text = `# jobs\nCRON_TZ=Europe/Berlin\n30 3 * * 1-5 psql ${db} -c 'SELECT 1'\n@daily psql ${db} -c 'SELECT 2'\n5 5 * * * backup.sh\n`;
    const first = await run("crontab", text);
    assert.match(first.stderr, /2 the same, 0 differ, 1 not mapped; nothing was changed, --apply moves them\n$/);
    assert.equal(await tasks.value("SELECT count(*)::int FROM task"), 0);
    const moved = await run("crontab", text, "--apply");
    assert.match(
      moved.stderr,
      /install it after --apply and --back: crontab file\n.*2 the same, 0 differ, 1 not mapped\n$/,
    );
    const off = await readFile(join(cwd, "file"), "utf8");
    assert.equal(off, text.replaceAll(/^(?=30|@)/gm, "#pg-task# "));
    const rows = () =>
      tasks.rows<Record<string, unknown>>(
        `SELECT rule, zone, input, keep::text, data, plan = task_next(rule, zone) AS planned, state::text FROM task ORDER BY input`,
      );
    const common = { zone: "Europe/Berlin", keep: "7 days", data: null, planned: true, state: "PLAN" };
    assert.deepEqual(await rows(), [
      { ...common, rule: "30 3 * * 1-5", input: "SELECT 1" },
      { ...common, rule: "@daily", input: "SELECT 2" },
    ]);
    const again = await run("crontab", off.replace("30 3", "45 3"), "--apply");
    assert.deepEqual(
      jobsOf(again).map(([, mapping, note]) => `${mapping}: ${note}`),
      [
        `same: changed (rule) in public.task of ${db}`,
        `same: unchanged in public.task of ${db}`,
        "not mapped: it does not only call psql",
      ],
    );
    assert.deepEqual(
      (await rows()).map((row) => row["rule"]),
      ["45 3 * * 1-5", "@daily"],
    );
    await client.query("UPDATE task SET plan = 'infinity' WHERE rule = '@daily'");
    const seen = async () => [await rows(), await readFile(join(cwd, "file"), "utf8")];
    const before = await seen();
    const tried = await cli(["import", "crontab", "file", "--back", "--dry-run"], { env, cwd });
    assert.match(tried.stderr, /nothing was changed\n$/);
    assert.deepEqual(await seen(), before);
    const back = await cli(["import", "crontab", "file", "--back"], { env, cwd });
    assert.equal(back.stdout, tried.stdout);
    assert.deepEqual(
      linesOf(back.stdout)
        .map((line) => line.split("\t").slice(1).join(": "))
        .toSorted(),
      ["paused there: ends here, paused there", "runs there: ends here, runs there"],
    );
    // What was paused here stays switched off there.
    assert.equal(
      await readFile(join(cwd, "file"), "utf8"),
      text.replace("@daily", "#pg-task# @daily").replace("30 3", "45 3"),
    );
    assert.deepEqual(
      (await rows()).map((row) => [row["state"], row["data"]]),
      [
        ["STOP", null],
        ["STOP", null],
      ],
    );
  });

  test("names two lines with the same command differently, and needs a file to switch lines off", async () => {
    const line = `psql ${target.database} -c 'SELECT 1'\n`;
    const { stdout } = await run("crontab", `0 3 * * * ${line}0 4 * * * ${line}`);
    const [one = "", two] = jobsOf({ code: 0, stdout, stderr: "" }).map(([key]) => key);
    assert.equal(two, `${one} 2`);
    await failsWith(
      cli(["import", "crontab", "-", "--apply"], { env, cwd, input: line }),
      2,
      /expected a file, whose lines/,
    );
    await failsWith(cli(["import", "crontab"], { env, cwd }), 2, /expected a file for crontab/);
    await failsWith(cli(["import", "pg_cron", "file"], { env, cwd }), 2, /expected no file for pg_cron/);
    await failsWith(
      cli(["import", "crontab", "file", "--from", "postgres://h/d"], { env, cwd }),
      2,
      /--from is not for crontab/,
    );
    await failsWith(
      cli(["import", "pg_cron", "--apply", "--back"], { env, cwd }),
      2,
      /expected --apply or --back, got both/,
    );
    await failsWith(
      cli(["import", "pg_cron", "--apply", "--dry-run"], { env, cwd }),
      2,
      /expected --apply or --dry-run, got both/,
    );
  });
});

const calendar = (...events: string[]): string =>
  ["BEGIN:VCALENDAR", "VERSION:2.0", "X-WR-TIMEZONE:Europe/Paris", ...events, "END:VCALENDAR", ""].join("\r\n");

const event = (...lines: string[]): string => ["BEGIN:VEVENT", ...lines, "END:VEVENT"].join("\r\n");

describe("pg-task import ics", () => {
  test("takes over events whose description is SQL", async () => {
    const text = calendar(
      "BEGIN:VTIMEZONE\r\nTZID:Custom\r\nX-LIC-LOCATION:Europe/Berlin\r\nEND:VTIMEZONE",
      event(
        "UID:1",
        "DTSTART;TZID=Custom:20270104T090000",
        "RRULE:FREQ=WEEKLY;INTERVAL=2",
        "EXDATE;TZID=Custom:20270118T090000",
        "SUMMARY:Payroll\\, main",
        "DESCRIPTION:CALL pay(\\n  'a long line that is folde",
        " d')",
        "BEGIN:VALARM\r\nTRIGGER:-PT15M\r\nDESCRIPTION:ring\r\nEND:VALARM",
      ),
      event("DTSTART:20990301T120000", "SUMMARY:Once", "DESCRIPTION:SELECT 1"),
      event("DTSTART:20270301T000000Z", "RRULE:FREQ=DAILY;COUNT=3", "SUMMARY:Thrice", "DESCRIPTION:SELECT 3"),
    );
    const { stdout, stderr } = await run("ics", text, "--apply");
    assert.match(stderr, /3 the same, 0 differ, 0 not mapped\n$/, stdout);
    const rows = await tasks.rows(
      `SELECT key, zone, input, ARRAY(SELECT to_char(t.wall, 'YYYY-MM-DD HH24:MI') FROM task_times(rule, zone, '2026-01-01', 4) AS t) AS times, plan > now() AS later, isfinite(plan) AS planned FROM task ORDER BY id`,
    );
    const planned = { later: true, planned: true };
    assert.deepEqual(rows, [
      { ...planned, key: "ics Once", zone: "Europe/Paris", input: "SELECT 1", times: ["2099-03-01 12:00"] },
      {
        ...planned,
        key: "ics Payroll, main",
        zone: "Europe/Berlin",
        input: "CALL pay(\n  'a long line that is folded')",
        times: ["2027-01-04 09:00", "2027-02-01 09:00", "2027-02-15 09:00", "2027-03-01 09:00"],
      },
      {
        ...planned,
        key: "ics Thrice",
        zone: "UTC",
        input: "SELECT 3",
        times: ["2027-03-01 00:00", "2027-03-02 00:00", "2027-03-03 00:00"],
      },
    ]);
    const again = await run("ics", text, "--apply");
    assert.deepEqual(
      jobsOf(again).map(([, , note]) => note),
      Array.from({ length: 3 }, () => `unchanged in public.task of ${target.database}`),
    );
    const changed = await run("ics", text.replace("COUNT=3", "COUNT=4"), "--apply");
    assert.match(changed.stdout, /ics Thrice\tsame\tThrice\tchanged \(rule\)/);
    await cli(["import", "ics", "file", "--back"], { env, cwd });
    assert.equal(await tasks.value("SELECT count(*)::int FROM task WHERE state <> 'STOP'"), 0);
  });

  test("shows what it does not take over, and why", async () => {
    const { stdout } = await run(
      "ics",
      calendar(
        event("DTSTART:20200101T000000Z", "SUMMARY:past", "DESCRIPTION:SELECT 1"),
        event("DTSTART:20270101T000000Z", "SUMMARY:no SQL"),
        event("SUMMARY:no start", "DESCRIPTION:SELECT 1"),
        event("DTSTART:20270101T000000Z", "SUMMARY:off", "STATUS:CANCELLED", "DESCRIPTION:SELECT 1"),
        event("DTSTART:20270101T000000Z", "SUMMARY:moved", "RECURRENCE-ID:20270101T000000Z", "DESCRIPTION:SELECT 1"),
        "BEGIN:VTODO\r\nSUMMARY:todo\r\nEND:VTODO",
      ),
    );
    const notes = linesOf(stdout).map((line) => line.split("\t"));
    assert.ok(
      notes.every(([, mapping]) => mapping === "not mapped"),
      stdout,
    );
    const texts = notes.map(([, , name, note = ""]) => `${name}: ${note}`);
    for (const [index, pattern] of [
      /past: .* is over/,
      /no SQL: it has no DESCRIPTION/,
      /no start: it has no DTSTART/,
      /off: it is cancelled/,
      /moved: .*RECURRENCE-ID/,
      /todo: it is no event, but a VTODO/,
    ].entries())
      assert.match(texts[index] ?? "", pattern);
    assert.equal(await tasks.value("SELECT count(*)::int FROM task"), 0);
  });
});
