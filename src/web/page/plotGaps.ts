type Values = readonly (number | null)[];
type Drawn = readonly (number | null | undefined)[];

/**
 * Null is drawn as a gap, and undefined is drawn over.
 * @param bridged so many unknown values between known ones are drawn over
 */
export function withGaps(values: Values, bridged: number): Drawn {
  const drawn: (number | null | undefined)[] = [...values];
  let last = Infinity;
  for (const [index, value] of values.entries()) {
    if (value === null) continue;
    if (index - last - 1 <= bridged) drawn.fill(undefined, last + 1, index);
    last = index;
  }
  return drawn;
}

/** The values between two gaps, for which there is no line. */
export function loneIndexes(drawn: Drawn): number[] {
  const lone: number[] = [];
  let line: number[] = [];
  for (const [index, value] of [...drawn, null].entries()) {
    if (typeof value === "number") line.push(index);
    if (value !== null) continue;
    if (line.length === 1) lone.push(...line);
    line = [];
  }
  return lone;
}

/** Splits off the last value, which is drawn with a line of its own from the value before it. */
export function splitLast(values: Values): readonly [earlier: Values, last: Values] {
  const start = values.length - 2;
  return [
    values.map((value, index) => (index > start ? null : value)),
    values.map((value, index) => (index < start ? null : value)),
  ];
}
