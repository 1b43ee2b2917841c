import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { findParameter } from "../../src/shared/config/parameters.js";
import { test } from "../support/limitedTest.js";
import { projectPath, projectText } from "../support/project.js";

const file = projectPath("docs/pg_task.md");
const text = readFileSync(file, "utf8");
/** The rows of the page's tables: what is compared, and what pg-task does. Several names in a cell share a row. */
const rows = [...text.matchAll(/^\| ([^-].*?) *\| *(.*?) *\|$/gm)].flatMap(([, cell = "", here = ""]) =>
  cell.split(/; |(?<=^(?:`[^`]*`, )*`[^`]*`), (?=`)/).map((name) => ({ name, here })),
);
const names = new Set(rows.map(({ name }) => name));

/** The tests that show what the rows of the page say, as `FILE: TITLE`, by the name of the row. */
const evidence: Record<string, readonly string[]> = JSON.parse(projectText("test/documents/comparison.json"));

/** Returns patterns that match the names of the tests in a file. `(.+)` stands for an interpolated value. */
function testNamePatterns(source: string): RegExp[] {
  return [...source.matchAll(/\b(?:test|it)\(\s*(?:"((?:[^"\\]|\\.)*)"|`([^`]*)`)/g)].map(([, plain, template]) => {
    const parts = plain === undefined ? (template ?? "").split(/\$\{[^}]*\}/) : [plain];
    const escaped = parts.map((part) => part.replaceAll(/[\\^$.*+?()[\]{}|]/g, "\\$&"));
    return new RegExp(`^${escaped.join("(.+)")}$`);
  });
}

/** Whether the file has a test with this name. Interpolated values must occur in the file or be names of parameters. */
function hasTest(source: string, title: string): boolean {
  return testNamePatterns(source).some((name) => {
    const [found, ...parts] = name.exec(title) ?? [];
    return found !== undefined && parts.every((part) => source.includes(part) || findParameter(part) !== undefined);
  });
}

test("the tests that are named for docs/pg_task.md exist", () => {
  const named = Object.values(evidence).flat();
  assert.ok(named.length > 50);
  const missing = named.filter((it) => {
    const [name = "", ...title] = it.split(": ");
    const target = projectPath(name);
    return !existsSync(target) || !hasTest(readFileSync(target, "utf8"), title.join(": "));
  });
  assert.deepEqual(missing, []);
});

test("a missing test is found", () => {
  const source = 'test("one", f); it(`two ${of} three`, f); const of = ["kinds"];';
  assert.deepEqual(
    ["one", "two", "two kinds three", "two others three", "onee"].filter((it) => hasTest(source, it)),
    ["one", "two kinds three"],
  );
});

test("a test is named for each row of docs/pg_task.md that says same, and for no row that is missing", () => {
  const withoutTest = rows.filter(
    ({ name, here }) => /^same\b/.test(here) && !here.includes("see below") && evidence[name] === undefined,
  );
  assert.deepEqual(withoutTest, []);
  assert.deepEqual(
    Object.keys(evidence).filter((name) => name !== "other" && !names.has(name)),
    [],
  );
});

test("docs/pg_task.md lists every column and state", () => {
  const added = /pg-task adds (.*?)\.\n/s.exec(text)?.[1] ?? "";
  const described = projectText("docs/table.md");
  const columns = [...described.matchAll(/^\| (`\w+`)/gm)].map(([, name = ""]) => name);
  assert.deepEqual(
    columns.filter((name) => !names.has(name) && !added.includes(name)),
    [],
  );
  for (const state of ["PLAN", "TAKE", "WORK", "DONE", "FAIL", "GONE", "STOP"]) assert.ok(names.has(state), state);
});

test("docs/pg_task.md covers what the extension's first versions did differently", () => {
  const [, section = ""] = text.split("\n## What its first versions did differently\n");
  const topics = [...section.matchAll(/^\| (.+?) +\| .{20,}\|$/gm)].map(([, topic = ""]) => topic).join("\n");
  for (const topic of [
    "`drift` true",
    "`delete` false",
    "`max` 2: two at once",
    "types next to the names in the header",
    "`pg_task.database`",
    "a period for each database",
    "columns dt, queue, request, response",
    "9.4 and Greenplum",
  ])
    assert.ok(topics.includes(topic), topic);
});
