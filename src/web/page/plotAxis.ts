export type Unit = "count" | "rate" | "milliseconds";

const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;
const day = 24 * hour;
/** Round numbers of seconds, minutes, hours and days, in ms. Below a second, and above a hundred days, 1, 2 and 5 are round. */
const roundDurations = [
  ...[1, 2, 5, 10, 20, 30].flatMap((each) => [each * second, each * minute]),
  ...[1, 2, 3, 6, 12].map((each) => each * hour),
  ...[1, 2, 5, 10, 20, 50].map((each) => each * day),
].toSorted((a, b) => a - b);

/** As a fraction of the axis. */
const minDistance = 0.24;

/** Labels are round numbers at even distances from 0 to `top`. */
export function roundAxis(max: number, unit: Unit): { readonly top: number; readonly step: number } {
  const least = unit === "count" ? 1 : unit === "rate" ? 0.01 : 1;
  const step = Math.max(least, roundStep(Math.max(max, least) * minDistance, unit));
  return { top: Math.max(1, Math.ceil(roundedOff(max / step))) * step, step };
}

export const axisLabels = ({ top, step }: { readonly top: number; readonly step: number }): number[] =>
  Array.from({ length: Math.round(top / step) + 1 }, (_, index) => roundedOff(index * step));

function roundStep(least: number, unit: Unit): number {
  const duration =
    unit === "milliseconds" && least > second / 2 ? roundDurations.find((each) => each >= least) : undefined;
  if (duration !== undefined) return duration;
  const power = 10 ** Math.floor(Math.log10(least));
  return roundedOff([1, 2, 5, 10].map((each) => each * power).find((each) => each >= roundedOff(least)) ?? 10 * power);
}

/** Removes the error of binary fractions: 0.1 * 3 becomes 0.3. */
const roundedOff = (value: number): number => Number(value.toPrecision(12));
