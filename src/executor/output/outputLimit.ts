/**
 * Maximum output of a task, in bytes. `OutputFormatter` checks a task's output, and `Execution` then cancels the run.
 * This maximum applies even if the configured limit is higher, because one statement has to carry the output as a
 * single value.
 */
export const maxOutputBytes = 256 << 20;

/** Returns the error of a task whose output exceeds the limit, in bytes. */
export const outputTooLarge = (limit: number): string => `output exceeds ${limit} bytes`;
