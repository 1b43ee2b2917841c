const second = 1;
const minute = 60 * second;
const hour = 60 * minute;
const day = 24 * hour;
const month = 30 * day;
const year = 12 * month;

const units: Readonly<Record<string, number>> = Object.fromEntries(
  (
    [
      [second / 1e6, "us usec usecs usecond useconds microsecond microseconds"],
      [second / 1e3, "ms msec msecs msecond mseconds millisecond milliseconds"],
      [second, "s sec secs second seconds"],
      [minute, "m min mins minute minutes"],
      [hour, "h hr hrs hour hours"],
      [day, "d day days"],
      [7 * day, "w week weeks"],
      [month, "mon mons month months"],
      [year, "y yr yrs year years"],
      [10 * year, "dec decs decade decades"],
      [100 * year, "c cent century centuries"],
      [1000 * year, "mil mils millennium millennia"],
    ] as const
  ).flatMap(([seconds, words]) => words.split(" ").map((word) => [word, seconds])),
);

/**
 * Estimates the length of a PostgreSQL interval in seconds, with months of 30 days; null if it is none. Only used to
 * refuse intervals that are invalid or not positive: the server determines the exact length.
 */
export function roughSeconds(text: string): number | null {
  const trimmed = text.trim();
  const infinite = /^([+-])?infinity$/i.exec(trimmed);
  if (infinite !== null) return infinite[1] === "-" ? -Infinity : Infinity;
  return trimmed.startsWith("P") ? isoSeconds(trimmed.slice(1)) : verboseSeconds(trimmed);
}

/** Whitespace and punctuation that PostgreSQL ignores between the parts of an interval. */
const skipped = String.raw`[\s!-*,/;-@[-\x60{-~]*`;
const sign = String.raw`(?<sign>[+-]\s*)?`;
const clock = String.raw`(?<hours>\d+):(?<minutes>\d*)(?::(?<seconds>\d*(?:\.\d*)?)|(?<fraction>\.\d*))?`;
const calendar = String.raw`(?<years>\d+)-(?<months>\d+)`;
const quantity = String.raw`(?<amount>\d+\.?\d*|\.\d+)${skipped}(?<unit>[a-z]+)?`;
const partSource = `${skipped}${sign}(?:${clock}|${calendar}|${quantity})${skipped}`;
const agoPattern = new RegExp(`^(?<before>.*(?<![a-z]))ago${skipped}$`, "is");

function verboseSeconds(text: string): number | null {
  const before = agoPattern.exec(text)?.groups?.["before"];
  const sum = sumParts(before ?? text);
  if (sum === null) return null;
  if (before === undefined) return sum.total;
  return sum.endsWithBareAmount ? null : -sum.total;
}

function sumParts(text: string): { total: number; endsWithBareAmount: boolean } | null {
  const part = new RegExp(partSource, "iy");
  let total: number | null = null;
  let bare: number | null = null;
  while (part.lastIndex < text.length) {
    const found = part.exec(text)?.groups;
    const size = found === undefined ? null : partSeconds(found);
    if (found === undefined || size === null) return null;
    const signed = found["sign"]?.startsWith("-") ? -size : size;
    // An amount without a unit means seconds if it comes last, and days if an amount of hours follows. Anywhere else, a
    // missing unit is an error.
    const hasHours = found["hours"] !== undefined || units[unitOf(found) ?? ""] === hour;
    if (bare !== null && !hasHours) return null;
    total = (total ?? 0) + signed + (bare ?? 0) * (day - second);
    bare = found["amount"] !== undefined && found["unit"] === undefined ? signed : null;
  }
  return total === null ? null : { total, endsWithBareAmount: bare !== null };
}

type Found = Readonly<Record<string, string | undefined>>;

function unitOf(found: Found): string | undefined {
  return found["unit"]?.toLowerCase();
}

function partSeconds(found: Found): number | null {
  if (found["years"] !== undefined) {
    return Number(found["years"]) * year + Number(found["months"]) * month;
  }
  if (found["hours"] !== undefined) return clockSeconds(found);
  const unit = found["unit"] === undefined ? second : units[unitOf(found) ?? ""];
  return unit === undefined ? null : Number(found["amount"]) * unit;
}

/** Parses "hours:minutes[:seconds]". Two numbers with a fraction, as in "1:2.5", are minutes and seconds. */
function clockSeconds(found: Found): number | null {
  const first = Number(found["hours"]);
  const next = Number(found["minutes"] || 0);
  if (found["fraction"] !== undefined) {
    return first * minute + next + Number(`0${found["fraction"]}`);
  }
  const seconds = Number((found["seconds"] ?? "").replace(/^\.?$/, "0"));
  return next < 60 && seconds <= 60 ? first * hour + next * minute + seconds : null;
}

/** Parses an ISO 8601 interval behind the "P", with designators ("1DT2H") or as date and time ("0001-02-03T04:05"). */
function isoSeconds(text: string): number | null {
  const amount = String.raw`[+-]?(?:\d+\.?\d*|\.\d+)`;
  const designated = new RegExp(`^(?:${amount}[YMWD])*(?:T(?:${amount}[HMS])*)?$`);
  if (text !== "" && designated.test(text)) return designatedSeconds(text);
  const dated = /^(-?\d+)(?:-(-?\d+)(?:-(-?\d+))?)?(?:T(-?\d+)(?::(-?\d+)(?::(-?\d+(?:\.\d*)?))?)?)?$/.exec(text);
  const basic = /^(\d{4})(\d{2})(\d{2})(?:T(\d{2})(\d{2})(\d{2}(?:\.\d*)?))?$/.exec(text);
  const found = basic ?? dated;
  if (found === null) return null;
  const sizes = [year, month, day, hour, minute, second];
  return sizes.reduce((sum, size, index) => sum + Number(found[index + 1] ?? 0) * size, 0);
}

function designatedSeconds(text: string): number {
  const [date = "", time = ""] = text.split("T");
  return (
    sumDesignated(date, { Y: year, M: month, W: 7 * day, D: day }) +
    sumDesignated(time, { H: hour, M: minute, S: second })
  );
}

function sumDesignated(text: string, sizes: Readonly<Record<string, number>>): number {
  return [...text.matchAll(/([+-]?[\d.]+)([A-Z])/g)].reduce(
    (total, [, amount, designator]) => total + Number(amount) * (sizes[designator ?? ""] ?? 0),
    0,
  );
}
