import assert from "node:assert/strict";
import { it } from "node:test";
import { cronInstead } from "../../../src/tasks/explain/scheduleWarnings.js";

// 2027-03-28 is a Sunday.
const wall = "2027-03-28 02:30:00";
for (const [rule, expected] of [
  ["FREQ=DAILY", "30 2 * * *"],
  ["RRULE:FREQ=DAILY;INTERVAL=1", "30 2 * * *"],
  ["DTSTART;TZID=Europe/Berlin:20270101T023000\nRRULE:FREQ=DAILY", "30 2 * * *"],
  ["FREQ=DAILY;BYHOUR=2,14;BYMINUTE=0,30", "0,30 2,14 * * *"],
  ["FREQ=DAILY;BYSECOND=15", "15 30 2 * * *"],
  ["FREQ=DAILY;BYDAY=SA,SU", "30 2 * * SAT,SUN"],
  ["freq=weekly", "30 2 * * SUN"],
  ["FREQ=WEEKLY;BYDAY=MO,SU;WKST=SU", "30 2 * * MON,SUN"],
  ["FREQ=MONTHLY", "30 2 28 * *"],
  ["FREQ=MONTHLY;BYMONTHDAY=1,28", "30 2 1,28 * *"],
  ["FREQ=YEARLY", "30 2 28 3 *"],
  ["FREQ=YEARLY;BYMONTH=3,4;BYMONTHDAY=28", "30 2 28 3,4 *"],
  ["FREQ=DAILY;INTERVAL=2", null],
  ["FREQ=DAILY;COUNT=5", null],
  ["FREQ=MONTHLY;BYDAY=-1SU", null],
  ["FREQ=MONTHLY;BYMONTHDAY=-4", null],
  ["FREQ=MONTHLY;BYDAY=SU;BYMONTHDAY=28", null],
  ["FREQ=YEARLY;BYWEEKNO=12", null],
  ["DTSTART:20270101T023000\nRRULE:FREQ=DAILY\nEXDATE:20270102T023000", null],
  ["FREQ=HOURLY", null],
] as const) {
  it(`suggests ${expected ?? "nothing"} instead of ${JSON.stringify(rule)}`, () => {
    assert.equal(cronInstead(rule, wall), expected);
  });
}
