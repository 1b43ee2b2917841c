import assert from "node:assert/strict";
import { Cron } from "croner";
import { Random } from "../../../../chaos/random.js";
import { createDatabase } from "../../../../support/database.js";
import { test } from "../../../../support/limitedTest.js";
import { connectCalendar, nextTimes, type CronCase } from "./cronTimes.js";

const client = await connectCalendar(await createDatabase("empty"));

function randomField(random: Random, low: number, high: number): string {
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

function randomDay(random: Random): string {
  const day = random.between(1, 31);
  return random.pick(["*", "*", String(day), "L", "LW", `${day}W`, randomField(random, 1, 31)]);
}

function randomWeekday(random: Random): string {
  const day = random.between(0, 6);
  const ordinal = `${day}#${random.between(1, 5)}`;
  return random.pick(["*", "*", "*", String(day), "7", ordinal, `${day}L`, "MON-FRI", `${random.between(0, 3)}-5`]);
}

function randomRule(random: Random): string {
  const month = random.next() < 0.7 ? "*" : random.pick([randomField(random, 1, 12), "FEB", "JAN-MAR"]);
  const second = random.next() < 0.2 ? `${randomField(random, 0, 59)} ` : "";
  const time = `${randomField(random, 0, 59)} ${randomField(random, 0, 23)}`;
  return `${second}${time} ${randomDay(random)} ${month} ${randomWeekday(random)}`;
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
  const [zone, forward, back] = random.pick(zones);
  const since =
    random.next() < 0.5
      ? Date.parse(random.pick([forward, back])) + random.between(0, 2 * 86_400) * 1000
      : Date.UTC(2016) + random.between(0, 7 * 365 * 86_400) * 1000;
  return { rule: randomRule(random), zone, since: isoTime(new Date(since)) };
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

function cronerTime({ rule, zone, since }: CronCase): string {
  try {
    const next = new Cron(withRanges(rule), { timezone: zone }).nextRun(new Date(since));
    return next === null ? never : isoTime(next);
  } catch (error) {
    return String(error);
  }
}

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

/** The known differences of croner. Any other difference counts as an error of pg-task. */
const exceptions: Record<string, (one: Difference) => boolean> = {
  "either day field is enough, even if one has a step": isSteppedDay,
  "a fixed time in a gap is lost, or comes some seconds or minutes later, if it has no second 0": (one) =>
    isFixed(one) && fieldsOf(one)[0] !== "0" && isNearChange(one, 1),
  "a fixed time in a gap that begins within an hour is lost": (one) =>
    isFixed(one) && one.zone === "Pacific/Chatham" && isNearChange(one, 1),
  "30 2,3 comes three times when the clocks are set back": (one) => isFixed(one) && isNearChange(one, -1),
};

for (const seed of [1, 2, 3]) {
  test(`the next times of 1,000 random rules are those of croner, apart from the named exceptions (seed ${seed})`, async () => {
    const random = new Random(seed);
    const cases = Array.from({ length: 1000 }, () => randomCase(random));
    const times = await nextTimes(client, cases);
    const differences = cases
      .map((one, index): Difference => {
        const ours = times[index] ?? "";
        return { ...one, ours: ours.includes("never comes") ? never : ours, theirs: cronerTime(one) };
      })
      .filter(({ ours, theirs }) => ours !== theirs);
    assert.deepEqual(
      differences.filter((one) => !Object.values(exceptions).some((explains) => explains(one))),
      [],
    );
    assert.ok(differences.length < 400, `${differences.length} differences are too many to have compared much`);
  });
}
