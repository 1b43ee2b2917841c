const units: Readonly<Record<string, number>> = {
  "": 1,
  B: 1,
  kB: 1024,
  MB: 1024 ** 2,
  GB: 1024 ** 3,
};

/** What a size looks like as text: "65536", "64kB", "1.5 GB". */
export const sizePattern = /^\s*(\d+(?:\.\d+)?)\s*(B|kB|MB|GB|)\s*$/;

/**
 * Bytes of a size as PostgreSQL writes memory: a unit is a power of 1024, and its letters' case
 * counts. Null when the text is no size.
 */
export function parseSize(text: string): number | null {
  const match = sizePattern.exec(text);
  const factor = units[match?.[2] ?? ""];
  if (match === null || factor === undefined) return null;
  return Math.round(Number(match[1]) * factor);
}
