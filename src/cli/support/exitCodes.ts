/**
 * Exit codes of commands. Each error family has an exit code too (docs/errors.md). Codes of 10 and above are results of
 * `add`.
 */
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
   * The task was added, but its result cannot be read, or the output cannot be written. A caller must not treat this as
   * a failure to add the task, because adding the task again would run it twice.
   */
  unknown: 14,
  interrupted: 130,
} as const;
