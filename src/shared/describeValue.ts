import { types } from "node:util";

/** What objects contain is not shown: it can be secret. */
export function describeValue(value: unknown): string {
  if (!Array.isArray(value)) return describeElement(value);
  return `[${value.slice(0, 5).map(describeElement).join(", ")}${value.length > 5 ? ", …" : ""}]`;
}

function describeElement(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.slice(0, 100));
  if (typeof value === "function") return "a function";
  // With the n, because a number may be expected.
  if (typeof value === "bigint") return `${value}n`;
  return typeof value === "object" && value !== null ? describeObject(value) : String(value);
}

function describeObject(value: object): string {
  if (Array.isArray(value)) return "an array";
  if (types.isPromise(value)) return "a promise: await it";
  if (types.isDate(value)) return Number.isNaN(value.getTime()) ? "an invalid date" : "a Date";
  return value instanceof URL ? "a URL object: give its href" : "an object";
}
