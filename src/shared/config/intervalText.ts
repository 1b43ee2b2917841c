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
 * How long interval text of PostgreSQL's lasts, roughly: in seconds, with months of 30 days as
 * PostgreSQL itself has them when it compares. Only good for telling nonsense, nothing and less
 * than nothing from the rest: what an interval is worth is the server's to say.
 *
 * Null when the text is no interval.
 */
export function roughSeconds(text: string): number | null {
  const trimmed = text.trim();
  const infinite = /^([+-])?infinity$/i.exec(trimmed);
  if (infinite !== null) return infinite[1] === "-" ? -Infinity : Infinity;
  return trimmed.startsWith("P") ? isoSeconds(trimmed.slice(1)) : wordedSeconds(trimmed);
}

/** "1 day 2:00", "@ 3 hours ago", "1-2", "90": PostgreSQL passes over other punctuation. */
function wordedSeconds(text: string): number | null {
  const sign = String.raw`(?<sign>[+-]\s*)?`;
  const clock = String.raw`(?<hours>\d+):(?<minutes>\d*)(?::(?<seconds>\d*(?:\.\d*)?)|(?<fraction>\.\d*))?`;
  const calendar = String.raw`(?<years>\d+)-(?<months>\d+)`;
  const amount = String.raw`(?<amount>\d+\.?\d*|\.\d+)`;
  // Blanks, and what punctuation has no meaning of its own.
  const skipped = String.raw`[\s!-*,/;-@[-\x60{-~]*`;
  const part = new RegExp(
    String.raw`${skipped}${sign}(?:${clock}|${calendar}|${amount}${skipped}(?<unit>[a-z]+)?|(?<word>[a-z]+))${skipped}`,
    "iy",
  );
  let total = 0;
  let parts = 0;
  let bare: number | null = null;
  let ago = false;
  while (part.lastIndex < text.length) {
    const found = part.exec(text)?.groups;
    if (found === undefined || ago) return null;
    if (found["word"] !== undefined) {
      if (found["word"].toLowerCase() !== "ago" || parts === 0 || bare !== null) return null;
      ago = true;
      continue;
    }
    const size = partSeconds(found);
    if (size === null) return null;
    const signed = found["sign"]?.startsWith("-") ? -size : size;
    // An amount without a unit is seconds at the end, days before hours, and wrong elsewhere.
    const hasHours = found["hours"] !== undefined || units[unitOf(found) ?? ""] === hour;
    if (bare !== null && !hasHours) return null;
    if (bare !== null) total += bare * (day - second);
    bare = found["amount"] !== undefined && found["unit"] === undefined ? signed : null;
    total += signed;
    parts += 1;
  }
  if (parts === 0) return null;
  return ago ? -total : total;
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

/** Hours and minutes; with a fraction right behind the second number, minutes and seconds. */
function clockSeconds(found: Found): number | null {
  const first = Number(found["hours"]);
  const next = Number(found["minutes"] || 0);
  if (found["fraction"] !== undefined) {
    return first * minute + next + Number(`0${found["fraction"]}`);
  }
  const seconds = Number((found["seconds"] ?? "").replace(/^\.?$/, "0"));
  return next < 60 && seconds <= 60 ? first * hour + next * minute + seconds : null;
}

/** ISO 8601 behind its "P": with designators ("1DT2H") or as a date and time ("0001-02-03T04:05"). */
function isoSeconds(text: string): number | null {
  const amount = String.raw`[+-]?(?:\d+\.?\d*|\.\d+)`;
  const designated = new RegExp(`^(?:${amount}[YMWD])*(?:T(?:${amount}[HMS])*)?$`);
  if (text !== "" && designated.test(text)) return designatedSeconds(text);
  const dated =
    /^(-?\d+)(?:-(-?\d+)(?:-(-?\d+))?)?(?:T(-?\d+)(?::(-?\d+)(?::(-?\d+(?:\.\d*)?))?)?)?$/.exec(
      text,
    );
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
