import { inspect } from "node:util";

/** Describes a value that was given instead of what is expected. What objects contain is not shown: it can be secret. */
export function describeValue(value: unknown): string {
  if (typeof value === "function") return "a function";
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return "an object";
  return inspect(value, { depth: 0, breakLength: Infinity, maxArrayLength: 5, maxStringLength: 100 });
}
