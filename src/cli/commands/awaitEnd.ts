import type { TaskOutcome } from "../../tasks/types.js";
import { sqlState } from "../../shared/postgres/client.js";
import { insufficientPrivilege } from "../../shared/postgres/sqlStates.js";
import { toReport } from "../../shared/errors.js";
import type { FinalState } from "../../shared/taskState.js";
import type { Reason } from "../../tasks/explain/reason.js";
import { OutcomePoller, readOutcomes } from "../../tasks/queries/taskOutcome.js";
import { commandExitCodes } from "../support/exitCodes.js";
import { toTaskError } from "../../tasks/taskError.js";
import type { OpenTable } from "../support/openTable.js";
import { withTableOptions } from "../support/pastedCommands.js";
import { readOneTask, readReasons, type OneTaskOptions } from "../support/oneTask.js";
import { truncateText } from "../terminal/format.js";
import { jsonText, printableLine, printableText } from "../../shared/printable.js";
import { withInterrupt, type Terminal } from "../terminal/terminal.js";
import { formatDuration } from "../../shared/formatDuration.js";

/** Time after which a terminal shows progress, in ms. */
const progressAfterMs = 1000;
/** Time after which the command explains why the task has not started, in ms. */
const explainAfterMs = 3000;
/** Reasons of a task that has started since it was found waiting. */
const startedCodes: ReadonlySet<Reason["code"]> = new Set([
  "running",
  "waits-for-lock",
  "unwritten",
  "stopping",
  "ended",
]);

const exitCodesByState: Readonly<Record<FinalState, number>> = {
  DONE: commandExitCodes.done,
  FAIL: commandExitCodes.fail,
  GONE: commandExitCodes.gone,
  STOP: commandExitCodes.stop,
};

export async function wait(terminal: Terminal, given: string | undefined, options: OneTaskOptions): Promise<number> {
  const waited = await readOneTask(terminal, "wait", given, options, async (opened, id) => {
    const exists = (await readOutcomes(opened.client, opened.table, [id])).size > 0;
    return exists ? await waitForTask(terminal, opened, id, options.json === true) : null;
  });
  return waited === null ? commandExitCodes.notAll : waited.found;
}

/**
 * Ctrl-C stops the waiting but not the task. It is handled before the insert, so that a signal during the insert cannot
 * end the command before it has reported the id.
 *
 * @param task its id, or what adds it and returns its id
 */
export async function waitForTask(
  terminal: Terminal,
  opened: OpenTable,
  task: string | (() => Promise<string>),
  json: boolean,
): Promise<number> {
  return await withInterrupt(async (signal) => {
    const isAdded = typeof task !== "string";
    const id = isAdded ? await task() : task;
    const outcome = await poll(terminal, opened, id, signal)
      .catch((error: unknown) => {
        if (!isAdded) throw error;
        return toReport(toTaskError(error, opened.table));
      })
      .finally(() => terminal.showProgress(null));
    if (outcome === "interrupted") {
      const remedy = withTableOptions(`pg-task stop ${id} stops it`, opened.given);
      terminal.writeError(
        `pg-task: no longer waiting for task ${id}, which was not cancelled; ${printableLine(remedy)}\n`,
      );
      return commandExitCodes.interrupted;
    }
    if (outcome !== null && "message" in outcome) {
      terminal.writeError(
        `pg-task: task ${id} was added, but its end cannot be read: ${printableText(outcome.message)}\n`,
      );
      return commandExitCodes.unknown;
    }
    if (outcome === null) {
      terminal.writeError(`pg-task: the row of task ${id} was deleted while waiting\n`);
      return commandExitCodes.deleted;
    }
    printOutcome(terminal, id, outcome, json);
    return exitCodesByState[outcome.state];
  });
}

async function poll(
  terminal: Terminal,
  opened: OpenTable,
  id: string,
  signal: AbortSignal,
): Promise<TaskOutcome | null | "interrupted"> {
  const poller = new OutcomePoller((ids) => readOutcomes(opened.client, opened.table, ids));
  const startedAt = performance.now();
  let isExplained = false;
  try {
    return await poller.wait(id, {
      signal,
      onPoll: async ({ state }) => {
        if (!isExplained && state === "PLAN" && performance.now() - startedAt > explainAfterMs) {
          isExplained = true;
          const reason = await readWaitReason(opened, id, terminal.isTerminal);
          terminal.showProgress(null);
          if (reason !== null) terminal.writeError(`pg-task: task ${id} waits${reason}\n`);
        }
        const elapsedMs = performance.now() - startedAt;
        if (elapsedMs > progressAfterMs) {
          terminal.showProgress(`task ${id}: ${state}, not ended after ${formatDuration(elapsedMs)}`);
        }
      },
    });
  } catch (error) {
    if (signal.aborted) return "interrupted";
    throw error;
  }
}

/** As text that continues "task N waits". Null if there is no longer a reason. */
async function readWaitReason(opened: OpenTable, id: string, localTimes: boolean): Promise<string | null> {
  try {
    const [reason] = (await readReasons(opened, id, { localTimes })) ?? [];
    if (reason === undefined || startedCodes.has(reason.code)) return null;
    const { text, remedy } = reason;
    return `: ${printableLine(text)}${remedy === undefined ? "" : `\n  ${printableLine(remedy)}`}`;
  } catch (error) {
    // Explaining the wait needs more privileges than reading the result. If they are missing, the text says so.
    if (sqlState(error) !== insufficientPrivilege) throw error;
    return `, the reason cannot be read: ${toReport(error).message}`;
  }
}

function printOutcome(terminal: Terminal, id: string, outcome: TaskOutcome, json: boolean): void {
  const { state, output, error } = outcome;
  if (json) {
    terminal.write(`${jsonText({ id, state, output, error })}\n`);
    return;
  }
  if (output !== null && output !== "") {
    const shown = terminal.isTerminal ? truncateText(printableText(output), false).join("\n") : output;
    terminal.write(shown.endsWith("\n") ? shown : `${shown}\n`);
  }
  if (error !== null) terminal.writeError(`${printableText(error)}\n`);
  else if (state !== "DONE") terminal.writeError(`pg-task: task ${id} ended as ${state}\n`);
}
