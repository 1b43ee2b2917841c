import { readOutcomes } from "../../tasks/queries/taskOutcome.js";
import { commandExitCodes } from "../support/exitCodes.js";
import { readOneTask, type OneTaskOptions } from "../support/oneTask.js";
import type { Terminal } from "../terminal/terminal.js";
import { waitForTask } from "./awaitEnd.js";

export async function wait(terminal: Terminal, given: string | undefined, options: OneTaskOptions): Promise<number> {
  const waited = await readOneTask(terminal, "wait", given, options, async (opened, id) => {
    const exists = (await readOutcomes(opened.client, opened.table, [id])).size > 0;
    return exists ? await waitForTask(terminal, opened, id, options.json === true) : null;
  });
  return waited === null ? commandExitCodes.notAll : waited.found;
}
