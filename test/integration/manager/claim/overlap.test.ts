import assert from "node:assert/strict";
import { test } from "../../../support/limitedTest.js";
import { SteppedTable } from "../../../support/steppedTable.js";

const stepped = await SteppedTable.create();
const { user } = stepped;

test("a rejected successor does not keep those of other tasks from being planned before the runs", async () => {
  await user.query(`
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no next run'; END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON task FOR EACH ROW
      WHEN (NEW.parent IS NOT NULL AND NEW."group" = 'bad') EXECUTE FUNCTION refuse()`);
  const manager = await stepped.manage(2, {});
  const repeating = { gated: true, repeat: "1 hour", overlap: true };
  await stepped.plant({ ...repeating, group: "bad" }, { ...repeating, group: "good" });
  await manager.step();
  const { rows } = await user.query(
    `SELECT "group", state::text, parent::integer, repeat > interval '0' AS repeats FROM task ORDER BY id`,
  );
  assert.deepEqual(rows, [
    { group: "bad", state: "WORK", parent: null, repeats: true },
    { group: "good", state: "WORK", parent: null, repeats: false },
    { group: "good", state: "PLAN", parent: 2, repeats: true },
  ]);
  await user.query("DROP TRIGGER refuse ON task");
  await stepped.openGate();
  await manager.until(() => manager.sessions.free === 2);
  await manager.step();
  assert.deepEqual(await stepped.states(), ["DONE", "DONE", "PLAN", "PLAN"]);
});
