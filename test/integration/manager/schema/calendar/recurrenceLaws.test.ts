import assert from "node:assert/strict";
import { Random } from "../../../../chaos/random.js";
import { test } from "../../../../support/limitedTest.js";
import { connectWithCalendar, nextTimes, randomRule, type RandomRule } from "./recurrences.js";

const client = await connectWithCalendar();
const day = 86_400_000;

function randomRules(seed: number, count: number, zone?: string): RandomRule[] {
  const random = new Random(seed);
  return Array.from({ length: count }, () => randomRule(random, zone));
}

/** Returns the rules for which the condition does not hold, with the values of the expressions that it compares. */
async function violations(rules: readonly RandomRule[], expressions: string, condition: string): Promise<unknown[]> {
  const { rows } = await client.query<Record<string, unknown>>(
    `SELECT rule, zone, since, result.* FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS question(rule, zone, since)
     CROSS JOIN LATERAL (SELECT ${expressions} OFFSET 0) AS result WHERE (${condition}) IS NOT TRUE`,
    [rules.map((it) => it.rule), rules.map((it) => it.zone), rules.map((it) => it.since)],
  );
  return rows;
}

test("times ascend, and each is the next time after every instant since the one before", async () => {
  const wrong = await violations(
    randomRules(11, 300),
    `task_rrule_next(rule, zone, since) AS first,
     task_rrule_next(rule, zone, task_rrule_next(rule, zone, since) - interval '1 microsecond') AS again,
     task_rrule_next(rule, zone, since + (task_rrule_next(rule, zone, since) - since) / 2) AS halfway`,
    "first IS NULL OR (first > since AND again = first AND halfway = first)",
  );
  assert.deepEqual(wrong, []);
});

const timesByPassing = (rule: string): string =>
  `(WITH RECURSIVE step(number, rule, at) AS (
      SELECT 0, rule, timestamptz '2010-01-01 00:00:00Z'
      UNION ALL SELECT number + 1, ${rule}, next FROM step, LATERAL (SELECT task_rrule_next(rule, zone, at) OFFSET 0) AS found(next)
      WHERE number < 12 AND next IS NOT NULL)
    SELECT string_agg(extract(epoch FROM at)::bigint::text, ' ' ORDER BY number) FROM step)`;

test("a rule whose successors get what is left of COUNT has the times of the whole rule", async () => {
  const rules = randomRules(12, 700).filter((rule) => rule.parts.has("COUNT"));
  assert.ok(rules.length > 100);
  const extended = rules.map((rule) => ({ ...rule, rule: `${rule.rule}\nRDATE:20180101T000000Z,20230401T000000Z` }));
  const wrong = await violations(
    extended,
    `${timesByPassing("rule")} AS whole, ${timesByPassing("task_rrule_remaining(rule, zone, next)")} AS passed_on`,
    "whole = passed_on",
  );
  assert.deepEqual(wrong, []);
});

const remaining = async (rule: string, at: string): Promise<string | undefined> => {
  const { rows } = await client.query<{ rest: string }>("SELECT task_rrule_remaining($1, 'UTC', $2) AS rest", [
    rule,
    at,
  ]);
  return rows[0]?.rest;
};

test("what is left of COUNT is written into the rule", async () => {
  const rule = "DTSTART:20230101T090000Z\nRRULE:FREQ=DAILY;COUNT=5\nEXDATE:20230102T090000Z\nRDATE:20230103T100000Z";
  const rest = (start: string, count: number): string =>
    `DTSTART;TZID=UTC:${start}\n${rule.split("\n").slice(1).join("\n").replace("COUNT=5", `COUNT=${count}`)}`;
  assert.equal(await remaining(rule, "2023-01-01T09:00:00Z"), rest("20230101T090000", 5));
  assert.equal(await remaining(rule, "2023-01-03T10:00:00Z"), rest("20230103T090000", 3));
  assert.equal(await remaining(rule, "2024-01-01T00:00:00Z"), rest("20230105T090000", 1));
  assert.equal(await remaining(rule, "2022-01-01T00:00:00Z"), rule);
  assert.equal(await remaining("FREQ=DAILY", "2022-01-01T00:00:00Z"), "FREQ=DAILY");
});

/** An independent reading of RFC 5545 for rules in UTC without BYSETPOS: whether the rule allows the instant. */
class Matcher {
  readonly #rule: RandomRule;
  readonly #numbers: ReadonlyMap<string, readonly number[]>;
  readonly #start: Date;
  readonly #interval: number;
  readonly #weekStart: number;

  constructor(rule: RandomRule) {
    this.#rule = rule;
    this.#numbers = new Map([...rule.parts].map(([name, value]) => [name, value.split(",").map(Number)]));
    this.#start = new Date(rule.start);
    this.#interval = Number(rule.parts.get("INTERVAL") ?? 1);
    this.#weekStart = weekday(rule.parts.get("WKST") ?? "MO");
  }

  allows(at: Date): boolean {
    return at >= this.#start && this.#inPeriod(at) && this.#fits(at);
  }

  /** Number of the period of the rule's frequency that contains the instant. */
  #period(at: Date): number {
    const months = at.getUTCFullYear() * 12 + at.getUTCMonth();
    const seconds = at.getTime() / 1000;
    switch (this.#rule.freq) {
      case "YEARLY":
        return at.getUTCFullYear();
      case "MONTHLY":
        return months;
      case "WEEKLY":
        // 1970-01-04 was a Sunday.
        return Math.floor((seconds / 86_400 - 3 - this.#weekStart) / 7);
      default:
        return Math.floor(seconds / ({ DAILY: 86_400, HOURLY: 3600, MINUTELY: 60 }[this.#rule.freq] ?? 1));
    }
  }

  #inPeriod(at: Date): boolean {
    return (this.#period(at) - this.#period(this.#start)) % this.#interval === 0;
  }

  #fits(at: Date): boolean {
    const { freq, parts } = this.#rule;
    const start = this.#start;
    const has = (name: string): boolean => parts.has(name);
    const among = (name: string, value: number, size = 0): boolean => {
      const numbers = this.#numbers.get(name);
      return numbers === undefined || numbers.includes(value) || (size > 0 && numbers.includes(value - size - 1));
    };
    const monthLength = new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + 1, 0)).getUTCDate();
    const slow = ["YEARLY", "MONTHLY", "WEEKLY", "DAILY"].includes(freq);
    const dayGiven = ["BYDAY", "BYMONTHDAY", "BYYEARDAY"].some(has);
    if ((slow || freq === "HOURLY") && !has("BYMINUTE") && at.getUTCMinutes() !== start.getUTCMinutes()) return false;
    if (slow && !has("BYHOUR") && at.getUTCHours() !== start.getUTCHours()) return false;
    if (freq !== "SECONDLY" && !has("BYSECOND") && at.getUTCSeconds() !== start.getUTCSeconds()) return false;
    if (freq === "WEEKLY" || has("BYWEEKNO")) {
      if (!dayGiven && at.getUTCDay() !== start.getUTCDay()) return false;
    } else if ((freq === "YEARLY" || freq === "MONTHLY") && !dayGiven) {
      if (at.getUTCDate() !== start.getUTCDate()) return false;
      if (freq === "YEARLY" && !has("BYMONTH") && at.getUTCMonth() !== start.getUTCMonth()) return false;
    }
    return (
      among("BYMONTH", at.getUTCMonth() + 1) &&
      among("BYHOUR", at.getUTCHours()) &&
      among("BYMINUTE", at.getUTCMinutes()) &&
      among("BYSECOND", at.getUTCSeconds()) &&
      among("BYMONTHDAY", at.getUTCDate(), monthLength) &&
      among("BYYEARDAY", dayOfYear(at), yearLength(at.getUTCFullYear())) &&
      this.#fitsWeek(at, among) &&
      this.#fitsWeekday(at, monthLength)
    );
  }

  #fitsWeek(at: Date, among: (name: string, value: number, size: number) => boolean): boolean {
    if (!this.#numbers.has("BYWEEKNO")) return true;
    const begin = at.getTime() - ((at.getUTCDay() - this.#weekStart + 7) % 7) * day;
    const middle = new Date(begin + 3 * day);
    const number = Math.ceil(dayOfYear(middle) / 7);
    let last = number;
    for (
      let next = middle;
      next.getUTCFullYear() === middle.getUTCFullYear();
      next = new Date(next.getTime() + 7 * day)
    ) {
      last = Math.ceil(dayOfYear(next) / 7);
    }
    return among("BYWEEKNO", number, last);
  }

  #fitsWeekday(at: Date, monthLength: number): boolean {
    const days = this.#rule.parts.get("BYDAY")?.split(",");
    if (days === undefined) return true;
    const monthly = this.#rule.freq === "MONTHLY" || this.#rule.parts.has("BYMONTH");
    const position = monthly ? at.getUTCDate() : dayOfYear(at);
    const size = monthly ? monthLength : yearLength(at.getUTCFullYear());
    const ordinals = [0, Math.ceil(position / 7), -Math.ceil((size - position + 1) / 7)];
    return days.some((it) => weekday(it.slice(-2)) === at.getUTCDay() && ordinals.includes(Number(it.slice(0, -2))));
  }
}

const weekday = (name: string): number => ["SU", "MO", "TU", "WE", "TH", "FR", "SA"].indexOf(name);
const dayOfYear = (at: Date): number => Math.floor((at.getTime() - Date.UTC(at.getUTCFullYear(), 0, 1)) / day) + 1;
const yearLength = (year: number): number => (Date.UTC(year + 1, 0, 1) - Date.UTC(year, 0, 1)) / day;

/** Yields instants that may be times of the rule, in ascending order. The faster the rule, the fewer days they cover. */
function* candidates(rule: RandomRule): Generator<Date> {
  const since = Date.parse(rule.since);
  const numbers = (name: string, size: number): number[] =>
    rule.parts.get(name)?.split(",").map(Number) ?? Array.from({ length: size }, (_, index) => index);
  const seconds = rule.freq === "SECONDLY" ? numbers("BYSECOND", 60) : numbers("BYSECOND", 1);
  const days = { YEARLY: 1500, MONTHLY: 400, WEEKLY: 200, DAILY: 100, HOURLY: 8, MINUTELY: 3 }[rule.freq] ?? 1;
  // Without BYHOUR or BYMINUTE, all times of a slow rule have the hour and the minute of its start.
  const isSlow = ["YEARLY", "MONTHLY", "WEEKLY", "DAILY"].includes(rule.freq);
  const start = new Date(rule.start);
  const hours = isSlow && !rule.parts.has("BYHOUR") ? [start.getUTCHours()] : numbers("BYHOUR", 24);
  const minutes = isSlow && !rule.parts.has("BYMINUTE") ? [start.getUTCMinutes()] : numbers("BYMINUTE", 60);
  for (let date = Math.floor(since / day) * day; date < since + days * day; date += day) {
    for (const hour of hours) {
      for (const minute of minutes) {
        for (const second of seconds) yield new Date(date + ((hour * 60 + minute) * 60 + second) * 1000);
      }
    }
  }
}

test("by comparison with an independent matcher, no time is left out and none is added", async () => {
  const rules = randomRules(13, 350, "UTC").filter(({ parts }) => !parts.has("BYSETPOS") && !parts.has("COUNT"));
  const found = await nextTimes(client, rules, 4);
  const wrong: unknown[] = [];
  let compared = 0;
  for (const [index, rule] of rules.entries()) {
    const matcher = new Matcher(rule);
    const expected: string[] = [];
    let last = 0;
    for (const at of candidates(rule)) {
      last = at.getTime();
      if (at > new Date(rule.since) && matcher.allows(at)) expected.push(at.toISOString().replace(".000", ""));
      if (expected.length === 4) break;
    }
    const ours = (found[index] ?? []).filter((time) => time !== "end" && Date.parse(time) <= last);
    compared += expected.length;
    if (expected.join(" ") !== ours.join(" ")) wrong.push({ rule: rule.rule, since: rule.since, ours, expected });
  }
  assert.deepEqual(wrong, []);
  assert.ok(compared > 400, `only ${compared} times compared`);
});

const at = (time: number): string => new Date(time).toISOString().replace(".000", "");
const nth = (year: number, month: number, name: string, number: number): number => {
  const first = new Date(Date.UTC(year, month, 1));
  return Date.UTC(year, month, 1 + ((weekday(name) - first.getUTCDay() + 7) % 7) + 7 * (number - 1), 9);
};

test("yearly rules have the right times over a hundred years", async () => {
  const years = Array.from({ length: 100 }, (_, index) => 2001 + index);
  const rules = {
    "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=-1": years.map((year) => Date.UTC(year, 2, 0, 9)),
    "FREQ=YEARLY;BYYEARDAY=-1": years.map((year) => Date.UTC(year + 1, 0, 0, 9)),
    "FREQ=YEARLY;BYMONTH=11;BYDAY=4TH": years.map((year) => nth(year, 10, "TH", 4)),
    "FREQ=YEARLY;BYWEEKNO=1;BYDAY=TH": years.map((year) => nth(year, 0, "TH", 1)),
    "FREQ=YEARLY": years.map((year) => Date.UTC(year, 0, 1, 9)),
  };
  const questions = Object.keys(rules).map((value) => ({
    rule: `DTSTART:20010101T090000Z\nRRULE:${value}`,
    zone: "UTC",
    since: "2000-12-31T00:00:00Z",
  }));
  assert.deepEqual(
    await nextTimes(client, questions, years.length),
    Object.values(rules).map((times) => times.map(at)),
  );
});
