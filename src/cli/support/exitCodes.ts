import { explainSystemError } from "../../shared/systemErrors.js";

/** Beside those of the error families (docs/errors.md). Codes of 10 and above are results of `add` and `wait`. */
export const commandExitCodes = {
  done: 0,
  /** Not everything was done, for example because an id is unknown or the state of a task does not allow the change. */
  notAll: 1,
  fail: 10,
  gone: 11,
  stop: 12,
  /** The row was deleted while the command waited for the task. */
  deleted: 13,
  /**
   * The task was added, but its result cannot be read, or the output cannot be written. Whoever takes this for a
   * failure and adds the task again runs it twice.
   */
  unknown: 14,
  interrupted: 130,
} as const;

let addedTask: string | null = null;

/** If the output cannot be written, the error says that a task was added: whoever adds it again runs it twice. */
export function noteAddedTask(id: string): void {
  addedTask = id;
}

/** There is no message when the program that reads the output closes it, as `head` does after its last line. */
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
