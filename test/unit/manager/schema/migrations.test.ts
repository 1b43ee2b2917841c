import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { createObjectsBeside, latestVersion, migrations } from "../../../../src/manager/schema/migrations.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { stubClient } from "../../../support/stubClient.js";

/**
 * First bytes of the SHA-256 of each migration. A migration that has been released must not change; a change needs a
 * new migration.
 */
const hashes = ["994c6296522492e7", "352bf1432f3a65e1", "94086436331bed20"];

test("migrations do not change", () => {
  assert.equal(latestVersion, hashes.length);
  for (const [index, { text, version }] of migrations.entries()) {
    assert.equal(version, index + 1);
    const hash = createHash("sha256").update(text).digest("hex");
    assert.equal(hash.slice(0, 16), hashes[index], `migration ${version}`);
  }
});

test("migrations are ASCII, so that databases of any encoding accept them", () => {
  for (const { text, version } of migrations)
    assert.equal(Buffer.byteLength(text), text.length, `migration ${version}`);
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
  assert.doesNotMatch(applied, /TRUNCATE "|INDEX|(?:CREATE TABLE|COLUMN|ON) "public"."task"/);
});
