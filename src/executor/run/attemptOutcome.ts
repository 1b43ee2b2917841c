import type { Attempt } from "./attempt.js";
import type { CancelReason } from "./cancellation.js";
import type { ServerError } from "../../shared/postgres/protocol/messages.js";

/**
 * How a run is tried again: as before, step by step, which stands more of what an input may do to its
 * transaction, or as it is, without BEGIN and proof.
 */
export type Retrial = "again" | "stepwise" | "bare";

/**
 * What becomes of a run after an attempt: it has ended, it goes back as if it had never been run, or
 * it is tried again.
 */
export type AttemptOutcome = "ended" | "returned" | Retrial;

export const queryCanceled = "57014";

/** Raised by the function that enters the proof. */
export const rowChanged = "PGT01";

const readOnlyTransaction = "25006";

/** Active transaction, invalid transaction termination, read-only transaction. */
const notWrappable = new Set(["25001", "2D000", readOnlyTransaction]);

/** Serialization failure, deadlock. */
const conflicts = new Set(["40001", "40P01"]);

/** How often the transaction's end may fail for a conflict with others. */
const mostConflicts = 5;

/** How often something else may keep an attempt from being made. */
const mostMisses = 10;

export interface Circumstances {
  /** Why it was asked to end, null when it was not. */
  readonly reason: Exclude<CancelReason, "room"> | null;
  /** Whether it was cancelled to be run again with its output answered before its end is sent. */
  readonly crowded: boolean;
  /** Whether a cancel that was meant for another may have hit it. */
  readonly exposed: boolean;
  /** Whether it is to come back if it was not run. */
  readonly recalled: boolean;
  /** How many attempts were made in this form, this one included. */
  readonly attempts: number;
}

/** What was rolled back because it was asked to end goes by that, not by what it would have done next. */
export function attemptOutcome(attempt: Attempt, circumstances: Circumstances): AttemptOutcome {
  const { reason, recalled, attempts } = circumstances;
  const error = firstError(attempt);
  if (!attempt.ran) {
    return reason === null && !recalled && attempts < mostMisses ? "again" : "returned";
  }
  if (error?.code === queryCanceled && reason === "abort") return "returned";
  if (error?.code === queryCanceled && circumstances.crowded) return "stepwise";
  const retrial = retrialOf(attempt, circumstances);
  if (retrial === null) return "ended";
  if (reason === null) return retrial;
  return reason === "abort" ? "returned" : "ended";
}

/** How an attempt whose effect was rolled back would be tried again, null when it would not be. */
export function retrialOf(
  attempt: Attempt,
  { reason, exposed, attempts }: Circumstances,
): Retrial | null {
  const error = firstError(attempt);
  if (error === null || attempt.output.failure !== null || attempt.endedOne) return null;
  const { whole } = attempt.form;
  const ours = attempt.inputError === null && attempt.form.proof !== null;
  if (error.code === queryCanceled) {
    if (exposed && reason === null && attempts < mostMisses) return "again";
    // A limit that the task has set.
    return whole && ours ? "stepwise" : null;
  }
  if (isNotWrappable(attempt)) return "bare";
  if (ours && conflicts.has(error.code) && attempts < mostConflicts) return "again";
  const refused = attempt.finishError !== null && error.code !== rowChanged;
  return whole && ours && refused ? "stepwise" : null;
}

function firstError({ inputError, finishError, endError }: Attempt): ServerError | null {
  return inputError ?? finishError ?? endError;
}

function isNotWrappable({ form, left, inputError, finishError }: Attempt): boolean {
  if (inputError === null) return finishError?.code === readOnlyTransaction;
  return form.begin && left === "E" && notWrappable.has(inputError.code);
}
