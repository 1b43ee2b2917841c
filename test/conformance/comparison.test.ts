import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { findParameter, parameters } from "../../src/shared/config/parameters.js";
import { test } from "../support/limitedTest.js";
import { projectPath } from "../support/project.js";

const file = projectPath("docs/pg_task.md");
const text = readFileSync(file, "utf8");
const rows = text.split("\n").filter((line) => line.startsWith("| ") && !line.startsWith("| -"));

const links = [...text.matchAll(/\]\((\.\.\/test\/[^) ]+)(?: "([^"]*)")?\)/g)].map(
  ([, path = "", title = ""]) => ({ path, title }),
);

/** The names that a test file gives to its tests, with (.+) where it puts something in. */
function namesIn(source: string): RegExp[] {
  return [...source.matchAll(/\b(?:test|it)\(\s*(?:"((?:[^"\\]|\\.)*)"|`([^`]*)`)/g)].map(
    ([, plain, template]) => {
      const parts = plain === undefined ? (template ?? "").split(/\$\{[^}]*\}/) : [plain];
      const escaped = parts.map((part) => part.replaceAll(/[\\^$.*+?()[\]{}|]/g, "\\$&"));
      return new RegExp(`^${escaped.join("(.+)")}$`);
    },
  );
}

/** What stands in a name's place has to be something the file has, or a parameter. */
function isTest(source: string, title: string): boolean {
  return namesIn(source).some((name) => {
    const [found, ...parts] = name.exec(title) ?? [];
    return (
      found !== undefined &&
      parts.every((part) => source.includes(part) || findParameter(part) !== undefined)
    );
  });
}

test("docs/pg_task.md names with each link a test that is there", () => {
  assert.ok(links.length > 50);
  const missing = links.filter(({ path, title }) => {
    const place = join(dirname(file), path);
    return !existsSync(place) || !isTest(readFileSync(place, "utf8"), title);
  });
  assert.deepEqual(missing, []);
});

test("a link to a test that is not there would be seen", () => {
  const source = 'test("one", f); it(`two ${of} three`, f); const of = ["kinds"];';
  assert.deepEqual(
    ["one", "two", "two kinds three", "two others three", "onee"].filter((it) =>
      isTest(source, it),
    ),
    ["one", "two kinds three"],
  );
});

test("docs/pg_task.md shows each same by a test", () => {
  const unshown = rows.filter(
    (row) => /\| same\b/.test(row) && !/\]\(\.\.\/test\/|see below/.test(row),
  );
  assert.deepEqual(unshown, []);
});

test("docs/pg_task.md leaves nothing open", () => {
  assert.deepEqual(
    rows.filter((row) => /\b(?:open|not yet)\b/i.test(row.split("|")[2] ?? "")),
    [],
  );
});

test("docs/pg_task.md has every column, state and parameter", () => {
  const firsts = new Set([...text.matchAll(/^\| `?(\w+)`? +\|/gm)].map(([, name = ""]) => name));
  const added = /pg-task adds (.*?)\./s.exec(text)?.[1] ?? "";
  const described = readFileSync(projectPath("docs/table.md"), "utf8");
  const columns = [...described.matchAll(/^\| `(\w+)`/gm)].map(([, name = ""]) => name);
  assert.deepEqual(
    columns.filter((name) => !firsts.has(name) && !added.includes(`\`${name}\``)),
    [],
  );
  for (const state of ["PLAN", "TAKE", "WORK", "DONE", "FAIL", "GONE", "STOP"]) {
    assert.ok(firsts.has(state), state);
  }
});

test("docs/pg_task.md has every parameter that the extension has as well", () => {
  const ours = new Set([
    "pg_task.atomic",
    "pg_task.keep",
    "pg_task.output",
    "pg_task.crash",
    "pg_conf.max",
    "pg_conf.grace",
    "pg_conf.threads",
    "pg_conf.name",
    "pg_conf.log",
    "pg_http.listen",
    "pg_http.token",
  ]);
  const named = new Set([...text.matchAll(/`(?:pg_task\.)?([a-z_.]+)`/g)].map(([, name]) => name));
  const missing = parameters
    .map(({ name }) => name)
    .filter((name) => !ours.has(name))
    .filter((name) => !named.has(name) && !named.has(name.replace("pg_task.", "")));
  assert.deepEqual(missing, []);
});

test("docs/pg_task.md says what holds here of all that the first versions meant otherwise", () => {
  const [, section = ""] = text.split("\n## What its first versions meant otherwise\n");
  const there = [...section.matchAll(/^\| (.+?) +\| .{20,}\|$/gm)].map(([, first = ""]) => first);
  for (const words of [
    "`drift` true",
    "`delete` false",
    "`max` 2: two at once",
    "types beside the names in the header",
    "`pg_task.database`",
    "a period for each database",
    "columns dt, queue, request, response",
    "9.4 and Greenplum",
  ]) {
    assert.ok(
      there.some((first) => first.includes(words)),
      words,
    );
  }
});
