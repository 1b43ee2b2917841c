/** Describes a value that was given instead of what is expected. What objects contain is not shown: it can be secret. */
export function describeValue(value: unknown): string {
  if (!Array.isArray(value)) return describeElement(value);
  return `[${value.slice(0, 5).map(describeElement).join(", ")}${value.length > 5 ? ", …" : ""}]`;
}

function describeElement(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.slice(0, 100));
  if (typeof value === "function") return "a function";
  if (value instanceof Date && Number.isNaN(value.getTime())) return "an invalid date";
  if (typeof value === "object" && value !== null) return Array.isArray(value) ? "an array" : "an object";
  return String(value);
}
