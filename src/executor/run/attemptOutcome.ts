import type { Attempt } from "./attempt.js";
import { maxAttemptsWithoutRun, maxConflicts } from "../tuning.js";
import type { CancelReason } from "./cancellation.js";
import type { ServerError } from "../../shared/postgres/protocol/decode.js";
import {
  deadlockDetected,
  queryCanceled,
  readOnlyTransaction,
  serializationFailure,
} from "../../shared/postgres/sqlStates.js";

/** How a run is retried: in the same form, as a stepwise attempt, or without BEGIN and proof. */
export type RetryForm = "same" | "stepwise" | "unwrapped";

export type AttemptOutcome = "ended" | "released" | RetryForm;

/** SQLSTATE that the finish function raises when the row was changed, stopped or deleted during the run. */
export const rowChanged = "PGT01";

/** SQLSTATEs for an active transaction, an invalid transaction termination, and a read-only transaction. */
const notWrappableCodes = new Set(["25001", "2D000", readOnlyTransaction]);

const conflictCodes: ReadonlySet<string> = new Set([serializationFailure, deadlockDetected]);

export interface Circumstances {
  /** Why pg-task asked the run to end. Null if it did not. */
  readonly cancelReason: Exclude<CancelReason, "outputNearLimit"> | null;
  /** Whether the run was cancelled because its output came near the limit. Such a run is repeated stepwise. */
  readonly outputNearLimit: boolean;
  /** Whether a cancel meant for another run may have hit this run. */
  readonly exposed: boolean;
  /** Whether the manager has recalled the run, so that it is released if it has not run. */
  readonly recalled: boolean;
  /** How many attempts were made in the current form, including this attempt. */
  readonly attempts: number;
}

/** A run that was asked to end and was rolled back for that reason is not retried. */
export function decideOutcome(attempt: Attempt, circumstances: Circumstances): AttemptOutcome {
  const { cancelReason, recalled, attempts } = circumstances;
  const error = errorOf(attempt);
  if (!attempt.hasRun) {
    const canRetry = cancelReason === null && !recalled && attempts < maxAttemptsWithoutRun;
    return canRetry ? "same" : "released";
  }
  if (error?.code === queryCanceled && cancelReason === "abort") return "released";
  if (error?.code === queryCanceled && circumstances.outputNearLimit) return "stepwise";
  const form = retryForm(attempt, circumstances);
  if (form === null) return "ended";
  if (cancelReason === null) return form;
  return cancelReason === "abort" ? "released" : "ended";
}

export function retryForm(attempt: Attempt, { cancelReason, exposed, attempts }: Circumstances): RetryForm | null {
  const error = errorOf(attempt);
  if (error === null || attempt.output.failure !== null || attempt.inputEndedTransaction) return null;
  const failedAfterInput = attempt.inputError === null && attempt.form.proof !== null;
  const stepwise = attempt.form.pipelined && failedAfterInput ? "stepwise" : null;
  if (error.code === queryCanceled) {
    const isUnexplained = exposed && cancelReason === null && attempts < maxAttemptsWithoutRun;
    // If no cancel meant for another run explains the error, a timeout set by the task has interrupted finish.
    return isUnexplained ? "same" : stepwise;
  }
  if (isNotWrappable(attempt)) return "unwrapped";
  if (failedAfterInput && conflictCodes.has(error.code) && attempts < maxConflicts) return "same";
  return attempt.finishError !== null && error.code !== rowChanged ? stepwise : null;
}

function errorOf({ inputError, finishError, commitError }: Attempt): ServerError | null {
  return inputError ?? finishError ?? commitError;
}

function isNotWrappable({ form, statusAfterInput, inputError, finishError }: Attempt): boolean {
  if (inputError === null) return finishError?.code === readOnlyTransaction;
  return form.sendsBegin && statusAfterInput === "E" && notWrappableCodes.has(inputError.code);
}
