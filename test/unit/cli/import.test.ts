import assert from "node:assert/strict";
import { test } from "node:test";
import { ruleOf } from "../../../src/cli/import/dayLists.js";
import { readSchedule } from "../../../src/cli/import/pgCron.js";
import { findEntry } from "../../../src/cli/import/place.js";
import { parseShellCommand } from "../../../src/cli/import/shellWords.js";
import { notMapped } from "../../../src/cli/import/source.js";
import { stepsInput, type Step } from "../../../src/cli/import/steps.js";
import { taskTable } from "../../../src/manager/schema/taskTable.js";
import { makeEntry } from "../../support/taskTables.js";

void test("readSchedule reads what pg_cron reads of a schedule", () => {
  for (const [schedule, read] of [
    ["* * * * * *", "* * * * *"],
    ["*/1 * * * 6#1", "*/1 * * * 6"],
    ["0 3 * * 1,FRI-SUN/2?,4 extra words", "0 3 * * 1,FRI-SUN/2"],
    [" 5-10/2;\t*;3x.. 1 JAN *!", "5-10/2 * 1 JAN *"],
    ["@daily at night", "@daily"],
    ["0 10 $ * *", "0 10 $ * *"],
    ["0,30 8-17 * * MON-FRI", "0,30 8-17 * * MON-FRI"],
    ["1 2 3", "1 2 3"],
  ] as const)
    assert.equal(readSchedule(schedule), read);
});

void test("parseShellCommand reads the words of a command that runs one program, and no others", () => {
  for (const [text, words] of [
    [`psql -c 'a "b" $c'`, ["psql", "-c", 'a "b" $c']],
    [String.raw`psql -c "a \"b\" \$c 'd'"`, ["psql", "-c", `a "b" $c 'd'`]],
    [String.raw`psql  a\ b"c"'d' ''`, ["psql", "a bcd", ""]],
    ["psql >/dev/null 2>&1", ["psql"]],
    ["psql -c 'x' >> f", ["psql", "-c", "x"]],
  ] as const)
    assert.deepEqual(parseShellCommand(text)?.words, words, text);
  assert.deepEqual(parseShellCommand("psql >> a.log 2> b.log &>/dev/null")?.outputs, ["a.log", "b.log"]);
  for (const text of [
    "a; b",
    "a | b",
    "a && b",
    "a $b",
    'a "$b"',
    "a `b`",
    "a *",
    "a 'b",
    "(a)",
    "a < b",
    "a # b",
    "~/a",
    "",
  ])
    assert.equal(parseShellCommand(text), null, text);
});

const all = { minutes: [], hours: [], days: [], months: [], weekdays: [] };
const always = { start: "20260101T000000", starts: false, end: null, daily: [], dated: [] };

void test("ruleOf makes a recurrence rule of what cron cannot say", () => {
  assert.equal(ruleOf(all, always).rule, "* * * * *");
  assert.equal(ruleOf({ ...all, days: [-1], hours: [3, 4], minutes: [0] }, always).rule, "0 3,4 L * *");
  const both = ruleOf({ ...all, days: [13], weekdays: [5], hours: [3], minutes: [0] }, always);
  assert.equal(
    both.rule,
    "DTSTART:20260101T000000\nRRULE:FREQ=DAILY;BYMONTHDAY=13;BYDAY=FR;BYHOUR=3;BYMINUTE=0;BYSECOND=0",
  );
  const every = ruleOf(all, { ...always, starts: true, end: "20270101T000000Z" }).rule;
  assert.match(every, /;BYHOUR=0,1,.*,23;BYMINUTE=0,1,.*,59;BYSECOND=0;UNTIL=20270101T000000Z$/);
});

const tasks = taskTable("public", "task");

/** What each task of the chain runs and waits for. The tasks that a task plans follow it. */
function planOf(input: string): string[] {
  const [, escapes, json = ""] = /task_chain"\( ?(E?)'(.*)'::pg_catalog\.jsonb/s.exec(input) ?? [];
  const unquoted = json.replaceAll("''", "'");
  const steps: { input: string; upon?: string }[] = JSON.parse(
    escapes === "E" ? unquoted.replaceAll("\\\\", "\\") : unquoted,
  );
  return steps.flatMap((step) =>
    step.input.includes("task_chain")
      ? [`plan${step.upon === undefined ? "" : ` ${step.upon}`}`, ...planOf(step.input)]
      : [`${step.input}${step.upon === undefined ? "" : ` ${step.upon}`}`],
  );
}

const steps = (text: string): Step[] =>
  text.split(" ").map((word) => ({ input: word, ignoresErrors: word.startsWith("i") }));

void test("stepsInput lets the steps behind an ignored error run, but not those behind another one", () => {
  const chain = { key: "k", group: "g" };
  const plan = (text: string): string[] => planOf(stepsInput(tasks, steps(text), chain).input);
  assert.deepEqual(stepsInput(tasks, steps("f1"), chain), { input: "f1" });
  assert.deepEqual(plan("f1 f2 f3"), ["f1", "f2", "f3"]);
  assert.deepEqual(plan("f1 i2"), ["f1", "i2"]);
  assert.deepEqual(plan("i1 f2"), ["i1", "f2 end"]);
  assert.deepEqual(plan("f1 i2 f3"), ["f1", "plan", "i2", "f3 end"]);
  assert.deepEqual(plan("i1 f2 f3"), ["i1", "plan end", "f2", "f3"]);
  assert.deepEqual(plan("f1 i2 i3 f4"), ["f1", "plan", "i2", "plan end", "i3", "f4 end"]);
});

const entry = (database: string, user: string, table = "task") =>
  makeEntry({ host: "db.example.com", port: 5432, user, database, sslmode: "disable", connectTimeoutMs: 0 }, { table });
const [shop, alices, stock] = [entry("shop", "app"), entry("shop", "alice"), entry("stock", "app")];

/** Why there is no entry. */
const problem = (found: unknown): string => (typeof found === "string" ? found : "");

const job = (database: string | null, owner: string | null, host?: string) =>
  notMapped({ key: "k", id: "1", name: null, database, owner, host, active: true });

void test("findEntry finds the entry with the job's database and owner, and no other", () => {
  const entries = [shop, alices, stock];
  const find = (...[database, owner, host]: Parameters<typeof job>) =>
    findEntry(job(database, owner, host), entries, false);
  assert.equal(find("shop", "alice"), alices);
  assert.equal(find("shop", "app", "/var/run/postgresql"), shop);
  assert.equal(find("stock", null, "db.example.com"), stock);
  assert.equal(find("stock", "app", "other.example.com"), "no entry for the database stock on other.example.com");
  assert.equal(find("none", "app"), "no entry for the database none");
  assert.match(problem(find("shop", null)), /several entries fit: choose one/);
  assert.equal(
    find("shop", "bob"),
    "owner bob: needs users; or an entry with this user; or --any-owner, to let it run as app or alice",
  );
  assert.equal(findEntry(job("stock", "bob"), entries, true), stock);
  assert.equal(findEntry(job("shop", "alice"), entries, true), alices);
  assert.match(problem(findEntry(job("shop", "bob"), entries, true)), /several entries fit/);
  assert.match(
    problem(findEntry(job("shop", "app"), [shop, entry("shop", "app", "other")], false)),
    /several entries fit/,
  );
});
