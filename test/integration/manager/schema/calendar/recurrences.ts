import { createCalendar } from "../../../../../src/manager/schema/calendar.js";
import { taskTable } from "../../../../../src/manager/schema/taskTable.js";
import type { Client } from "../../../../../src/shared/postgres/client.js";
import type { Random } from "../../../../chaos/random.js";
import { createDatabase } from "../../../../support/database.js";

export interface Question {
  readonly rule: string;
  readonly zone: string;
  readonly since: string;
}

export async function connectWithCalendar(): Promise<Client> {
  const client = await (await createDatabase("empty")).connect();
  await createCalendar(client, taskTable("public", "task"));
  // None of the results may depend on these settings.
  await client.query(
    "SET TimeZone = 'Asia/Kathmandu'; SET DateStyle = 'German, DMY'; SET IntervalStyle = 'sql_standard'",
  );
  return client;
}

/** Up to `count` times for each question. If the rule has fewer times, "end" follows the last one. */
export async function nextTimes(client: Client, questions: readonly Question[], count: number): Promise<string[][]> {
  const { rows } = await client.query<{ times: string }>(
    `SELECT (
       WITH RECURSIVE step(number, at) AS (
         SELECT 0, since UNION ALL SELECT number + 1, task_rrule_next(rule, zone, at) FROM step
         WHERE number < $4 AND at IS NOT NULL)
       SELECT string_agg(coalesce(to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'end'), ' ' ORDER BY number)
       FROM step WHERE number > 0) AS times
     FROM unnest($1::text[], $2::text[], $3::timestamptz[]) WITH ORDINALITY AS question(rule, zone, since, position)
     ORDER BY position`,
    [questions.map((it) => it.rule), questions.map((it) => it.zone), questions.map((it) => it.since), count],
  );
  return rows.map((row) => row.times.split(" "));
}

const zones = [
  "Europe/Berlin",
  "America/New_York",
  "Australia/Lord_Howe",
  "America/Sao_Paulo",
  "Asia/Kolkata",
  "Africa/Cairo",
  "America/St_Johns",
  "Pacific/Chatham",
];
const slow = ["YEARLY", "MONTHLY", "WEEKLY", "DAILY"];
const fast = ["HOURLY", "MINUTELY", "SECONDLY"];
const weekdays = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"];
/** Instants shortly before the clocks of one of the zones are changed, in years on which all time zone data agree. */
const beforeChanges = [
  "2023-03-25T10:00:00Z",
  "2023-10-28T10:00:00Z",
  "2023-03-11T10:00:00Z",
  "2023-11-04T10:00:00Z",
  "2023-09-30T05:00:00Z",
  "2023-04-01T05:00:00Z",
  "2017-10-14T10:00:00Z",
  "2018-02-17T10:00:00Z",
];

/** Returns a list of up to `length` different values. Numbers are in ascending order, because rrule expects this. */
function list(random: Random, length: number, value: () => number | string): string {
  const values = new Set(Array.from({ length: random.between(1, length) }, value));
  return [...values].toSorted((a, b) => Number(a) - Number(b)).join(",");
}

/** A random rule, with the lines DTSTART and RRULE. */
export interface RandomRule extends Question {
  readonly freq: string;
  /** DTSTART's wall time, as if it were in UTC. */
  readonly start: string;
  readonly parts: ReadonlyMap<string, string>;
}

/** Returns a random rule of any frequency. It follows RFC 5545, so it is accepted, but it may have no times. */
export function randomRule(random: Random, zone = random.pick([...zones, "UTC"])): RandomRule {
  const freq = random.pick(random.next() < 0.6 ? slow : fast);
  const parts = new Map([...dayParts(random, freq), ...clockParts(random, freq)]);
  if (random.next() < 0.4) parts.set("INTERVAL", String(random.between(2, fast.includes(freq) ? 90 : 5)));
  if (random.next() < 0.2) parts.set("COUNT", String(random.between(1, 40)));
  if (random.next() < 0.2) parts.set("WKST", random.pick(["SU", "MO", "WE"]));
  if (random.next() < 0.2 && [...parts.keys()].some((name) => name.startsWith("BY"))) {
    parts.set(
      "BYSETPOS",
      list(random, 2, () => random.pick([-2, -1, 1, 2, 3])),
    );
  }
  const near = Date.parse(random.pick(beforeChanges)) + random.between(0, 2 * 86_400) * 1000;
  const far = Date.UTC(2016, 0, 1) + random.between(0, 8 * 365 * 86_400) * 1000;
  const since = random.next() < 0.5 ? near : far;
  const age = fast.includes(freq) ? random.between(0, 3 * 86_400) : random.between(-100, 900) * 86_400;
  const start = new Date(Math.floor((since - age * 1000) / 900_000) * 900_000);
  const wall = start.toISOString().replaceAll(/[-:]|\.000Z/g, "");
  const value = ["FREQ=" + freq, ...[...parts].map(([name, setting]) => `${name}=${setting}`)].join(";");
  return {
    rule: `DTSTART;TZID=${zone}:${wall}\nRRULE:${value}`,
    zone,
    since: new Date(since).toISOString(),
    freq,
    start: start.toISOString(),
    parts,
  };
}

function dayParts(random: Random, freq: string): Map<string, string> {
  const parts = new Map<string, string>();
  const chance = slow.includes(freq) ? 1 : 0.3;
  const add = (name: string, probability: number, length: number, value: () => number | string): void => {
    if (random.next() < probability * chance) parts.set(name, list(random, length, value));
  };
  add("BYMONTH", 0.35, 4, () => random.between(1, 12));
  if (freq === "YEARLY") add("BYWEEKNO", 0.12, 3, () => random.pick([random.between(1, 53), -random.between(1, 53)]));
  const ordinals = ["MONTHLY", "YEARLY"].includes(freq) && !parts.has("BYWEEKNO");
  add(
    "BYDAY",
    0.5,
    3,
    () => (ordinals && random.next() < 0.5 ? random.pick([-2, -1, 1, 2, 3, 4]) : "") + random.pick(weekdays),
  );
  if (freq !== "WEEKLY") add("BYMONTHDAY", 0.3, 4, () => random.pick([random.between(1, 31), -random.between(1, 5)]));
  if (!["MONTHLY", "WEEKLY", "DAILY"].includes(freq)) {
    add("BYYEARDAY", 0.1, 4, () => random.pick([random.between(1, 366), -random.between(1, 100)]));
  }
  return parts;
}

function clockParts(random: Random, freq: string): Map<string, string> {
  const parts = new Map<string, string>();
  if (random.next() < 0.3)
    parts.set(
      "BYHOUR",
      list(random, 3, () => random.between(0, 23)),
    );
  if (random.next() < 0.25)
    parts.set(
      "BYMINUTE",
      list(random, 4, () => random.between(0, 59)),
    );
  if (random.next() < (freq === "SECONDLY" ? 0.3 : 0.1))
    parts.set(
      "BYSECOND",
      list(random, 4, () => random.between(0, 59)),
    );
  return parts;
}
