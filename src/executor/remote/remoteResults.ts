import type { Run, RunResult } from "../../shared/ipc/run.js";
import { queryCanceled } from "../../shared/postgres/sqlStates.js";
import { cancelMessage, formatError, timeoutMessage } from "../run/formatError.js";

export type EndReason = "timeout" | "abort" | "stop" | "sessionLost";

/** An error that is not the input's. `sqlstate` is that of `RunResult`. */
interface Failure {
  readonly message: string;
  readonly detail?: string | undefined;
  readonly hint?: string | undefined;
  readonly sqlstate: string | null;
}

export const timeoutError: Failure = { message: timeoutMessage, sqlstate: queryCanceled };

export function endedResult(run: Run, reason: EndReason): RunResult {
  if (reason === "timeout") return failedResult(run, timeoutError);
  if (reason === "stop") return failedResult(run, { message: cancelMessage, sqlstate: queryCanceled });
  return releasedResult(run);
}

export const releasedResult = ({ session, id }: Run): Extract<RunResult, { outcome: "released" }> => ({
  outcome: "released",
  session,
  id,
});

export function failedResult(run: Run, { message, detail, hint, sqlstate }: Failure, output = ""): RunResult {
  const { session, id, input } = run;
  const error = formatError({ severity: "ERROR", code: sqlstate ?? "", message, detail, hint }, input);
  return { outcome: "ended", session, id, start: "", stop: null, output, error, sqlstate, committed: false };
}
