import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { createObjectsBeside, latestVersion } from "../../../../src/manager/schema/migrations.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { projectPath } from "../../../support/project.js";
import { stubClient } from "../../../support/stubClient.js";

const migration = readFileSync(projectPath("src/manager/schema/migration.sql"), "utf8");

/** First bytes of the SHA-256 of the migration, by the version that brought it. New columns need another version only. */
const hashes: Readonly<Record<number, string>> = {
  4: "062b423542a176d5",
  5: "c6599548d6e821c2",
  6: "c83782922e4d9317",
};

test("a changed migration gives the table the next version, so that existing tables get the change", () => {
  const hash = createHash("sha256").update(migration).digest("hex");
  const [version = 0, known] = Object.entries(hashes).at(-1) ?? [];
  assert.equal(hash.slice(0, 16), known);
  assert.ok(Number(version) <= latestVersion);
});

test("the migration is ASCII, so that databases of any encoding accept it", () => {
  assert.equal(Buffer.byteLength(migration), migration.length);
});

test("adoption skips statements about the table itself, and TRUNCATE", async () => {
  const texts: string[] = [];
  const client = stubClient(async (text) => {
    texts.push(text);
    return { rows: [], rowCount: 0 };
  });
  await createObjectsBeside(client, taskTable("public", "task"));
  const applied = texts.join("");
  for (const name of ["ready", "wake_up", "finish", "reset", "planned", "groups_rows"])
    assert.match(applied, new RegExp(`CREATE OR REPLACE FUNCTION "public"."task_${name}"`));
  assert.match(applied, /CREATE TABLE IF NOT EXISTS "public"."task_pause"/);
  assert.match(applied, /CREATE TRIGGER "task_pause_wake_up"/);
  assert.doesNotMatch(
    applied,
    /^(?:TRUNCATE|CREATE INDEX \S+ ON "public"."task" |(?:CREATE TABLE|COMMENT ON TABLE|COMMENT ON COLUMN) "public"."task")/m,
  );
  assert.doesNotMatch(applied, /^CREATE TRIGGER [^;]* ON "public"."task" /m);
});
