const units: Readonly<Record<string, number>> = {
  "": 1,
  B: 1,
  kB: 1024,
  MB: 1024 ** 2,
  GB: 1024 ** 3,
};

/** Matches sizes such as "65536", "64kB" and "1.5 GB". */
export const sizePattern = /^\s*(\d+(?:\.\d+)?)\s*(B|kB|MB|GB|)\s*$/;

/**
 * Parses a size in PostgreSQL syntax into bytes. Units are case-sensitive, and 1 kB is 1024 bytes. Returns null if the
 * text is invalid.
 */
export function parseSize(text: string): number | null {
  const match = sizePattern.exec(text);
  const factor = units[match?.[2] ?? ""];
  if (match === null || factor === undefined) return null;
  return Math.round(Number(match[1]) * factor);
}
