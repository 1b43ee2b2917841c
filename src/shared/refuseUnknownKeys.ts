import { PgTaskError } from "./errors.js";
import { nearestName } from "./nearestName.js";

/** So that the compiler finds a key that is missing or too many. */
export type KnownKeys<T> = Readonly<Record<keyof T, true>>;

/**
 * A program without types, or a misspelt key in a variable, can pass a key that would silently be ignored. Undefined
 * counts as left out.
 *
 * @param what what the object is, such as "an option of start"
 * @throws PgTaskError USAGE
 */
export function refuseUnknownKeys(given: object, known: Readonly<Record<string, unknown>>, what: string): void {
  for (const [key, value] of Object.entries(given)) {
    if (value === undefined || Object.hasOwn(known, key)) continue;
    const near = nearestName(key, Object.keys(known));
    const hint = near === undefined ? `expected one of ${Object.keys(known).join(", ")}` : `perhaps "${near}" is meant`;
    throw new PgTaskError("USAGE", `"${key}" is not ${what}: ${hint}`);
  }
}
