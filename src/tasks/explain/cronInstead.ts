const weekdays: Readonly<Record<string, string>> = {
  MO: "MON",
  TU: "TUE",
  WE: "WED",
  TH: "THU",
  FR: "FRI",
  SA: "SAT",
  SU: "SUN",
};

const dayNames = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/** The parts of recurrence rules that cron can express. */
const known = new Set(["FREQ", "INTERVAL", "WKST", "BYHOUR", "BYMINUTE", "BYSECOND", "BYDAY", "BYMONTHDAY", "BYMONTH"]);

/**
 * Returns the cron rule with the same times as a recurrence rule, or null if there is none. Unlike a recurrence rule, a
 * cron rule at fixed times does not lose a time at which the clocks are set forward.
 *
 * @param rule the rule, with or without DTSTART
 * @param wall any time of the rule as the clock shows it, such as `2027-03-28 02:30:00`. All times of the rule agree in
 *   what the rule leaves open, so that is read from this time.
 */
export function cronInstead(rule: string, wall: string): string | null {
  const parts = readParts(rule);
  if (parts === null || [...parts.keys()].some((name) => !known.has(name))) return null;
  if ((parts.get("INTERVAL") ?? "1") !== "1") return null;
  const day = dayFields(parts, wall);
  if (day === null) return null;
  const [hour = "", minute = "", second = ""] = wall
    .slice(11, 19)
    .split(":")
    .map((text) => String(Number(text)));
  const seconds = parts.get("BYSECOND") ?? second;
  const clock = `${parts.get("BYMINUTE") ?? minute} ${parts.get("BYHOUR") ?? hour}`;
  return `${seconds === "0" ? "" : `${seconds} `}${clock} ${day}`;
}

/** Returns the parts of the RRULE, or null if the rule has lines other than DTSTART and one RRULE. */
function readParts(rule: string): Map<string, string> | null {
  const lines = rule
    .trim()
    .toUpperCase()
    .split(/\s*\n\s*/)
    .filter((line) => !line.startsWith("DTSTART"));
  if (lines.length !== 1) return null;
  return new Map(
    (lines[0] ?? "")
      .replace(/^RRULE:/, "")
      .split(";")
      .map((part) => part.split("="))
      .map(([name = "", value = ""]) => [name, value]),
  );
}

const dateFields = (dayOfMonth: string, months = "*", weekday = "*"): string => `${dayOfMonth} ${months} ${weekday}`;

const weekdayOf = (wall: string): string | undefined =>
  dayNames[new Date(`${wall.slice(0, 10)}T00:00:00Z`).getUTCDay()];

/** Returns the cron fields of the day of the month, the month and the weekday, or null if cron cannot express them. */
function dayFields(parts: ReadonlyMap<string, string>, wall: string): string | null {
  const frequency = parts.get("FREQ");
  const days = parts.get("BYDAY");
  const monthDays = parts.get("BYMONTHDAY");
  const months = parts.get("BYMONTH");
  // Cron has no negative days, and runs on days that match either of its two day fields.
  if (monthDays?.includes("-") === true || (days !== undefined && monthDays !== undefined)) return null;
  if (days !== undefined) {
    const names = days.split(",").map((name) => weekdays[name]);
    return names.includes(undefined) || frequency === "YEARLY" ? null : dateFields("*", months, names.join(","));
  }
  const [, month = "", day = ""] = wall
    .slice(0, 10)
    .split("-")
    .map((text) => String(Number(text)));
  switch (frequency) {
    case "DAILY":
      return dateFields(monthDays ?? "*", months);
    case "WEEKLY":
      return monthDays === undefined ? dateFields("*", months, weekdayOf(wall)) : null;
    case "MONTHLY":
      return dateFields(monthDays ?? day, months);
    case "YEARLY":
      return monthDays === undefined ? dateFields(day, months ?? month) : dateFields(monthDays, months);
    default:
      return null;
  }
}
