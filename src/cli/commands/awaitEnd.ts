import { setTimeout as sleep } from "node:timers/promises";
import { sqlState } from "../../shared/postgres/client.js";
import { toReport } from "../../shared/errors.js";
import { taskOutcome } from "../../tasks/commands/addTask.js";
import { exitCode } from "../support/exitCodes.js";
import { findReasons } from "./explainPlan.js";
import { explainFailure } from "../support/explainFailure.js";
import type { OpenTable } from "../support/openTable.js";
import { printableText } from "../terminal/escape.js";
import type { Terminal } from "../terminal/terminal.js";
import { formatDuration } from "../terminal/format.js";
import { cutText } from "./show.js";

/** How often the row is looked at, at first and later, in ms. */
const firstLookMs = 20;
const longestLookMs = 500;
/** After so long, somebody who looks on sees how it is. */
const showAfterMs = 1000;
/** After so long, somebody who looks on is told what keeps the task. */
const explainAfterMs = 3000;

const codes: Readonly<Record<string, number>> = {
  DONE: exitCode.done,
  FAIL: exitCode.fail,
  GONE: exitCode.gone,
  STOP: exitCode.stop,
};

/**
 * Waits for a task's end and prints its output, and its error on standard error. Ctrl-C leaves the
 * task alone, from the moment at which it is inserted.
 *
 * @param insert resolves with the task's id.
 * @returns the exit code for its state.
 */
export async function awaitEnd(
  terminal: Terminal,
  opened: OpenTable,
  insert: () => Promise<string>,
  json: boolean,
): Promise<number> {
  const interrupt = new AbortController();
  const stop = (): void => interrupt.abort();
  process.on("SIGINT", stop);
  process.on("SIGTERM", stop);
  try {
    const id = await insert();
    const outcome = await poll(terminal, opened, id, interrupt.signal)
      .catch((error: unknown) => toReport(explainFailure(error, opened.table)))
      .finally(() => terminal.progress(null));
    if (outcome === "interrupted") {
      terminal.note(`pg-task: task ${id} goes on; pg-task stop ${id} would end it\n`);
      return exitCode.interrupted;
    }
    if (outcome !== null && "message" in outcome) {
      terminal.note(
        `pg-task: task ${id} was added, and how it ends cannot be read: ${printableText(outcome.message)}\n`,
      );
      return exitCode.unknown;
    }
    if (outcome === null) {
      terminal.note(`pg-task: the row of task ${id} was deleted while it was waited for\n`);
      return exitCode.deleted;
    }
    print(terminal, id, outcome, json);
    return codes[outcome.state] ?? exitCode.notAll;
  } finally {
    process.off("SIGINT", stop);
    process.off("SIGTERM", stop);
  }
}

type Outcome = NonNullable<Awaited<ReturnType<typeof taskOutcome>>>;

async function poll(
  terminal: Terminal,
  opened: OpenTable,
  id: string,
  signal: AbortSignal,
): Promise<Outcome | null | "interrupted"> {
  const begin = performance.now();
  let explained = false;
  for (let wait = firstLookMs; !signal.aborted; wait = Math.min(longestLookMs, wait * 1.5)) {
    const outcome = await taskOutcome(opened.client, opened.table, id);
    if (outcome === null) return null;
    if (!outcome.held && outcome.state in codes) return outcome;
    if (!explained && outcome.state === "PLAN" && performance.now() - begin > explainAfterMs) {
      explained = true;
      const reason = await whyItWaits(opened, id);
      terminal.progress(null);
      if (reason !== null) terminal.note(`pg-task: task ${id} waits${reason}\n`);
    }
    const soFarMs = performance.now() - begin;
    if (soFarMs > showAfterMs) {
      terminal.progress(`task ${id}: ${outcome.state}, waited for ${formatDuration(soFarMs)}`);
    }
    await sleep(wait, undefined, { signal }).catch(() => {});
  }
  return "interrupted";
}

/** What stands behind "waits"; null where nothing keeps it any more. */
async function whyItWaits(opened: OpenTable, id: string): Promise<string | null> {
  try {
    const [reason] = (await findReasons(opened, id)) ?? [];
    return reason === undefined ? null : `: ${reason.text}`;
  } catch (error) {
    // Its end can be read with fewer rights than what keeps it.
    if (sqlState(error) !== "42501") throw error;
    return `, and why cannot be told: ${toReport(error).message}`;
  }
}

function print(terminal: Terminal, id: string, outcome: Outcome, json: boolean): void {
  const { state, output, error } = outcome;
  if (json) {
    terminal.write(`${JSON.stringify({ id, state, output, error }, null, 2)}\n`);
    return;
  }
  if (output !== null && output !== "") {
    const shown = terminal.isTerminal ? cutText(printableText(output), false).join("\n") : output;
    terminal.write(shown.endsWith("\n") ? shown : `${shown}\n`);
  }
  if (error !== null) terminal.note(`${printableText(error)}\n`);
  else if (state !== "DONE") terminal.note(`pg-task: task ${id} ended as ${state}\n`);
}
