import assert from "node:assert/strict";
import { it } from "node:test";
import { formatLateness, shortRule } from "../../../src/shared/describeSchedule.js";

for (const [rule, expected] of [
  [" 30  2 * * * ", "30 2 * * *"],
  ["DTSTART;TZID=Europe/Berlin:20261124T053952\nRRULE:FREQ=DAILY", "FREQ=DAILY"],
  ["RRULE:FREQ=DAILY", "FREQ=DAILY"],
  ["DTSTART:20261124T053952Z\nRRULE:FREQ=DAILY\nEXDATE:20261125T053952Z", "FREQ=DAILY EXDATE:20261125T053952Z"],
  ["DTSTART:20261124T053952Z\nRDATE:20261125T053952Z", "DTSTART:20261124T053952Z RDATE:20261125T053952Z"],
  ["SELECT now()\n  + interval '1 day'", "SELECT now() + interval '1 day'"],
] as const) {
  it(`shortens ${JSON.stringify(rule)}`, () => assert.equal(shortRule(rule), expected));
}

it("calls a schedule late from five seconds on", () => {
  assert.deepEqual([null, 0, 4_999, 5_000].map(formatLateness), [null, null, null, "late by 5.0 s"]);
});
