import { PgTaskError } from "../shared/errors.js";
import { longestTimerMs } from "../shared/backoff.js";
import { refuseUnknownKeys } from "../shared/refuseUnknownKeys.js";
import { describeValue } from "../shared/describeValue.js";
import type { PgTask } from "./pgTask.js";

/** Which values an option can have. */
interface OptionCheck {
  /** Continues "expected OPTION to be …". */
  readonly expected: string;
  readonly holds: (value: unknown) => boolean;
}

/** For each option, which values it can have. The compiler finds an option that is missing or too many. */
type OptionChecks<T> = Readonly<Record<keyof T, OptionCheck>>;

/**
 * Refuses options that are not known, and values that an option cannot have. A program without types can pass anything,
 * and the driver or a timer would then silently do something else. A value that is undefined counts as left out.
 *
 * @param what what the options are, such as "an option of start"
 * @throws PgTaskError USAGE
 */
export function checkOptions(given: object, checks: Readonly<Record<string, OptionCheck>>, what: string): void {
  refuseUnknownKeys(given, checks, what);
  for (const [name, value] of Object.entries(given)) {
    const check = checks[name];
    if (value === undefined || check === undefined || check.holds(value)) continue;
    throw new PgTaskError("USAGE", `expected ${name} to be ${check.expected}, got ${describeValue(value)}`);
  }
}

const milliseconds: OptionCheck = {
  expected: `a number of ms from 0 to ${longestTimerMs}`,
  holds: (value) => typeof value === "number" && value >= 0 && value <= longestTimerMs,
};

/** The options of `PgTask.stop`. */
export const stopChecks: OptionChecks<NonNullable<Parameters<PgTask["stop"]>[0]>> = { graceMs: milliseconds };
