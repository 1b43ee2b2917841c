import { describeValue } from "../shared/describeValue.js";
import { PgTaskError } from "../shared/errors.js";

/** An id of a task. Numbers must be safe integers. */
export type TaskId = string | number | bigint;

const maxId = 9_223_372_036_854_775_807n;

export function isTaskId(given: unknown): given is TaskId {
  if (typeof given === "number") return Number.isSafeInteger(given);
  if (typeof given !== "string" && typeof given !== "bigint") return false;
  if (!/^-?\d{1,19}$/.test(String(given))) return false;
  const exact = BigInt(given);
  return exact <= maxId && exact >= -maxId - 1n;
}

/** @throws PgTaskError USAGE unless this is an id */
export function idText(given: unknown): string {
  if (isTaskId(given)) return String(BigInt(given));
  throw new PgTaskError("USAGE", `expected a task's id, got ${describeValue(given)}`);
}
