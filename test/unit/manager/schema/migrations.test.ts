import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { createObjectsBeside, latestVersion } from "../../../../src/manager/schema/migrations.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { projectPath } from "../../../support/project.js";
import { stubClient } from "../../../support/stubClient.js";

const migration = readFileSync(projectPath("src/manager/schema/migration.sql"), "utf8");

/** The version that brought the present migration, and the first bytes of its SHA-256. New columns need another version only. */
const [version, hash] = [11, "f605f78906bc586b"] as const;

test("a changed migration gives the table the next version, so that existing tables get the change", () => {
  assert.equal(createHash("sha256").update(migration).digest("hex").slice(0, 16), hash);
  assert.ok(version <= latestVersion);
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
