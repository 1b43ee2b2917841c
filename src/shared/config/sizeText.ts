const units: Readonly<Record<string, number>> = {
  "": 1,
  B: 1,
  kB: 1024,
  MB: 1024 ** 2,
  GB: 1024 ** 3,
};

export const sizePattern = /^\s*(\d+(?:\.\d+)?)\s*(B|kB|MB|GB|)\s*$/;

/** Parses a size in PostgreSQL syntax: units are case-sensitive, and 1 kB is 1024 bytes. */
export function parseSize(text: string): number | null {
  const match = sizePattern.exec(text);
  const factor = units[match?.[2] ?? ""];
  if (match === null || factor === undefined) return null;
  return Math.round(Number(match[1]) * factor);
}
