import type { RunResult } from "../../shared/ipc/run.js";
import { isCopyRefusal } from "../../shared/postgres/protocol/encode.js";
import type { ServerError } from "../../shared/postgres/protocol/decode.js";
import { queryCanceled } from "../../shared/postgres/sqlStates.js";
import type { Attempt } from "./attempt.js";
import { retryForm, rowChanged, type Circumstances } from "./attemptOutcome.js";

/** The server's messages, so that the error is the same whether the server or pg-task noticed the timeout first. */
export const timeoutMessage = "canceling statement due to statement timeout";
export const cancelMessage = "canceling statement due to user request";

/** DETAIL if the run was committed while the rest of its output was in the network's buffers. */
const committedDetail = "Its effect had been committed by then.";

/** Formats a server error for the column `error`, laid out as in the server's log. */
export function formatError(error: ServerError, input: string): string {
  const position = error.position ?? error.internalPosition;
  const at = position === undefined ? "" : ` at character ${position}`;
  return [
    line(error.severity, error.message) + at,
    line("DETAIL", error.detail),
    line("HINT", error.hint),
    line("QUERY", error.internalQuery),
    line("CONTEXT", error.where),
    line("STATEMENT", input),
  ]
    .filter((text) => text !== "")
    .join("\n");
}

function formatOwnError(message: string, input: string, detail?: string): string {
  return formatError({ severity: "ERROR", code: "", message, detail }, input);
}

export type RunError = Pick<Extract<RunResult, { outcome: "ended" }>, "error" | "sqlstate">;

export function formatRunError(attempt: Attempt, circumstances: Circumstances, input: string): RunError {
  const { failure } = attempt.output;
  if (failure !== null) {
    const committed = attempt.committed || attempt.unflushed;
    return { error: formatOwnError(failure, input, committed ? committedDetail : undefined), sqlstate: null };
  }
  const { inputError, finishError, commitError } = attempt;
  if (inputError === null && finishError?.code === rowChanged) {
    return { error: formatOwnError(`${finishError.message}, its effect is undone`, input), sqlstate: null };
  }
  const error = inputError ?? withoutPosition(finishError) ?? commitError;
  if (error === null) return { error: null, sqlstate: null };
  const isTimeout = circumstances.cancelReason === "timeout";
  if (circumstances.cancelReason !== null && retryForm(attempt, circumstances) !== null) {
    const message = isTimeout ? timeoutMessage : cancelMessage;
    return { error: formatOwnError(message, input), sqlstate: queryCanceled };
  }
  const timedOut = isTimeout && error.code === queryCanceled;
  return {
    error: formatError(timedOut ? { ...error, message: timeoutMessage } : error, input),
    sqlstate: isCopyRefusal(error) ? null : error.code,
  };
}

/** Removes the position, which refers to pg-task's own statement, from an error of finish. */
function withoutPosition(error: ServerError | null): ServerError | null {
  if (error === null) return null;
  const { severity, code, message, detail, hint } = error;
  return { severity, code, message, detail, hint };
}

function line(label: string, text: string | undefined): string {
  return text === undefined ? "" : `${label}:  ${text.replaceAll("\n", "\n\t")}`;
}
