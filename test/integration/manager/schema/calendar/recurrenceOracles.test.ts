import assert from "node:assert/strict";
import { createRequire } from "node:module";
import type * as Rrule from "rrule";
import { RRuleTemporal } from "rrule-temporal";
import { Random } from "../../../../chaos/random.js";
import { test } from "../../../../support/limitedTest.js";
import { connectWithCalendar, nextTimes, randomRule, type RandomRule } from "./recurrences.js";

// Node cannot import the names of this package.
const rrule: typeof Rrule = createRequire(import.meta.url)("rrule");
const client = await connectWithCalendar();
const count = 3;
const slow = ["YEARLY", "MONTHLY", "WEEKLY", "DAILY"];

/**
 * The known differences, by library. A table in RFC 5545, section 3.3.10, says what each part does for each frequency.
 * If a library departs from it, its answer is ignored.
 */
const exceptions: Readonly<Record<"rrule-temporal" | "rrule", readonly ((rule: RandomRule) => boolean)[]>> = {
  "rrule-temporal": [mixedOrdinals, weeksOnly, severalDayParts, ordinalsAndMonthDays],
  rrule: [mixedOrdinals, weeksOnly, positionBeyondSet, positionInFirstSet],
};

/** BYDAY=SU,4SU is every Sunday. The libraries keep only the weekdays with an ordinal. */
function mixedOrdinals({ parts }: RandomRule): boolean {
  const days = (parts.get("BYDAY") ?? "").split(",");
  return days.some((day) => day.length > 2) && days.some((day) => day.length === 2);
}

/** BYWEEKNO without days means DTSTART's weekday. rrule takes all days of the weeks, rrule-temporal some of them. */
function weeksOnly({ parts }: RandomRule): boolean {
  return parts.has("BYWEEKNO") && !["BYDAY", "BYMONTHDAY", "BYYEARDAY"].some((name) => parts.has(name));
}

/** BYYEARDAY and BYWEEKNO limit other parts, and are limited by them. rrule-temporal takes the union of some of them. */
function severalDayParts({ parts }: RandomRule): boolean {
  const others = ["BYMONTH", "BYMONTHDAY", "BYDAY"].some((name) => parts.has(name));
  return parts.has("BYYEARDAY") ? others || parts.has("BYWEEKNO") : parts.has("BYWEEKNO") && others;
}

/** With BYMONTHDAY, BYDAY is a limit, also in YEARLY and with ordinals. rrule-temporal disregards BYMONTHDAY. */
function ordinalsAndMonthDays({ freq, parts }: RandomRule): boolean {
  return freq === "YEARLY" && parts.has("BYMONTHDAY") && /\d/.test(parts.get("BYDAY") ?? "");
}

/** A set of one has no last but one. rrule takes the first instead. */
function positionBeyondSet({ parts }: RandomRule): boolean {
  return (parts.get("BYSETPOS") ?? "").split(",").some((position) => Number(position) < -1);
}

/** The set that contains DTSTART also contains the times before DTSTART. rrule counts from DTSTART. */
function positionInFirstSet({ parts, since, start }: RandomRule): boolean {
  return parts.has("BYSETPOS") && Date.parse(since) < Date.parse(start) + 366 * 86_400_000;
}

/** Returns the next times according to rrule-temporal, or null if it gives up. */
function temporalTimes({ rule, since }: RandomRule): string[] | null {
  const parsed = new RRuleTemporal({ rruleString: rule, maxIterations: 1000 });
  return take(since, (at) => {
    const next = parsed.next(at);
    return next === null ? null : new Date(next.epochMilliseconds);
  });
}

/** Returns the next times according to rrule. It is used only with UTC, because it is wrong where clocks are changed. */
function rruleTimes({ rule, since }: RandomRule): string[] | null {
  const parsed = rrule.rrulestr(rule.replace(/;TZID=UTC:(.*)/, ":$1Z"));
  return take(since, (at) => parsed.after(at));
}

function take(since: string, next: (at: Date) => Date | null): string[] | null {
  const times: string[] = [];
  let at: Date | null = new Date(since);
  while (times.length < count) {
    try {
      at = next(at);
    } catch {
      return null;
    }
    if (at === null) return [...times, "end"];
    times.push(at.toISOString().replace(".000", ""));
  }
  return times;
}

for (const [seed, zone, cases] of [
  [1, undefined, 450],
  [2, "UTC", 200],
] as const) {
  test(`the next times of random rules are those of rrule-temporal and rrule: seed ${seed}`, async () => {
    const random = new Random(seed);
    const rules = Array.from({ length: cases }, () => randomRule(random, zone));
    const ours = await nextTimes(client, rules, count);
    const differences: string[] = [];
    let judged = 0;
    for (const [index, rule] of rules.entries()) {
      const found = ours[index] ?? [];
      // If there are no more times, the libraries search for very long or forever. rrule is also slow for faster rules.
      const endless = found[0] === "end" && !rule.parts.has("COUNT");
      const answers = {
        "rrule-temporal": endless ? null : temporalTimes(rule),
        rrule: zone !== "UTC" || found.includes("end") || !slow.includes(rule.freq) ? null : rruleTimes(rule),
      };
      for (const library of ["rrule-temporal", "rrule"] as const) {
        const theirs = answers[library];
        if (theirs === null) continue;
        judged += 1;
        if (theirs.join(" ") === found.join(" ") || exceptions[library].some((known) => known(rule))) continue;
        differences.push(`${rule.rule} since ${rule.since}: ${found.join(" ")}; ${library}: ${theirs.join(" ")}`);
      }
    }
    assert.deepEqual(differences, []);
    assert.ok(judged > cases * 0.7, `only ${judged} answers to compare with`);
  });
}
