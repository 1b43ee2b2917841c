import assert from "node:assert/strict";
import { setTimeout as passed } from "node:timers/promises";
import { ActiveGroups } from "../../../../src/manager/groups/groups.js";
import { GroupScanner } from "../../../../src/manager/groups/groupScanner.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { test } from "../../../support/limitedTest.js";
import { openTable, silentLog } from "../../../support/taskTables.js";

const { user, manager } = await openTable();

test("a task that could not be marked as due and was then postponed counts as the next planned one", async () => {
  await user.query(`
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON task FOR EACH ROW WHEN (NEW.ready) EXECUTE FUNCTION refuse();
    INSERT INTO task (input, plan) VALUES ('SELECT 1', now() + interval '100 ms')`);
  const groups = new ActiveGroups();
  const scanner = new GroupScanner({ table: taskTable("public", "task"), groups, log: silentLog });
  /** Sends both statements at once, as a cycle does. */
  const look = () => Promise.all([scanner.markDue(manager), scanner.updateNextPlan(manager, false)]);
  while (scanner.rejectedIds.length === 0) {
    await look();
    await passed(10);
  }
  await user.query("DROP TRIGGER refuse ON task; UPDATE task SET plan = now() + interval '1 hour'");
  while (scanner.rejectedIds.length > 0) {
    await look();
    if (scanner.rejectedIds.length > 0) await passed(10);
  }
  const ms = scanner.nextDueMs ?? 0;
  assert.ok(ms > 3_500_000 && ms <= 3_600_000, `${scanner.nextDueMs}`);
});
