import assert from "node:assert/strict";
import { Random } from "../../../../chaos/random.js";
import { createDatabase } from "../../../../support/database.js";
import { test } from "../../../../support/limitedTest.js";
import { connectCalendar, firstTimes, nextTimes, schema, type CronCase } from "./cronTimes.js";

const client = await connectCalendar(await createDatabase("empty"));

/** An instant and the wall time that a zone's clocks show then, in ms since 1970. The wall time is read as if in UTC. */
interface Minute {
  readonly instant: number;
  readonly wall: number;
}

const minuteMs = 60_000;
const dayMs = 86_400_000;

async function minutesAfter(since: string, zone: string, days: number): Promise<Minute[]> {
  const { rows } = await client.query<{ instant: string; wall: string }>(
    `SELECT extract(epoch FROM instant)::bigint AS instant,
       extract(epoch FROM (instant AT TIME ZONE $2) AT TIME ZONE 'UTC')::bigint AS wall
     FROM generate_series($1::text::timestamptz, $1::text::timestamptz + $3 * interval '24 hours', '1 minute') AS instant`,
    [since, zone, days],
  );
  return rows.map(({ instant, wall }) => ({ instant: Number(instant) * 1000, wall: Number(wall) * 1000 }));
}

/** Whether a field of plain items (lists, ranges, steps, names) contains the value. */
function contains(field: string, value: number, low: number, high: number, names: readonly string[] = []): boolean {
  const number = (text: string): number => {
    const index = names.indexOf(text.toUpperCase());
    return index === -1 ? Number(text) : index + low;
  };
  return field.split(",").some((item) => {
    const [range = "", step] = item.split("/");
    const [first = "", last] = range.split("-");
    const isAny = range === "*" || range === "?";
    const from = isAny ? low : number(first);
    const to = isAny || (last === undefined && step !== undefined) ? high : number(last ?? first);
    for (let each = from; each <= (to < from ? to + 7 : to); each += Number(step ?? 1)) {
      if (each === value || (names.includes("SUN") && each % 7 === value)) return true;
    }
    return false;
  });
}

const monthNames = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const weekdayNames = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

function isNearestWorkingDay(date: Date, target: number): boolean {
  const [year, month] = [date.getUTCFullYear(), date.getUTCMonth()];
  const candidates = [0, -1, 1, -2, 2].map((shift) => new Date(Date.UTC(year, month, target + shift)));
  const nearest = candidates.find((each) => each.getUTCMonth() === month && ![0, 6].includes(each.getUTCDay()));
  return new Date(Date.UTC(year, month, target)).getUTCMonth() === month && nearest?.getUTCDate() === date.getUTCDate();
}

function fitsDayField(field: string, date: Date): boolean {
  const length = new Date(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 0)).getUTCDate();
  return field.split(",").some((item) => {
    if (item === "L" || item === "$") return date.getUTCDate() === length;
    if (item.startsWith("L-")) return date.getUTCDate() === length - Number(item.slice(2));
    if (item === "LW") return isNearestWorkingDay(date, length);
    if (item.endsWith("W")) return isNearestWorkingDay(date, Number(item.slice(0, -1)));
    return contains(item, date.getUTCDate(), 1, 31);
  });
}

function fitsWeekdayField(field: string, date: Date): boolean {
  const week = Math.ceil(date.getUTCDate() / 7);
  const isLast = new Date(date.getTime() + 7 * dayMs).getUTCMonth() !== date.getUTCMonth();
  return field.split(",").some((item) => {
    const [day = "", ordinal] = item.endsWith("L") && !item.includes("#") ? [item.slice(0, -1), "L"] : item.split("#");
    if (!contains(day, date.getUTCDay(), 0, 6, weekdayNames)) return false;
    return ordinal === undefined || (ordinal === "L" ? isLast : Number(ordinal) === week);
  });
}

function fitsDate(rule: string, date: Date): boolean {
  const [, , day = "", month = "", weekday = ""] = rule.split(" ");
  if (!contains(month, date.getUTCMonth() + 1, 1, 12, monthNames)) return false;
  const both = /^[*?]/.test(day) || /^[*?]/.test(weekday);
  const [fitsDay, fitsWeekday] = [fitsDayField(day, date), fitsWeekdayField(weekday, date)];
  return both ? fitsDay && fitsWeekday : fitsDay || fitsWeekday;
}

function fitsTime(rule: string, date: Date): boolean {
  const [minute = "", hour = ""] = rule.split(" ");
  return contains(minute, date.getUTCMinutes(), 0, 59) && contains(hour, date.getUTCHours(), 0, 23);
}

/** Whether a rule of five fields fits a wall time. Written from the documents, not from the calendar's code. */
function fits(rule: string, wall: number): boolean {
  const date = new Date(wall);
  return fitsTime(rule, date) && fitsDate(rule, date);
}

/** Returns the first minute after `since` that fits, in UTC. Undefined if there is none in 41 years. */
function firstAfter(rule: string, since: number): number | undefined {
  for (let day = Math.floor(since / dayMs) * dayMs; day < since + 41 * 366 * dayMs; day += dayMs) {
    if (!fitsDate(rule, new Date(day))) continue;
    for (let minute = day; minute < day + dayMs; minute += minuteMs)
      if (minute > since && fitsTime(rule, new Date(minute))) return minute;
  }
  return undefined;
}

function instantsWithin(rule: string, minutes: readonly Minute[]): number[] {
  const isFixed = !/^[*]|^[^ ]+ [*]/.test(rule);
  if (!isFixed) return minutes.filter(({ wall }) => fits(rule, wall)).map(({ instant }) => instant);
  const found: number[] = [];
  let seen = Number.NEGATIVE_INFINITY;
  let before: Minute | undefined;
  for (const minute of minutes) {
    const skipped = before === undefined ? 0 : minute.wall - before.wall - minuteMs;
    const start = skipped > 0 && skipped <= 180 * minuteMs ? minute.wall - skipped : minute.wall;
    for (let wall = start; wall <= minute.wall; wall += minuteMs) {
      if (wall > seen && fits(rule, wall) && found.at(-1) !== minute.instant) found.push(minute.instant);
    }
    seen = Math.max(seen, minute.wall);
    before = minute;
  }
  return found;
}

const isoTime = (time: number): string => new Date(time).toISOString().replace(".000Z", "Z");

const minuteRules = [
  "*/3 0-4 * * *",
  "*/7 * * * *",
  "*/15 1-3 * * *",
  "30 2 * * *",
  "30 2,3 * * *",
  "0,30 0-4 * * *",
  "15 */2 * * *",
  "5/20 2/1 * * *",
  "45 1 * * 6,0",
  "0 0 * * *",
  "59 23 * * *",
  "10 2 * * FRI-MON",
  "10 2 * * sat-sun/1",
  "20 1-3/2 */2 * 0-5",
] as const;

const random = new Random(3);

function randomField(low: number, high: number): string {
  const first = random.between(low, high);
  return random.pick([
    "*",
    `*/${random.between(2, Math.min(20, high))}`,
    String(first),
    `${first}-${random.between(first, high)}`,
    `${first}/${random.between(2, 9)}`,
    [...new Set(Array.from({ length: random.between(2, 4) }, () => random.between(low, high)))].join(","),
  ]);
}

const randomTime = (): string => `${randomField(0, 59)} ${randomField(0, 23)}`;

function randomRule(): string {
  const [day, weekday] = [random.between(1, 31), random.between(0, 6)];
  const dayField = random.pick(["*", "*", String(day), "L", "LW", `${day}W`, randomField(1, 31)]);
  const month = random.next() < 0.7 ? "*" : random.pick([randomField(1, 12), "FEB", "JAN-MAR"]);
  const ordinal = `${weekday}#${random.between(1, 5)}`;
  const weekdayField = random.pick(["*", "*", "*", String(weekday), "7", ordinal, `${weekday}L`, "MON-FRI", "2-5"]);
  return `${randomTime()} ${dayField} ${month} ${weekdayField}`;
}

test("the next times of 3,000 random rules are those of the matcher", async () => {
  const cases = Array.from({ length: 3000 }, (): CronCase => {
    const since = isoTime(Date.UTC(2016) + random.between(0, 7 * 365 * 1440) * minuteMs);
    return { rule: randomRule(), zone: "UTC", since };
  });
  const found = await nextTimes(client, cases);
  for (const [index, one] of cases.entries()) {
    const expected = firstAfter(one.rule, Date.parse(one.since));
    const isRight =
      expected === undefined ? /never comes/.test(found[index] ?? "") : found[index] === isoTime(expected);
    assert.ok(isRight, JSON.stringify({ ...one, expected, found: found[index] }));
  }
});

for (const [zone, ...starts] of [
  ["Europe/Berlin", "2021-03-26T12:00:00Z", "2021-10-29T12:00:00Z"],
  ["America/New_York", "2021-03-12T12:00:00Z", "2021-11-05T12:00:00Z"],
  ["Australia/Lord_Howe", "2021-10-01T12:00:00Z", "2021-04-02T12:00:00Z"],
  ["America/Sao_Paulo", "2018-11-02T12:00:00Z", "2019-02-15T12:00:00Z"],
  ["Pacific/Chatham", "2021-09-24T12:00:00Z", "2021-04-02T12:00:00Z"],
  ["Antarctica/Troll", "2021-03-26T12:00:00Z", "2021-10-29T12:00:00Z"],
  ["Pacific/Apia", "2011-12-28T12:00:00Z", "2011-09-23T12:00:00Z"],
  ["Pacific/Kwajalein", "1993-08-19T12:00:00Z", "1969-09-29T00:00:00Z"],
  ["America/St_Johns", "2011-03-12T00:00:00Z", "2010-11-06T00:00:00Z"],
] as const) {
  for (const since of starts) {
    test(`around ${since} in ${zone}, rules have a time in every minute that fits and in no other`, async () => {
      const minutes = await minutesAfter(since, zone, 2.5);
      const last = isoTime(minutes.at(-1)?.instant ?? 0);
      const randomRules = Array.from({ length: 30 }, () => `${randomTime()} * * *`);
      for (const rule of [...minuteRules, ...randomRules]) {
        const expected = instantsWithin(rule, minutes.slice(1)).map(isoTime);
        const found = await firstTimes(client, { rule, zone, since }, expected.length + 1);
        assert.deepEqual(found.slice(0, -1), expected, rule);
        assert.ok((found.at(-1) ?? "") > last, rule);
      }
    });
  }
}

const dayRules = [
  "0 12 L * *",
  "0 12 $ * *",
  "0 12 L-3 * *",
  "0 12 LW * *",
  "0 12 1W,15W,31W * *",
  "0 12 * * 5L",
  "0 12 * * FRI#L",
  "0 12 * * 2#2,7#5",
  "0 12 13 * 5",
  "0 12 */2 * 1",
  "0 12 1-7 * */3",
  "0 12 ? * MON",
  "0 12 29 2 *",
  "0 12 30,31 JAN-MAR ?",
  "0 12 LW * THU#4",
  "0 12 L * FRIL",
  "0 12 */3 2 sun",
  "0 12 5-10/2,30W 2,11/1 *",
  "0 12 * 7 *",
  "0 12 L-29 * *",
  "0 12 L-30,28W */5 *",
] as const;

test("over 15 years, rules have a time on every day that fits and on no other", async () => {
  const start = Date.UTC(2027, 0, 1);
  const days = Array.from({ length: 15 * 365 }, (_, index) => start + index * dayMs + 12 * 60 * minuteMs);
  for (const rule of dayRules) {
    const expected = days.filter((wall) => fits(rule, wall)).map(isoTime);
    assert.ok(expected.length > 0, rule);
    const found = await firstTimes(client, { rule, zone: "UTC", since: isoTime(start) }, expected.length);
    assert.deepEqual(found, expected, rule);
  }
});

test("in a year of * * * * *, the next time is always the next minute", async () => {
  // 31 minutes have no common factor with an hour or a day, so that every minute of an hour and every hour is tried.
  const { rows } = await client.query<{ count: string; wrong: string }>(
    `SELECT count(*), count(*) FILTER (WHERE next IS DISTINCT FROM since + interval '1 minute') AS wrong
     FROM generate_series('2023-01-01 UTC'::timestamptz, '2023-12-31 23:59 UTC', '31 minutes') AS since,
       LATERAL (SELECT ${schema}.task_cron_next('* * * * *', 'Europe/Berlin', since) AS next) AS n`,
  );
  assert.deepEqual(rows, [{ count: String(Math.ceil((365 * 1440) / 31)), wrong: "0" }]);
});

test("a rule for February 29 on a Monday has exactly the times of the calendar, up to 2600", async () => {
  const years = Array.from({ length: 2600 - 2027 }, (_, index) => 2028 + index).filter((year) => {
    const day = new Date(Date.UTC(year, 1, 29));
    return day.getUTCMonth() === 1 && day.getUTCDay() === 1;
  });
  // Both fields have to fit, because the weekday begins with `*`.
  const rule = "0 0 29 2 */8,1-1";
  const sundayToo = await firstTimes(client, { rule, zone: "UTC", since: "2027-01-01T00:00:00Z" }, 1000);
  const mondays = sundayToo.filter((time) => new Date(time).getUTCDay() === 1);
  assert.deepEqual(
    mondays.map((time) => Number(time.slice(0, 4))),
    years,
  );
  assert.match(sundayToo.at(-1) ?? "", /does not come again before the year 2601$/);
});

/** Rules for the next test, which needs no second implementation, so that rules with seconds are included. */
const lawRules = [
  "* * * * *",
  ...minuteRules,
  ...dayRules,
  "* * * * * *",
  "*/20 30 2 * * *",
  "59 59 23 L * *",
  "* 30 2 * * *",
  "7 */9 * * * 7",
];

test("the next time is later than since, and is also the next time after any instant in between", async () => {
  const zones = ["Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Apia", "America/Juneau", "UTC"];
  const cases = Array.from({ length: 1000 }, (): CronCase => {
    const zone = random.pick(zones);
    const rule = random.pick(lawRules);
    // From 1850, when offsets had seconds, to 2050. Half of the times are near clock changes.
    const changes = ["2021-03-28T00:00:00Z", "2021-10-31T00:00:00Z", "2011-12-30T00:00:00Z", "1867-10-18T00:00:00Z"];
    const anyDay = Date.UTC(1850, 0) + random.between(0, 200 * 365) * dayMs;
    const time = random.next() < 0.5 ? anyDay : Date.parse(random.pick(changes));
    const since = isoTime(time + random.between(1, dayMs)).replace(/(\.\d+)?Z$/, `.${random.between(0, 999_999)}Z`);
    return { rule, zone, since };
  });
  const next = await nextTimes(client, cases);
  const just = next.map((time) => new Date(Date.parse(time) - 1000).toISOString().replace(".000Z", ".999999Z"));
  const middle = next.map((time, index) => {
    const from = Date.parse(cases[index]?.since ?? "") + 1;
    return new Date(from + Math.floor((Date.parse(time) - from) / 2)).toISOString();
  });
  const again = await nextTimes(
    client,
    cases.map((one, index) => ({ ...one, since: just[index] ?? "" })),
  );
  const halfway = await nextTimes(
    client,
    cases.map((one, index) => ({ ...one, since: middle[index] ?? "" })),
  );
  for (const [index, one] of cases.entries()) {
    const time = next[index] ?? "";
    assert.ok(Date.parse(time) > Date.parse(one.since), JSON.stringify({ ...one, time }));
    assert.equal(again[index], time, JSON.stringify(one));
    assert.equal(halfway[index], time, JSON.stringify({ ...one, middle: middle[index] }));
  }
});
