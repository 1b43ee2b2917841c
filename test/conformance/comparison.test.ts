import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { parameters } from "../../src/shared/config/parameters.js";
import { test } from "../support/limitedTest.js";

const file = new URL("../../../docs/pg_task.md", import.meta.url);
const text = readFileSync(file, "utf8");
const rows = text.split("\n").filter((line) => line.startsWith("| ") && !line.startsWith("| -"));

test("docs/pg_task.md links to tests that are there", () => {
  const links = [...text.matchAll(/\]\((\.\.\/test\/[^)]+)\)/g)].map(([, path = ""]) => path);
  assert.ok(links.length > 0);
  const missing = links.filter((path) => !existsSync(new URL(path, file)));
  assert.deepEqual(missing, []);
});

test("docs/pg_task.md shows each same by a test", () => {
  const unshown = rows.filter(
    (row) => /\| same\b/.test(row) && !/\]\(\.\.\/test\/|the same tests|see below/.test(row),
  );
  assert.deepEqual(unshown, []);
});

test("docs/pg_task.md has every parameter that the extension has as well", () => {
  const ours = new Set([
    "pg_task.plan",
    "pg_task.atomic",
    "pg_task.keep",
    "pg_task.output",
    "pg_task.crash",
    "pg_conf.max",
    "pg_conf.grace",
    "pg_conf.threads",
    "pg_conf.name",
    "pg_conf.log",
  ]);
  const named = new Set([...text.matchAll(/`(?:pg_task\.)?([a-z_.]+)`/g)].map(([, name]) => name));
  const missing = parameters
    .map(({ name }) => name)
    .filter((name) => !ours.has(name))
    .filter((name) => !named.has(name) && !named.has(name.replace("pg_task.", "")));
  assert.deepEqual(missing, []);
});
