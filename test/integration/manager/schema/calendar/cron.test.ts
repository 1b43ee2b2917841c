import assert from "node:assert/strict";
import { createDatabase } from "../../../../support/database.js";
import { test } from "../../../../support/limitedTest.js";
import { connectCalendar, firstTimes, nextTimes } from "./cronTimes.js";

const client = await connectCalendar(await createDatabase("empty"));

/**
 * Rule, zone, since, and the times that follow. Clock changes are in the past, so all time zone data agree on them.
 * cronLaws.test.ts compares more rules with an independent matcher, around more changes.
 */
const expected = `
30 2 * * *        | Europe/Berlin     | 2023-03-24T12:00:00Z | 2023-03-25T01:30:00Z 2023-03-26T01:00:00Z 2023-03-27T00:30:00Z 2023-03-28T00:30:00Z
30 2 * * *        | Europe/Berlin     | 2023-10-28T12:00:00Z | 2023-10-29T00:30:00Z 2023-10-30T01:30:00Z 2023-10-31T01:30:00Z
0 12 29 2 *       | UTC               | 2096-03-01T00:00:00Z | 2104-02-29T12:00:00Z 2108-02-29T12:00:00Z
0 0 * * 7         | UTC               | 2027-08-02T00:00:00Z | 2027-08-08T00:00:00Z 2027-08-15T00:00:00Z
0 0 * * fri-mon/2 | UTC               | 2027-08-02T00:00:00Z | 2027-08-06T00:00:00Z 2027-08-08T00:00:00Z 2027-08-13T00:00:00Z
0 0 * * 5-2       | UTC               | 2027-01-01T00:00:00Z | 2027-01-02T00:00:00Z 2027-01-03T00:00:00Z 2027-01-04T00:00:00Z 2027-01-05T00:00:00Z 2027-01-08T00:00:00Z
*/20 30 2 * * *   | Europe/Berlin     | 2023-03-25T12:00:00Z | 2023-03-26T01:00:00Z 2023-03-27T00:30:00Z 2023-03-27T00:30:20Z 2023-03-27T00:30:40Z
@daily            | America/Sao_Paulo | 2018-11-02T12:00:00Z | 2018-11-03T03:00:00Z 2018-11-04T03:00:00Z 2018-11-05T02:00:00Z 2018-11-06T02:00:00Z
0 12 * * *        | Pacific/Apia      | 2011-12-28T00:00:00Z | 2011-12-28T22:00:00Z 2011-12-29T22:00:00Z 2011-12-30T22:00:00Z 2011-12-31T22:00:00Z
*/25 * * * *      | UTC               | 2027-01-01T00:00:00Z | 2027-01-01T00:25:00Z 2027-01-01T00:50:00Z 2027-01-01T01:00:00Z 2027-01-01T01:25:00Z 2027-01-01T01:50:00Z
0 0 29 2 */8      | UTC               | 2027-01-01T00:00:00Z | 2032-02-29T00:00:00Z 2060-02-29T00:00:00Z
* 30 2 * * *      | Europe/Berlin     | 2023-10-29T00:30:58Z | 2023-10-29T00:30:59Z 2023-10-30T01:30:00Z
@yearly           | UTC               | 2027-01-01T00:00:00Z | 2028-01-01T00:00:00Z
@annually         | UTC               | 2027-01-01T00:00:00Z | 2028-01-01T00:00:00Z
@monthly          | UTC               | 2027-01-01T00:00:00Z | 2027-02-01T00:00:00Z
@WEEKLY           | UTC               | 2027-01-01T00:00:00Z | 2027-01-03T00:00:00Z
@midnight         | UTC               | 2027-01-01T00:00:00Z | 2027-01-02T00:00:00Z
@hourly           | UTC               | 2027-01-01T00:00:00Z | 2027-01-01T01:00:00Z
0 12 * * *        | Europe/Berlin     | 1893-03-31T00:00:00Z | 1893-03-31T11:06:32Z 1893-04-01T11:00:00Z`;

for (const line of expected.trim().split("\n")) {
  const [rule = "", zone = "", since = "", listed = ""] = line.split("|").map((cell) => cell.trim());
  test(`${rule} in ${zone} after ${since}`, async () => {
    const times = listed.split(" ");
    assert.deepEqual(await firstTimes(client, { rule, zone, since }, times.length), times);
  });
}

const fieldsHint = "write minute, hour, day, month and weekday, such as 30 9 * * MON-FRI";
/** Rules that are refused, and why: message, detail, hint. */
const refused: readonly (readonly [rule: string, reason: string])[] = [
  ["61 * * * *", "minute: '61' is not within 0-59"],
  ["99999999999 * * * *", "minute: '99999999999' is not within 0-59"],
  ["60 * * * * *", "second: '60' is not within 0-59"],
  ["0 24 * * *", "hour: '24' is not within 0-23"],
  ["0 0 0 * *", "day: '0' is not within 1-31"],
  ["0 0 * 13 *", "month: '13' is not within 1-12"],
  ["0 0 * * 8", "weekday: '8' is not within 0-7"],
  ["0 0 * * 5-8", "weekday: '5-8' is not within 0-7"],
  ["1,,2 * * * *", "minute: the list '1,,2' has an empty item"],
  [", * * * *", "minute: the list ',' has an empty item"],
  ["*/0 * * * *", "minute: '*/0' has a step of 0"],
  ["0 22-6 * * *", "hour: '22-6' ends before it begins: write 22-23,0-6"],
  ["0 0 * NOV-FEB *", "month: 'NOV-FEB' ends before it begins: write 11-12,1-2"],
  ["MON 0 * * *", "minute: 'MON' is not understood"],
  ["0 0 * FOO *", "month: 'FOO' is not understood"],
  ["0 0 * * MONDAY", "weekday: 'MONDAY' is not understood"],
  ["0 0 * * NULL", "weekday: 'NULL' is not understood"],
  ["0 0 * null *", "month: 'null' is not understood"],
  ["0 0 * * L", "weekday: 'L' is not understood"],
  ["? 0 * * *", "minute: '?' is not understood"],
  ["0 0 ?/2 * *", "day: '?/2' is not understood"],
  ["0 1-2-3 * * *", "hour: '1-2-3' is not understood"],
  ["0 1/2/3 * * *", "hour: '1/2/3' is not understood"],
  ["0 *-3 * * *", "hour: '*-3' is not understood"],
  ["0 +1 * * *", "hour: '+1' is not understood"],
  ["0 -1 * * *", "hour: '-1' is not understood"],
  ["0 0 * * m\u00f6n", "weekday: 'm\u00f6n' is not understood"],
  ["\u0664 0 * * *", "minute: '\u0664' is not understood"],
  ["0 0 L-31 * *", "day: 'L-31' is not within L-0 to L-30"],
  ["0 0 0W * *", "day: '0W' is not within 1W-31W"],
  ["0 0 * * FRI#6", "weekday: 'FRI#6' is not within FRI#1-FRI#5"],
  ["0 0 * * 8L", "weekday: '8' is not within 0-7"],
  ["0 0 * * FOO#L", "weekday: 'FOO#L' is not understood"],
  ["0 0 * *", `expected 5 or 6 fields, got 4 | ${fieldsHint}`],
  ["every day", `expected 5 or 6 fields, got 2 | ${fieldsHint}`],
  ["", `expected 5 or 6 fields, got 0 | ${fieldsHint}`],
  [" \t\n", `expected 5 or 6 fields, got 0 | ${fieldsHint}`],
  ...["30 seconds", "1 hour", "5m", "25:00", "PT5M", "1.5 hours", "2 hours 30 minutes", "1 day 2 hours 3 mins"].map(
    (text) => [text, `expected a schedule, got an interval | set repeat instead of rule: repeat = '${text}'`] as const,
  ),
  ...Object.entries({ "2:30": "30 2 * * *", "00:05:00": "5 0 * * *", "23:09:10": "10 9 23 * * *" }).map(
    ([text, rule]) =>
      [
        text,
        `expected a schedule, got an interval | for each day at ${text}, write ${rule}; otherwise set repeat instead of rule: repeat = '${text}'`,
      ] as const,
  ),
  ["Every 5 minutes", "expected a schedule, got an interval | set repeat instead of rule: repeat = '5 minutes'"],
  ...["0\u00a00 * * *", "0 0 * *\u202f*", "0 0 * * MON\u00a0"].map(
    (rule) => [rule, "contains a no-break space | write plain spaces between the fields"] as const,
  ),
  ["0 0 0 1 1 * 2027", "expected 5 or 6 fields, got 7 | leave out the seventh field, which is the year in Quartz"],
  ...["CRON_TZ=", "tz="].map(
    (name) =>
      [`${name}UTC 30 1 * * *`, "the zone is not part of the rule | write zone = 'UTC', rule = '30 1 * * *'"] as const,
  ),
  [
    "@every 5m",
    "@every 5m is not known | write @yearly, @monthly, @weekly, @daily, @hourly, or fields such as 30 9 * * MON-FRI",
  ],
];

const neverComing = {
  "0 0 31 2 *": "February has no day 31.",
  "0 0 30,31 FEB ?": "February has no day 30 or 31.",
  "0 0 31 4,6 *": "April and June have no day 31.",
  "0 0 31 2,4,6 *": "February, April and June have no day 31.",
  "0 0 31W,L-30 2 *": "February has no day L-30 or 31W.",
  "0 0 */31 * FRI#2": "No day of the month fits both the day field and the weekday field.",
};

const messages: readonly (readonly [rule: string, message: string])[] = [
  ...refused.map(([rule, reason]): [string, string] => [rule, `rule "${rule}": ${reason}`]),
  ...Object.entries(neverComing).map(([rule, detail]): [string, string] => [
    rule,
    `rule "${rule}" never comes | ${detail}`,
  ]),
  ["@reboot", "@reboot is not a time | insert a task without a rule from whatever starts the server"],
];

for (const [rule, message] of messages) {
  test(`${JSON.stringify(rule)} is refused: ${message}`, async () => {
    const found = await nextTimes(client, [{ rule, zone: "UTC", since: "2027-01-01T00:00:00Z" }]);
    assert.deepEqual(found, [`22023 | ${message}`]);
  });
}

test("spaces, steps beyond the field, leading zeros and any case are accepted", async () => {
  const rules = [
    "\n0\t0  1\r\n* * ",
    "*/70 * * * *",
    "*/99999999999 * * * *",
    "0 00000000005 * * *",
    "0 0 * jAn fri#l",
  ];
  const cases = rules.map((rule) => ({ rule, zone: "UTC", since: "2027-01-01T00:00:00Z" }));
  assert.deepEqual(await nextTimes(client, cases), [
    "2027-02-01T00:00:00Z",
    "2027-01-01T01:00:00Z",
    "2027-01-01T01:00:00Z",
    "2027-01-01T05:00:00Z",
    "2027-01-29T00:00:00Z",
  ]);
});

test("a rule of ten thousand items is accepted, and one of a hundred thousand digits is refused", async () => {
  const list = Array.from({ length: 10_000 }, (_, index) => index % 60).join(",");
  const digits = "9".repeat(100_000);
  const since = "2027-01-01T00:00:00Z";
  const [fromList, fromDigits] = await nextTimes(client, [
    { rule: `${list} * * * *`, zone: "UTC", since },
    { rule: `${digits} * * * *`, zone: "UTC", since },
  ]);
  assert.equal(fromList, "2027-01-01T00:01:00Z");
  assert.match(fromDigits ?? "", /is not within 0-59$/);
});

test("rules have times from year 1 to year 2600", async () => {
  const times = await nextTimes(
    client,
    ["-infinity", "2600-12-30T12:00:00Z", "2600-12-31T00:00:00Z", "4000-01-01T00:00:00Z", "infinity"].map((since) => ({
      rule: "0 0 * * *",
      zone: "UTC",
      since,
    })),
  );
  const over = '22023 | rule "0 0 * * *" does not come again before the year 2601';
  assert.deepEqual(times, ["0001-01-04T00:00:00Z", "2600-12-31T00:00:00Z", over, over, over]);
});

test("an unknown zone causes the server's own error", async () => {
  const [error] = await nextTimes(client, [
    { rule: "0 0 * * *", zone: "Europe/Belrin", since: "2027-01-01T00:00:00Z" },
  ]);
  assert.equal(error, '22023 | time zone "Europe/Belrin" not recognized');
});

test("the collation of the rule does not matter", async () => {
  // In Turkish, the upper case of "fri" is not FRI. Regular expressions fail with nondeterministic collations.
  const { rows: collations } = await client.query(
    "SELECT FROM pg_collation WHERE collprovider = 'i' AND collname = 'tr-x-icu'",
  );
  if (collations.length === 0) return;
  await client.query("CREATE COLLATION vague (provider = icu, locale = 'und-u-ks-level2', deterministic = false)");
  const { rows } = await client.query(
    `SELECT next_time('0 0 l jan fri#l' COLLATE "tr-x-icu", 'UTC', '2027-01-01 UTC') AS turkish,
       next_time('0 0 L JAN FRI#L' COLLATE vague, 'UTC', '2027-01-01 UTC') AS vague`,
  );
  assert.deepEqual(rows, [{ turkish: "2027-01-29T00:00:00Z", vague: "2027-01-29T00:00:00Z" }]);
});
