import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { OwedSuccessors } from "../../../../src/manager/upkeep/owedSuccessors.js";
import { serverError, stubClient } from "../../../support/stubClient.js";
import { silentLog } from "../../../support/taskTables.js";

test("a successor whose retry delay ends while the owed ones are read is not forgotten", async () => {
  const owed = new OwedSuccessors({ table: taskTable("public", "task"), log: silentLog });
  let answerMs = 0;
  const client = stubClient(async (text, values) => {
    if (text.startsWith("SELECT task::text AS id")) {
      await sleep(answerMs);
      const [except] = values;
      const rows = Array.isArray(except) && except.includes("5") ? [] : [{ id: "5" }];
      return { rows, rowCount: rows.length };
    }
    if (!text.includes("forgotten")) return { rows: [], rowCount: 0 };
    // The retry delay begins later than the pause before the next step.
    await sleep(20);
    throw serverError("P0001");
  });
  await owed.step(client);
  // Another task ends, so that what is owed is read again shortly before the delay ends.
  owed.touch();
  await sleep(owed.pauseMs);
  answerMs = 500;
  await owed.step(client);
  assert.notEqual(owed.pauseMs, Infinity);
});
