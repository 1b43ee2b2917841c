import assert from "node:assert/strict";
import { DatabaseError } from "pg";
import { Random } from "../../../../chaos/random.js";
import { test } from "../../../../support/limitedTest.js";
import { connectWithCalendar, nextTimes } from "./recurrences.js";

const client = await connectWithCalendar();

/** Returns the first times of the rule from `since` on as wall times in its zone. */
async function wallTimes(rule: string, zone: string, since: string, count: number): Promise<string[]> {
  const [times = []] = await nextTimes(client, [{ rule, zone, since }], count);
  const { rows } = await client.query<{ wall: string }>(
    `SELECT coalesce(to_char(nullif(at, 'end')::timestamptz AT TIME ZONE $2, 'YYYY-MM-DD HH24:MI'), 'end') AS wall
     FROM unnest($1::text[]) WITH ORDINALITY AS time(at, position) ORDER BY position`,
    [times, zone],
  );
  return rows.map(({ wall }) => wall.replace(/ 09:00$/, ""));
}

async function call(text: string, ...values: readonly string[]): Promise<string | null> {
  const { rows } = await client.query<{ result: string | null }>(`SELECT (${text})::text AS result`, [...values]);
  return rows[0]?.result ?? null;
}

/** Returns what task_rrule_check says about a rule, or null if it accepts the rule. */
async function refusal(rule: string, zone = "UTC"): Promise<DatabaseError | null> {
  try {
    await client.query("SELECT task_rrule_check($1, $2)", [rule, zone]);
    return null;
  } catch (error) {
    if (error instanceof DatabaseError) return error;
    throw error;
  }
}

// RFC 5545, section 3.8.5.3. Wall times in New York; 09:00 is left out.
for (const [value, ...expected] of [
  ["FREQ=DAILY;COUNT=10", "1997-09-02", "1997-09-03", "1997-09-04"],
  ["FREQ=DAILY;INTERVAL=2", "1997-09-02", "1997-09-04", "1997-09-06"],
  ["FREQ=DAILY;INTERVAL=10;COUNT=5", "1997-09-02", "1997-09-12", "1997-09-22", "1997-10-02", "1997-10-12", "end"],
  ["FREQ=WEEKLY;UNTIL=19970916T000000Z", "1997-09-02", "1997-09-09", "end"],
  ["FREQ=WEEKLY;INTERVAL=2;WKST=SU", "1997-09-02", "1997-09-16", "1997-09-30", "1997-10-14"],
  ["FREQ=WEEKLY;COUNT=4;WKST=SU;BYDAY=TU,TH", "1997-09-02", "1997-09-04", "1997-09-09", "1997-09-11", "end"],
  ["FREQ=WEEKLY;INTERVAL=2;WKST=SU;BYDAY=MO,WE,FR", "1997-09-03", "1997-09-05", "1997-09-15", "1997-09-17"],
  ["FREQ=MONTHLY;COUNT=10;BYDAY=1FR", "1997-09-05", "1997-10-03", "1997-11-07", "1997-12-05"],
  ["FREQ=MONTHLY;INTERVAL=2;COUNT=10;BYDAY=1SU,-1SU", "1997-09-07", "1997-09-28", "1997-11-02", "1997-11-30"],
  ["FREQ=MONTHLY;COUNT=6;BYDAY=-2MO", "1997-09-22", "1997-10-20", "1997-11-17", "1997-12-22", "1998-01-19"],
  ["FREQ=MONTHLY;BYMONTHDAY=-3", "1997-09-28", "1997-10-29", "1997-11-28", "1997-12-29", "1998-01-29", "1998-02-26"],
  ["FREQ=MONTHLY;COUNT=10;BYMONTHDAY=2,15", "1997-09-02", "1997-09-15", "1997-10-02", "1997-10-15"],
  ["FREQ=MONTHLY;COUNT=10;BYMONTHDAY=1,-1", "1997-09-30", "1997-10-01", "1997-10-31", "1997-11-01"],
  ["FREQ=MONTHLY;INTERVAL=18;COUNT=10;BYMONTHDAY=10,11,12", "1997-09-10", "1997-09-11", "1997-09-12", "1999-03-10"],
  [
    "FREQ=MONTHLY;INTERVAL=2;BYDAY=TU",
    "1997-09-02",
    "1997-09-09",
    "1997-09-16",
    "1997-09-23",
    "1997-09-30",
    "1997-11-04",
  ],
  ["FREQ=YEARLY;COUNT=10;BYMONTH=6,7", "1998-06-02", "1998-07-02", "1999-06-02", "1999-07-02"],
  ["FREQ=YEARLY;INTERVAL=3;COUNT=10;BYYEARDAY=1,100,200", "2000-01-01", "2000-04-09", "2000-07-18", "2003-01-01"],
  ["FREQ=YEARLY;BYDAY=20MO", "1998-05-18", "1999-05-17", "2000-05-15"],
  ["FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO", "1998-05-11", "1999-05-17", "2000-05-15"],
  ["FREQ=YEARLY;BYMONTH=3;BYDAY=TH", "1998-03-05", "1998-03-12", "1998-03-19", "1998-03-26", "1999-03-04"],
  ["FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13", "1998-02-13", "1998-03-13", "1998-11-13", "1999-08-13", "2000-10-13"],
  ["FREQ=MONTHLY;BYDAY=SA;BYMONTHDAY=7,8,9,10,11,12,13", "1997-09-13", "1997-10-11", "1997-11-08"],
  ["FREQ=YEARLY;INTERVAL=4;BYMONTH=11;BYDAY=TU;BYMONTHDAY=2,3,4,5,6,7,8", "1997-11-04", "2001-11-06", "2005-11-08"],
  ["FREQ=MONTHLY;COUNT=3;BYDAY=TU,WE,TH;BYSETPOS=3", "1997-09-04", "1997-10-07", "1997-11-06", "end"],
  ["FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-2", "1997-09-29", "1997-10-30", "1997-11-27", "1997-12-30"],
  ["FREQ=HOURLY;INTERVAL=3;UNTIL=19970902T210000Z", "1997-09-02", "1997-09-02 12:00", "1997-09-02 15:00", "end"],
  ["FREQ=MINUTELY;INTERVAL=15;COUNT=3", "1997-09-02", "1997-09-02 09:15", "1997-09-02 09:30", "end"],
  ["FREQ=MINUTELY;INTERVAL=90;COUNT=3", "1997-09-02", "1997-09-02 10:30", "1997-09-02 12:00", "end"],
  ["FREQ=DAILY;BYHOUR=9,10;BYMINUTE=0,20,40", "1997-09-02", "1997-09-02 09:20", "1997-09-02 09:40", "1997-09-02 10:00"],
  ["FREQ=MINUTELY;INTERVAL=20;BYHOUR=9", "1997-09-02", "1997-09-02 09:20", "1997-09-02 09:40", "1997-09-03"],
  [
    "FREQ=MONTHLY;BYMONTHDAY=15,30;COUNT=5",
    "1997-09-15",
    "1997-09-30",
    "1997-10-15",
    "1997-10-30",
    "1997-11-15",
    "end",
  ],
] as const) {
  test(`RFC 5545's example ${value}`, async () => {
    const rule = `DTSTART;TZID=America/New_York:19970902T090000\nRRULE:${value}`;
    assert.deepEqual(await wallTimes(rule, "America/New_York", "1997-01-01T00:00:00Z", expected.length), expected);
  });
}

const expectWeeks = async (start: string, expected: readonly string[]): Promise<void> => {
  const rule = `DTSTART:19970805T090000\nRRULE:FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=${start}`;
  assert.deepEqual(await wallTimes(rule, "UTC", "1997-01-01T00:00:00Z", 5), [...expected, "end"]);
};

test("WKST decides which weeks are every second week", async () => {
  await expectWeeks("MO", ["1997-08-05", "1997-08-10", "1997-08-19", "1997-08-24"]);
  await expectWeeks("SU", ["1997-08-05", "1997-08-17", "1997-08-19", "1997-08-31"]);
});

// Cases that libraries get wrong, or that are rare: zone, DTSTART, RRULE, since, and the times that follow, in UTC.
for (const line of `
weekly, over a gap: left out                               | Europe/Berlin       | 20230319T023000 | FREQ=WEEKLY;BYDAY=SU,WE                       | 2023-03-20T00:00:00Z | 2023-03-22T01:30:00Z 2023-03-29T00:30:00Z
daily, over an overlap: the first                          | Europe/Berlin       | 20231027T023000 | FREQ=DAILY                                    | 2023-10-28T12:00:00Z | 2023-10-29T00:30:00Z 2023-10-30T01:30:00Z
hourly, over a gap                                         | Europe/Berlin       | 20230326T003000 | FREQ=HOURLY                                   | 2023-03-25T23:30:00Z | 2023-03-26T00:30:00Z 2023-03-26T01:30:00Z
hourly, over an overlap: every hour is every hour          | Europe/Berlin       | 20231029T003000 | FREQ=HOURLY                                   | 2023-10-29T00:00:00Z | 2023-10-29T00:30:00Z 2023-10-29T01:30:00Z 2023-10-29T02:30:00Z
hourly with BYMINUTE: both times of an overlap             | Europe/Berlin       | 20231001T003000 | FREQ=HOURLY;BYMINUTE=30                       | 2023-10-29T00:00:00Z | 2023-10-29T00:30:00Z 2023-10-29T01:30:00Z 2023-10-29T02:30:00Z
every minute with BYMINUTE: both times of an overlap       | Europe/Berlin       | 20231001T003000 | FREQ=MINUTELY;BYMINUTE=30                     | 2023-10-29T00:00:00Z | 2023-10-29T00:30:00Z 2023-10-29T01:30:00Z 2023-10-29T02:30:00Z
hourly with BYHOUR: both times of an overlap               | Europe/Berlin       | 20231001T003000 | FREQ=HOURLY;BYHOUR=2                          | 2023-10-28T12:00:00Z | 2023-10-29T00:30:00Z 2023-10-29T01:30:00Z 2023-10-30T01:30:00Z
hourly with BYMINUTE, where clocks are set by half an hour | Australia/Lord_Howe | 20230930T001500 | FREQ=HOURLY;BYMINUTE=15                       | 2023-09-30T14:00:00Z | 2023-09-30T14:45:00Z 2023-09-30T16:15:00Z 2023-09-30T17:15:00Z
daily, in a gap of half an hour: left out                  | Australia/Lord_Howe | 20230929T021500 | FREQ=DAILY                                    | 2023-09-29T12:00:00Z | 2023-09-29T15:45:00Z 2023-10-01T15:15:00Z
a day that the clocks skip                                 | Pacific/Apia        | 20111228T100000 | FREQ=DAILY                                    | 2011-12-29T00:00:00Z | 2011-12-29T20:00:00Z 2011-12-30T20:00:00Z
February 29 over 2100                                      | UTC                 | 20280229T090000 | FREQ=YEARLY                                   | 2095-01-01T00:00:00Z | 2096-02-29T09:00:00Z 2104-02-29T09:00:00Z
BYWEEKNO=53                                                | UTC                 | 20270101T090000 | FREQ=YEARLY;BYWEEKNO=53;BYDAY=MO              | 2027-01-01T00:00:00Z | 2032-12-27T09:00:00Z 2037-12-28T09:00:00Z
weekdays with and without an ordinal                       | UTC                 | 20270101T000000 | FREQ=YEARLY;BYDAY=SU,4SU                      | 2027-01-01T00:00:00Z | 2027-01-03T00:00:00Z 2027-01-10T00:00:00Z
every 13 seconds, long after DTSTART                       | UTC                 | 20000101T000000 | FREQ=SECONDLY;INTERVAL=13                     | 2027-01-01T00:00:00Z | 2027-01-01T00:00:10Z 2027-01-01T00:00:23Z
a week that reaches into the month                         | UTC                 | 20220603T194500 | FREQ=WEEKLY;BYMONTH=9;BYSETPOS=-1;BYDAY=TH,FR | 2022-06-03T00:00:00Z | 2022-09-02T19:45:00Z 2022-09-09T19:45:00Z
`
  .trim()
  .split("\n")) {
  const [name, zone = "", start, value, since = "", expected = ""] = line.split("|").map((cell) => cell.trim());
  test(`the next times: ${name}`, async () => {
    const rule = `DTSTART;TZID=${zone}:${start}\nRRULE:${value}`;
    const times = expected.split(" ");
    assert.deepEqual(await nextTimes(client, [{ rule, zone, since }], times.length), [times]);
  });
}

// The same with further lines.
for (const [name, zone, rule, since, expected] of [
  [
    "RDATE and EXDATE, on folded lines",
    "Europe/Berlin",
    "DTSTART;TZID=Europe/Berlin:20230101T090000\r\nRRULE:FREQ=DAILY;\r\n COUNT=4\r\nEXDATE;TZID=Europe/Berlin:20230102T090000,20230110T120000\r\n" +
      "RDATE:20230103T090500,20230110T110000Z\r\nRDATE;VALUE=DATE:20230105\r\nEXDATE;VALUE=DATE:20230104\r\n",
    "2022-12-01T00:00:00Z",
    "2023-01-01T08:00:00Z 2023-01-03T08:00:00Z 2023-01-03T08:05:00Z 2023-01-04T23:00:00Z end",
  ],
  [
    "RDATE and EXDATE in zones of their own",
    "Europe/Berlin",
    "DTSTART;TZID=Europe/Berlin:20230101T090000\nRRULE:FREQ=DAILY;COUNT=4\nEXDATE;TZID=America/New_York:20230102T030000\n" +
      "EXDATE:20230103T080000Z\nEXDATE;TZID=UTC:20230104\nRDATE;TZID=Asia/Tokyo:20230105T090000,20230106",
    "2022-12-01T00:00:00Z",
    "2023-01-01T08:00:00Z 2023-01-05T00:00:00Z 2023-01-05T15:00:00Z end",
  ],
  [
    "other names of UTC",
    "UTC",
    "DTSTART;TZID=Etc/UTC:20230101T090000Z\nRRULE:FREQ=DAILY;COUNT=2\nRDATE;TZID=UTC:20230102T100000Z",
    "2022-12-01T00:00:00Z",
    "2023-01-01T09:00:00Z 2023-01-02T09:00:00Z 2023-01-02T10:00:00Z end",
  ],
  [
    "DTSTART and RDATE alone",
    "Europe/Berlin",
    // The clocks skip this DTSTART, so the offset before the gap applies.
    "DTSTART;TZID=Europe/Berlin:20230326T023000\nRDATE:20230401T090000,20230402T090000\nEXDATE:20230401T090000",
    "2022-12-01T00:00:00Z",
    "2023-03-26T01:30:00Z 2023-04-02T07:00:00Z end",
  ],
  [
    "parameters that begin with X-",
    "Europe/Berlin",
    'DTSTART;X-A=1;TZID=Europe/Berlin;x-b="a:b;c",d:20230101T090000\nRRULE;X-C="RRULE:":FREQ=DAILY;COUNT=2\nEXDATE;X-D=:20230102T090000',
    "2022-12-01T00:00:00Z",
    "2023-01-01T08:00:00Z end",
  ],
] as const) {
  test(`the next times: ${name}`, async () => {
    const times = expected.split(" ");
    assert.deepEqual(await nextTimes(client, [{ rule, zone, since }], times.length), [times]);
  });
}

test("without DTSTART, a rule begins at the given time", async () => {
  const since = "2023-01-31T10:20:30.5Z";
  assert.deepEqual(await nextTimes(client, [{ rule: "freq=monthly;interval=2", zone: "UTC", since }], 2), [
    ["2023-03-31T10:20:30Z", "2023-05-31T10:20:30Z"],
  ]);
});

const anchored = (rule: string, start: string): Promise<string | null> =>
  call("task_rrule_anchored($1, 'Europe/Berlin', $2::timestamptz)", rule, start);

test("DTSTART is added to a rule that has none", async () => {
  const rule = "FREQ=HOURLY";
  assert.equal(
    await anchored(rule, "2023-03-19T01:30:00Z"),
    "DTSTART;TZID=Europe/Berlin:20230319T023000\nRRULE:FREQ=HOURLY",
  );
  assert.equal(
    await anchored("RRULE:FREQ=DAILY\nRDATE:20230401", "2023-03-19T01:29:59.000001Z"),
    "DTSTART;TZID=Europe/Berlin:20230319T023000\nRRULE:FREQ=DAILY\nRDATE:20230401",
  );
  assert.equal(
    await anchored(rule, "2023-10-29T00:30:00Z"),
    "DTSTART;TZID=Europe/Berlin:20231029T023000\nRRULE:FREQ=HOURLY",
  );
  assert.equal(await anchored(rule, "2023-10-29T01:30:00Z"), "DTSTART:20231029T013000Z\nRRULE:FREQ=HOURLY");
  const complete = "DTSTART:20231029T013000Z\nRRULE:FREQ=HOURLY";
  assert.equal(await anchored(complete, "2024-10-29T01:30:00Z"), complete);
});

const zoneOf = (rule: string): Promise<string | null> => call("task_rrule_zone($1)", rule);

test("the zone of a rule is its DTSTART's TZID, or UTC after Z", async () => {
  assert.equal(await zoneOf("RRULE:FREQ=DAILY\r\nDTSTART;TZ\r\n ID=Europe/Berlin:20230319T023000"), "Europe/Berlin");
  assert.equal(
    await zoneOf('dtstart;value=date-time;tzid="Asia/Tokyo":20230319T023000\nRRULE:FREQ=DAILY'),
    "Asia/Tokyo",
  );
  assert.equal(
    await zoneOf("DTSTART:20230319T023000Z\nRRULE:FREQ=DAILY\nRDATE;TZID=Asia/Tokyo:20230319T023000"),
    "UTC",
  );
  assert.equal(await zoneOf('DTSTART;X-A="TZID=a:Z";TZID=Asia/Tokyo:20230319T023000Z\nRRULE:FREQ=DAILY'), "Asia/Tokyo");
  assert.equal(await zoneOf("DTSTART:20230319T023000\nRRULE:FREQ=DAILY"), null);
  assert.equal(await zoneOf("FREQ=DAILY"), null);
});

test("a DTSTART in UTC does not follow the clocks of the session's zone", async () => {
  await client.query("SET TimeZone = 'Europe/Berlin'");
  const rule = "DTSTART:20260917T130000Z\nRRULE:FREQ=DAILY";
  const next = "to_char(task_next($1, since => $2::timestamptz) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI')";
  assert.equal(await call(next, rule, "2026-10-24T20:00:00Z"), "2026-10-25 13:00");
  await client.query("RESET TimeZone");
});

const lastOf = (rule: string): Promise<string | null> =>
  call("to_char(task_rrule_last($1, 'UTC') AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')", rule);

test("DTSTART and RDATE alone end with the last of them", async () => {
  const rule = "DTSTART:20230101T090000Z\nRDATE:20230301T090000Z";
  assert.equal(await lastOf(rule), "2023-03-01 09:00:00");
  assert.equal(await call("task_rrule_remaining($1, 'UTC', '2023-01-01 09:00Z')", rule), rule);
});

test("the last time of a rule that ends", async () => {
  const start = "DTSTART:20230101T090000Z\nRRULE:";
  assert.equal(await lastOf(`${start}FREQ=DAILY;COUNT=10`), "2023-01-10 09:00:00");
  assert.equal(await lastOf(`${start}FREQ=MONTHLY;UNTIL=20231231`), "2023-12-01 09:00:00");
  assert.equal(await lastOf(`${start}FREQ=SECONDLY;INTERVAL=7;UNTIL=20231231T000000Z`), "2023-12-30 23:59:57");
  assert.equal(await lastOf(`${start}FREQ=DAILY;COUNT=2\nRDATE:20250101T000000Z`), "2025-01-01 00:00:00");
  assert.equal(await lastOf(`${start}FREQ=DAILY;COUNT=2\nEXDATE:20230102T090000Z`), "2023-01-01 09:00:00");
  assert.equal(await lastOf(`${start}FREQ=DAILY`), null);
});

for (const [rule, message] of [
  ["FREQ=WEEKLY;BYFOO=1", "BYFOO: is not known"],
  ["INTERVAL=2", "FREQ: is missing"],
  ["FREQ=FORTNIGHTLY", "FREQ: 'FORTNIGHTLY' is not known"],
  ["FREQ=DAILY;", "RRULE: '' is not NAME=VALUE"],
  ["FREQ=DAILY;COUNT", "RRULE: 'COUNT' is not NAME=VALUE"],
  ["FREQ=DAILY;BYHOUR=1;BYHOUR=2", "BYHOUR: is given twice"],
  ["FREQ=DAILY;INTERVAL=0", "INTERVAL: 0 is below 1"],
  ["FREQ=DAILY;INTERVAL=99999999999999999999", "INTERVAL: 99999999999999999999 is above 999999999"],
  ["FREQ=DAILY;COUNT=-1", "COUNT: -1 is below 1"],
  ["FREQ=DAILY;COUNT=x", "COUNT: 'X' is not a number"],
  ["FREQ=DAILY;COUNT=2;UNTIL=20270110T000000Z", "COUNT: UNTIL excludes it"],
  ["FREQ=DAILY;BYHOUR=24", "BYHOUR: '24' is not within 0-23"],
  ["FREQ=DAILY;BYHOUR=1,,2", "BYHOUR: '' is not a number"],
  ["FREQ=DAILY;BYMONTHDAY=0", "BYMONTHDAY: '0' is not within 1-31, or negative"],
  ["FREQ=DAILY;BYMONTHDAY=12345678901", "BYMONTHDAY: '12345678901' is not within 1-31, or negative"],
  ["FREQ=DAILY;BYDAY=XX", "BYDAY: 'XX' is not a weekday such as MO, 1MO or -1MO"],
  ["FREQ=MONTHLY;BYDAY=0MO", "BYDAY: '0MO' is not a weekday such as MO, 1MO or -1MO"],
  ["FREQ=WEEKLY;BYDAY=1MO", "BYDAY: ordinals are only for MONTHLY and YEARLY"],
  ["FREQ=YEARLY;BYWEEKNO=1;BYDAY=1MO", "BYDAY: BYWEEKNO excludes ordinals"],
  ["FREQ=MONTHLY;BYWEEKNO=1", "BYWEEKNO: is only for YEARLY"],
  ["FREQ=MONTHLY;BYYEARDAY=1", "BYYEARDAY: is not for MONTHLY"],
  ["FREQ=WEEKLY;BYMONTHDAY=1", "BYMONTHDAY: is not for WEEKLY"],
  ["FREQ=DAILY;BYSETPOS=1", "BYSETPOS: needs another BY part"],
  ["FREQ=DAILY;WKST=8", "WKST: is not a weekday such as MO"],
  [
    "FREQ=DAILY;UNTIL=20270230",
    "UNTIL: '20270230' is not a time such as 20270131T090000, 20270131T090000Z or 20270131",
  ],
  ["DTSTART:20270101\nDTSTART:20270101\nRRULE:FREQ=DAILY", "DTSTART: is given twice"],
  ["DTSTART:20270101\nRRULE:FREQ=DAILY\nRRULE:FREQ=DAILY", "RRULE: is given twice"],
  ["DTSTART:20270101", "RRULE: is missing: to run once, at this time, set plan instead of rule"],
  ["EXDATE:20270101", "RRULE: is missing"],
  ["DTSTART:20270101\nFREQ=DAILY", "FREQ=DAILY: is not a line DTSTART, RRULE, RDATE or EXDATE"],
  ["DTSTART;TZID=Asia/Tokyo:20270101\nRRULE:FREQ=DAILY", "DTSTART: zone and TZID differ"],
  ["DTSTART;X=1:20270101\nRRULE:FREQ=DAILY", "DTSTART: 'X=1' is not known"],
  ["RDATE:20270101", "DTSTART: is missing: without RRULE, it is the first time"],
  ["DTSTART:20270101\nRRULE;Y-A=1:FREQ=DAILY", "RRULE: 'Y-A=1' is not known"],
  ["FREQ=DAILY;X-A=1", "X-A: is not known"],
  [
    "DTSTART:20270101\nRRULE:FREQ=DAILY\nRDATE;TZID=Asia/Tokyo:2027",
    "RDATE: '2027' is not a time such as 20270131T090000, 20270131T090000Z or 20270131",
  ],
  ["DTSTART:20270101T090000Z\nRRULE:FREQ=DAILY;UNTIL=20261231", "UNTIL: is before DTSTART"],
  ["RRULE:FREQ=DAILY\nRDATE:", "RDATE: has no value"],
] as const) {
  test(`refused: ${rule.replaceAll("\n", "\\n")}`, async () => {
    const error = await refusal(rule);
    assert.equal(error?.message, `rule "${rule}": ${message}`);
    assert.equal(error?.code, "22023");
  });
}

for (const [rule, detail] of [
  ["FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "February has no day 30."],
  ["FREQ=SECONDLY;BYMONTH=4,6;BYMONTHDAY=31", "April has no day 31."],
  ["DTSTART:20270102T000000Z\nRRULE:FREQ=DAILY;INTERVAL=7;BYDAY=MO", undefined],
  ["DTSTART:20270102T000000Z\nRRULE:FREQ=HOURLY;INTERVAL=24;BYHOUR=3", undefined],
  ["DTSTART:20270102T000000Z\nRRULE:FREQ=SECONDLY;INTERVAL=60;BYSECOND=30", undefined],
  ["DTSTART:20270102T000000Z\nRRULE:FREQ=YEARLY;INTERVAL=4;BYMONTH=2;BYMONTHDAY=29", undefined],
  ["FREQ=DAILY;BYHOUR=1;BYSETPOS=2", undefined],
  ["DTSTART:20270102T000000Z\nRRULE:FREQ=DAILY;COUNT=1\nEXDATE:20270102T000000Z", undefined],
] as const) {
  test(`never comes: ${rule.replaceAll("\n", "\\n")}`, async () => {
    const error = await refusal(rule);
    assert.equal(error?.message, `rule "${rule}" never comes`);
    assert.equal(error?.code, "22023");
    assert.equal(error?.detail, detail);
  });
}

test("whatever the text, a rule is accepted, or refused with SQLSTATE 22023", async () => {
  const random = new Random(7);
  const words =
    "FREQ= DAILY YEARLY HOURLY ; ; : , \n \r\n - + 0 1 31 99999999999 INTERVAL= COUNT= UNTIL= BYDAY= MO 1MO BYMONTH= BYSETPOS= " +
    "BYHOUR= WKST= DTSTART RRULE: RDATE EXDATE: ;TZID=UTC ;VALUE=DATE 20270101 20270101T000000Z T Z = \" ' \\ % é \u{1f600} ١";
  const pieces = words.split(" ");
  for (let round = 0; round < 1500; round += 1) {
    const text = Array.from({ length: random.between(1, 14) }, () => random.pick(pieces)).join("");
    const rule = random.next() < 0.5 ? `FREQ=DAILY;${text}` : text;
    const error = await refusal(rule);
    if (error !== null) assert.equal(error.code, "22023", `${JSON.stringify(rule)}: ${error.message}`);
    await client.query("SELECT task_rrule_zone($1)", [rule]);
  }
});

const eventLines = [
  "DTSTART;TZID=W. Europe Standard Time:20270104T090000",
  "DTEND;TZID=W. Europe Standard Time:20270104T093000",
  "RRULE:FREQ=WEEKLY;BYDAY=MO;",
  " COUNT=4",
  "EXDATE;TZID=W. Europe Standard Time:20270111T090000",
  "RDATE:20270112T080000Z",
  "SUMMARY:BEGIN:VEVENT\\nRRULE:FREQ=DAILY",
  "BEGIN:VALARM",
  "TRIGGER:-PT15M",
  "RRULE:FREQ=DAILY",
  "END:VALARM",
];
const eventRule =
  "DTSTART;TZID=Europe/Berlin:20270104T090000\nRRULE:FREQ=WEEKLY;BYDAY=MO;COUNT=4\n" +
  "EXDATE;TZID=Europe/Berlin:20270111T090000\nRDATE:20270112T080000Z";

const event = (...lines: readonly string[]): string => ["BEGIN:VEVENT", ...lines, "END:VEVENT"].join("\r\n");

/** A calendar with the lines of a VTIMEZONE and with other components. */
const calendarOf = (zone: readonly string[], ...components: readonly string[]): string =>
  [
    "BEGIN:VCALENDAR",
    "VERSION:2.0",
    "BEGIN:VTIMEZONE",
    ...zone,
    "BEGIN:STANDARD",
    "DTSTART:16010101T030000",
    "RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=10",
    "TZOFFSETFROM:+0200",
    "TZOFFSETTO:+0100",
    "END:STANDARD",
    "END:VTIMEZONE",
    ...components,
    "END:VCALENDAR",
    "",
  ].join("\r\n");

const plain = (rule: string): Promise<string | null> => call("task_rule_plain($1)", rule);

test("the event of a VEVENT or VCALENDAR is the rule", async () => {
  assert.equal(await plain(event(...eventLines)), eventRule);
  assert.equal(await plain(calendarOf(["TZID:W. Europe Standard Time"], event(...eventLines))), eventRule);
  const short = "DTSTART:20270104T090000Z\nRRULE:FREQ=DAILY";
  assert.equal(await plain(`\nbegin:vevent\n${short}\nend:VEvent\n`), short);
  for (const unchanged of [short, "FREQ=DAILY", "DTSTART;TZID=Europe/Berlin:20270104\r\nRRULE:FREQ=DAILY"])
    assert.equal(await plain(unchanged), unchanged);
});

test("the functions for users take a whole event", async () => {
  const rule = calendarOf(["TZID:W. Europe Standard Time"], event(...eventLines));
  const { rows } = await client.query<{ times: string[] }>(
    `SELECT array_agg(to_char(time AT TIME ZONE 'UTC', 'DD HH24') ORDER BY time) AS times FROM task_times($1, since => '2027-01-01')`,
    [rule],
  );
  assert.deepEqual(rows, [{ times: ["04 08", "12 08", "18 08", "25 08"] }]);
  assert.equal(await call("task_rule_zone($1)", rule), "Europe/Berlin");
  assert.equal(
    await call("to_char(task_next($1, since => '2027-01-05') AT TIME ZONE 'UTC', 'DD HH24')", rule),
    "12 08",
  );
});

test("a TZID that the server does not know is replaced with what it means", async () => {
  for (const [tzid, zone, expected] of [
    ["Mine", ["TZID:Mine", "X-LIC-LOCATION:Europe/Oslo"], "Europe/Oslo"],
    ["Mine", ["X-LIC-LOCATION:Europe/Oslo", "TZID:Other"], "Mine"],
    ["Asia/Tokyo", ["TZID:Asia/Tokyo", "X-LIC-LOCATION:Europe/Oslo"], "Asia/Tokyo"],
    ["/freeassociation.sourceforge.net/Europe/Rome", ["TZID:Mine"], "Europe/Rome"],
    ["Tokyo Standard Time", ["TZID:Mine"], "Asia/Tokyo"],
    ['"Pacific Standard Time"', ["TZID:Pacific Standard Time"], "America/Los_Angeles"],
  ] as const) {
    const lines = [`DTSTART;X-A=1;TZID=${tzid}:20270104T090000`, "RRULE:FREQ=DAILY"];
    assert.equal(
      await plain(calendarOf(zone, event(...lines))),
      `DTSTART;TZID=${expected}:20270104T090000\nRRULE:FREQ=DAILY`,
    );
  }
  assert.equal(
    await plain("DTSTART;TZID=GMT Standard Time:20270104T090000\nRRULE:FREQ=DAILY"),
    "DTSTART;TZID=Europe/London:20270104T090000\nRRULE:FREQ=DAILY",
  );
  const { rows } = await client.query(
    `SELECT 1 FROM (SELECT pg_get_functiondef('task_rrule_windows_zone'::regproc) AS text) AS f,
       regexp_matches(f.text, '": "([^"]+)"', 'g') AS zone, task_zone_check(zone[1])`,
  );
  assert.ok(rows.length > 50);
});

for (const [name, rule, reason] of [
  [
    "several events",
    calendarOf([], event("DTSTART:20270101", "RRULE:FREQ=DAILY"), event("RECURRENCE-ID:20270102")),
    "expected one VEVENT, got 2",
  ],
  [
    "no event",
    calendarOf([], "BEGIN:VTODO", "DTSTART:20270101", "RRULE:FREQ=DAILY", "END:VTODO"),
    "expected one VEVENT, got 0",
  ],
  [
    "a changed time",
    event("RECURRENCE-ID:20270102", "DTSTART:20270101"),
    "the event with RECURRENCE-ID only changes one time of another event",
  ],
  ["EXRULE", event("DTSTART:20270101", "EXRULE:FREQ=DAILY"), "EXRULE is not supported: name the times in EXDATE"],
  ["no times", event("SUMMARY:only"), "its event has neither DTSTART nor RRULE"],
  [
    "one time",
    event("DTSTART:20270101T090000Z", "DTEND:20270101T100000Z"),
    "its event has no RRULE or RDATE: to run once, at its DTSTART, set plan instead of rule",
  ],
  ["no end", "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20270101\nEND:VEVENT", "END:VCALENDAR is missing"],
  ["another end", "BEGIN:VEVENT\nDTSTART:20270101\nEND:VCALENDAR", "END:VCALENDAR does not match BEGIN:VEVENT"],
  ["two ends", `${event("DTSTART:20270101")}\nEND:VEVENT`, "END:VEVENT does not match BEGIN:"],
  ["other lines", `${event("DTSTART:20270101")}\nRRULE:FREQ=DAILY`, "RRULE is outside of the components"],
] as const) {
  test(`a pasted component is refused: ${name}`, async () => {
    await assert.rejects(call("task_next($1)", rule), {
      code: "22023",
      message: `rule "${rule.split(/\r?\n/, 1)[0] ?? ""}...": ${reason}`,
      hint: "paste one event, from BEGIN:VEVENT to END:VEVENT, or its lines DTSTART, RRULE, RDATE and EXDATE",
    });
  });
}
