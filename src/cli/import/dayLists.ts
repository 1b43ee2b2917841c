/** Lists of values, of which an empty one stands for all. */
export interface Lists {
  readonly minutes: readonly number[];
  readonly hours: readonly number[];
  /** -1 is the last day of the month. */
  readonly days: readonly number[];
  readonly months: readonly number[];
  /** 0 is Sunday. */
  readonly weekdays: readonly number[];
}

interface Bounds {
  /** The local time from which on the recurrence counts. */
  readonly start: string;
  /** In UTC, inclusive. */
  readonly end: string | null;
  /** Local times of the day, such as `033000`, at which it never runs. */
  readonly daily: readonly string[];
  readonly dated: readonly { readonly date: string; readonly time: string | null }[];
  /** Whether the start lies ahead. */
  readonly starts: boolean;
}

interface Rule {
  readonly rule: string;
  readonly notes: readonly string[];
}

const weekdayNames = ["SU", "MO", "TU", "WE", "TH", "FR", "SA"];
const upTo = (count: number): number[] => Array.from({ length: count }, (_, index) => index);

/** Where day and weekday are given, both have to fit, which no cron expression can say. */
export function ruleOf(lists: Lists, bounds: Bounds): Rule {
  const { days, weekdays } = lists;
  const { end, daily, dated, starts } = bounds;
  const isCron = (days.length === 0 || weekdays.length === 0) && end === null && !starts;
  return isCron && daily.length === 0 && dated.length === 0
    ? { rule: toCron(lists), notes: [] }
    : toRecurrence(lists, bounds);
}

const toCron = ({ minutes, hours, days, months, weekdays }: Lists): string =>
  [minutes, hours, days, months, weekdays]
    .map((list) => (list.length === 0 ? "*" : list.map((value) => (value === -1 ? "L" : value)).join(",")))
    .join(" ");

const part = (name: string, list: readonly (number | string)[]): string =>
  list.length === 0 ? "" : `;${name}=${list.join(",")}`;

function toRecurrence(lists: Lists, { start, end, daily, dated }: Bounds): Rule {
  const minutes = lists.minutes.length === 0 ? upTo(60) : lists.minutes;
  const hours = lists.hours.length === 0 ? upTo(24) : lists.hours;
  // A rule combines all its hours with all its minutes, so only whole hours can be left out.
  const left = daily.filter(
    (time) => hours.includes(Number(time.slice(0, 2))) && minutes.includes(Number(time.slice(2, 4))),
  );
  const without = new Set(left.map((time) => Number(time.slice(0, 2))));
  const rule = [
    "RRULE:FREQ=DAILY",
    part("BYMONTH", lists.months),
    part("BYMONTHDAY", lists.days),
    part(
      "BYDAY",
      lists.weekdays.map((day) => weekdayNames[day] ?? ""),
    ),
    part(
      "BYHOUR",
      hours.filter((hour) => !without.has(hour)),
    ),
    part("BYMINUTE", minutes),
    ";BYSECOND=0",
    end === null ? "" : `;UNTIL=${end}`,
  ].join("");
  const removed = dated.map(({ date, time }) =>
    time === null ? `EXDATE;VALUE=DATE:${date}` : `EXDATE:${date}T${time}`,
  );
  const notes = [
    "a time that the clocks skip is left out",
    ...(without.size > 0 && minutes.length > 1
      ? [`its exceptions by time leave out the whole hours ${[...without].join(", ")}`]
      : []),
  ];
  return { rule: [`DTSTART:${start}`, rule, ...removed].join("\n"), notes };
}
