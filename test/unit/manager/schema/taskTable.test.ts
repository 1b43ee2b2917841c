import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { taskTable, type TaskTable } from "../../../../src/manager/schema/taskTable.js";

const longest = 63;

function madeNames(table: TaskTable): string[] {
  const { dueIndex, planIndex, readyFunction, readyInsertTrigger, readyUpdateTrigger, wakeUp } = table;
  return [dueIndex, planIndex, readyFunction, readyInsertTrigger, readyUpdateTrigger, wakeUp];
}

describe("names of the objects beside a task table", () => {
  for (const [what, table] of [
    ["ASCII", "t".repeat(longest)],
    ["two bytes a letter", `${"ü".repeat(31)}t`],
    ["four bytes a character", "🐘".repeat(15)],
  ] as const) {
    test(`are distinct and not truncated for the longest table name of ${what}`, () => {
      const names = madeNames(taskTable("public", table));
      assert.equal(new Set(names).size, names.length);
      for (const name of names) {
        assert.ok(Buffer.byteLength(name) <= longest, `${name} is too long`);
        assert.ok(!name.includes("\uFFFD"), `${name} cuts a character in two`);
        assert.ok(name.startsWith(table.slice(0, 20)), `${name} does not tell its table`);
      }
    });
  }

  test("differ for two long table names with the same beginning", () => {
    const first = madeNames(taskTable("public", `${"t".repeat(62)}a`));
    const second = madeNames(taskTable("public", `${"t".repeat(62)}b`));
    assert.equal(new Set([...first, ...second]).size, 12);
  });

  test("use all 63 bytes", () => {
    const fitting = "t".repeat(longest - "_due_idx".length);
    assert.equal(taskTable("public", fitting).dueIndex, `${fitting}_due_idx`);
    assert.match(taskTable("public", `${fitting}t`).dueIndex, /^t+_[0-9a-f]{8}_due_idx$/);
  });
});
