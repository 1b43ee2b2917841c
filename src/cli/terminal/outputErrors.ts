import { explainSystemError } from "../../shared/systemErrors.js";
import { commandExitCodes } from "../support/exitCodes.js";

let addedTask: string | null = null;

/**
 * Notes that the command has added a task. If the output cannot be written, standard error and the exit code then say
 * so, because whoever adds the task again would run it twice.
 */
export function noteAddedTask(id: string): void {
  addedTask = id;
}

/**
 * Ends the process if its output cannot be written. There is no error message when the program that reads the output
 * closes it, as `head` does after its last line.
 */
export function handleOutputErrors(): void {
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code === "EPIPE") process.exit(0);
    const problem = `the output cannot be written: ${explainSystemError(error)}`;
    process.stderr.write(`pg-task: ${addedTask === null ? "" : `task ${addedTask} was added, but `}${problem}\n`);
    process.exit(addedTask === null ? commandExitCodes.notAll : commandExitCodes.unknown);
  });
  // There is nowhere left to report this.
  process.stderr.on("error", () => {});
}
