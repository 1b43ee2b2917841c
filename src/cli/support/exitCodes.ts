/**
 * Exit codes of commands. Further exit codes are those of the error families (docs/errors.md). Codes from 10 on are
 * results of `add --wait`.
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
   * The task was added, but its result cannot be read. This code differs from a failure, because adding the task again
   * would run it twice.
   */
  unknown: 14,
  interrupted: 130,
} as const;
