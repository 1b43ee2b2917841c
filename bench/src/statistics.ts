/** @throws RangeError if there are no values */
export function median(values: readonly number[]): number {
  return percentile(values, 0.5);
}

/**
 * Returns a percentile, with linear interpolation.
 *
 * @param part the percentile as a fraction, from 0 to 1
 * @throws RangeError if there are no values
 */
export function percentile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  const place = (sorted.length - 1) * part;
  const below = sorted[Math.floor(place)];
  const above = sorted[Math.ceil(place)];
  if (below === undefined || above === undefined) throw new RangeError("expected values, got none");
  return below + (above - below) * (place - Math.floor(place));
}
