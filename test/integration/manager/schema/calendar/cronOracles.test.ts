import assert from "node:assert/strict";
import { CronExpressionParser } from "cron-parser";
import { Cron } from "croner";
import { createDatabase } from "../../../../support/database.js";
import { test } from "../../../../support/limitedTest.js";
import { connectCalendar, nextTimes, type CronCase } from "./cronTimes.js";

const client = await connectCalendar(await createDatabase("empty"));

/** A seeded source of random choices (mulberry32). */
class Random {
  constructor(private state: number) {}

  /** Returns a number from 0 to 1 (exclusive). */
  number(): number {
    this.state = Math.trunc(this.state + 0x6d2b79f5);
    let mixed = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** Returns an integer from `low` to `high` (inclusive). */
  integer(low: number, high: number): number {
    return low + Math.floor(this.number() * (high - low + 1));
  }

  choose<T>(...choices: readonly [T, ...T[]]): T {
    return choices[this.integer(0, choices.length - 1)] ?? choices[0];
  }

  field(low: number, high: number): string {
    const first = this.integer(low, high);
    return this.choose(
      "*",
      `*/${this.integer(2, Math.min(20, high))}`,
      String(first),
      `${first}-${this.integer(first, high)}`,
      `${first}/${this.integer(2, 9)}`,
      [...new Set(Array.from({ length: this.integer(2, 4) }, () => this.integer(low, high)))].join(","),
    );
  }

  day(): string {
    const day = this.integer(1, 31);
    return this.choose("*", "*", String(day), "L", "LW", `${day}W`, this.field(1, 31));
  }

  weekday(): string {
    const day = this.integer(0, 6);
    const ordinal = `${day}#${this.integer(1, 5)}`;
    return this.choose("*", "*", "*", String(day), "7", ordinal, `${day}L`, "MON-FRI", `${this.integer(0, 3)}-5`);
  }

  rule(): string {
    const month = this.number() < 0.7 ? "*" : this.choose(this.field(1, 12), "FEB", "JAN-MAR");
    const second = this.number() < 0.2 ? `${this.field(0, 59)} ` : "";
    return `${second}${this.field(0, 59)} ${this.field(0, 23)} ${this.day()} ${month} ${this.weekday()}`;
  }
}

/** Zones, and times before their clocks are changed. The years are past, so all time zone data agree on them. */
const zones = [
  ["Europe/Berlin", "2021-03-27T10:00:00Z", "2021-10-30T10:00:00Z"],
  ["America/New_York", "2021-03-13T10:00:00Z", "2021-11-06T10:00:00Z"],
  ["Australia/Lord_Howe", "2021-10-02T05:00:00Z", "2021-04-03T05:00:00Z"],
  ["America/Sao_Paulo", "2018-11-03T10:00:00Z", "2019-02-16T10:00:00Z"],
  ["America/St_Johns", "2021-03-13T10:00:00Z", "2021-11-06T10:00:00Z"],
  ["Pacific/Chatham", "2021-09-25T02:00:00Z", "2021-04-03T02:00:00Z"],
  ["Asia/Kolkata", "2021-01-01T00:00:00Z", "2021-01-01T00:00:00Z"],
  ["UTC", "2021-01-01T00:00:00Z", "2021-01-01T00:00:00Z"],
] as const;
const dayMs = 86_400_000;

function randomCase(random: Random): CronCase {
  const [zone, forward, back] = random.choose<(typeof zones)[number]>(...zones);
  const since =
    random.number() < 0.5
      ? Date.parse(random.choose(forward, back)) + random.integer(0, 2 * 86_400) * 1000
      : Date.UTC(2016) + random.integer(0, 7 * 365 * 86_400) * 1000;
  return { rule: random.rule(), zone, since: isoTime(new Date(since)) };
}

const never = "never";
const isoTime = (time: Date): string => time.toISOString().replace(".000Z", "Z");

/** Replaces `5/2` by the range that it means, because croner accepts steps only after ranges. */
function withRanges(rule: string): string {
  const highest = rule.split(" ").length === 5 ? [59, 23, 31, 12, 6] : [59, 59, 23, 31, 12, 6];
  return rule
    .split(" ")
    .map((field, index) => field.replaceAll(/(?<![-\d])(\d+)\//g, (_, first: string) => `${first}-${highest[index]}/`))
    .join(" ");
}

/** Returns the next time according to croner, or why there is none. */
function cronerTime({ rule, zone, since }: CronCase): string {
  try {
    const next = new Cron(withRanges(rule), { timezone: zone }).nextRun(new Date(since));
    return next === null ? never : isoTime(next);
  } catch (error) {
    return String(error);
  }
}

/** Returns the next time according to cron-parser, or why there is none. */
function parserTime({ rule, zone, since }: CronCase): string {
  try {
    return isoTime(
      CronExpressionParser.parse(rule, { tz: zone, currentDate: new Date(since) })
        .next()
        .toDate(),
    );
  } catch (error) {
    return String(error).replace(
      /^Error: (Invalid explicit day of month definition|Invalid expression, loop limit exceeded)$/,
      never,
    );
  }
}

/** Returns the offset of the zone at the time, in ms. */
function offsetAt(time: number, zone: string): number {
  const parts = new Intl.DateTimeFormat("en-US", {
    timeZone: zone,
    hourCycle: "h23",
    year: "numeric",
    month: "numeric",
    day: "numeric",
    hour: "numeric",
    minute: "numeric",
    second: "numeric",
  }).formatToParts(time);
  const part = (type: string): number => Number(parts.find((each) => each.type === type)?.value);
  const wall = Date.UTC(part("year"), part("month") - 1, part("day"), part("hour"), part("minute"), part("second"));
  return wall - time;
}

interface Difference extends CronCase {
  readonly ours: string;
  readonly theirs: string;
}

/** The fields of a rule: second, minute, hour, day, month, weekday. */
function fieldsOf({ rule }: CronCase): [string, string, string, string, string, string] {
  const fields = rule.split(" ");
  const [second = "", minute = "", hour = "", day = "", month = "", weekday = ""] =
    fields.length === 5 ? ["0", ...fields] : fields;
  return [second, minute, hour, day, month, weekday];
}

const isFixed = (one: CronCase): boolean =>
  fieldsOf(one)
    .slice(1, 3)
    .every((field) => !field.startsWith("*"));

/** Whether the clocks of the zone are set forward (1) or back (-1) at most a day from the time that we found. */
function isNearChange({ zone, ours }: Difference, direction: 1 | -1): boolean {
  const time = Date.parse(ours);
  if (Number.isNaN(time)) return false;
  return Math.sign(offsetAt(time + dayMs, zone) - offsetAt(time - dayMs, zone)) === direction;
}

/** Vixie cron and pg_cron: both day fields have to fit if one of them begins with `*`, even if it has a step. */
function isSteppedDay(one: CronCase): boolean {
  const [, , , day, , weekday] = fieldsOf(one);
  return (day.startsWith("*/") && weekday !== "*") || (weekday.startsWith("*/") && day !== "*");
}

/** The known differences, by oracle. Any other difference counts as an error of pg-task. */
const exceptions: Record<"croner" | "cron-parser", Record<string, (one: Difference) => boolean>> = {
  croner: {
    "either day field is enough, even if one has a step": isSteppedDay,
    "a fixed time in a gap is lost, or comes some seconds or minutes later, if it has no second 0": (one) =>
      isFixed(one) && fieldsOf(one)[0] !== "0" && isNearChange(one, 1),
    "a fixed time in a gap that begins within an hour is lost": (one) =>
      isFixed(one) && one.zone === "Pacific/Chatham" && isNearChange(one, 1),
    "30 2,3 comes three times when the clocks are set back": (one) => isFixed(one) && isNearChange(one, -1),
  },
  "cron-parser": {
    "either day field is enough, even if one has a step": isSteppedDay,
    "W is not known": ({ theirs }) => /^Error: Invalid characters, got value: (L|\d+)W$/.test(theirs),
    "a fixed time in a gap comes late by the length of the gap": (one) => isFixed(one) && isNearChange(one, 1),
    "it finds nothing after the clocks of Lord Howe are set back by half an hour": (one) =>
      one.theirs === never && one.zone === "Australia/Lord_Howe" && isNearChange(one, -1),
  },
};
const oracles = { croner: cronerTime, "cron-parser": parserTime };

for (const [name, oracle] of Object.entries(oracles)) {
  for (const seed of [1, 2, 3]) {
    test(`the next times of 1,000 random rules are those of ${name}, apart from the named exceptions (seed ${seed})`, async () => {
      const random = new Random(seed);
      const cases = Array.from({ length: 1000 }, () => randomCase(random));
      const times = await nextTimes(client, cases);
      const differences = cases
        .map((one, index): Difference => {
          const ours = times[index] ?? "";
          return { ...one, ours: ours.includes("never comes") ? never : ours, theirs: oracle(one) };
        })
        .filter(({ ours, theirs }) => ours !== theirs);
      const known = Object.values(exceptions[name === "croner" ? "croner" : "cron-parser"]);
      assert.deepEqual(
        differences.filter((one) => !known.some((explains) => explains(one))),
        [],
      );
      assert.ok(differences.length < 400, `${differences.length} differences are too many to have compared much`);
    });
  }
}
