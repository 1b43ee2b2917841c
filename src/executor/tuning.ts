/**
 * Numbers that decide how the executor schedules runs. Each has its unit and the reason for its value. Limits that
 * belong to a protocol or a server are defined in the module that uses them. The measurements behind the values are in
 * docs/decisions/0011-pipelining.md and 0022-batches-and-pauses.md.
 */

/**
 * Bounds of the pipeline depth, that is, how many runs of one session may be on the wire at once. The higher maximum
 * applies only while none of the last `rememberedRuns` runs was slow.
 * Fewer runs cost more CPU time each. But runs behind a slow one have to wait for it.
 */
export const minPipelineRuns = 4;
export const maxPipelineRuns = 16;
export const maxPipelineRunsWithoutSlow = 32;

/** A slow run is considered recent until this many further runs have ended. */
export const rememberedRuns = 256;

/** All runs on the wire together should take the server about this long, in ms. */
export const pipelineMs = 8;

/**
 * The typical run duration is multiplied by `durationGrowth` after a run that took longer, and by `durationShrink`
 * after a run that took less. With these factors the typical duration settles at a value such that a third of the runs
 * are shorter and two thirds are longer. The mean would be unsuitable: a run with nothing behind it seems to last until
 * the executor sends the next one, so delays in the executor would reinforce themselves.
 */
export const durationGrowth = 1.25;
export const durationShrink = 0.64;

/** A queued run is reported as started after it has run for this long, in ms. Most runs have ended by then. */
export const startedReportMs = 50;

/**
 * How long results are collected while their sessions have more to do, in ms. Results are collected because the fixed
 * cost of a message between threads exceeds the cost of its bytes.
 */
export const resultBatchMs = 2;

/**
 * A pipelined run is cancelled when its output comes this close, in bytes, to the output limit. The operating systems
 * on both sides buffer a part of the answer, so the server may commit before the executor has read that part. This
 * margin is larger than those buffers.
 */
export const maxBufferedBytes = 48 << 20;

/**
 * Smallest output limit, in bytes, with which runs are pipelined. It is also the default limit. With a lower limit,
 * nothing is sent after an input until its output is known. Otherwise, too many runs would come within
 * `maxBufferedBytes` of the limit and would have to be repeated.
 */
export const minPipelinedOutputLimit = 64 << 20;

/**
 * Smallest timeout of a task or its session, in ms, with which runs are still pipelined. A shorter timeout might also hit
 * pg-task's own statements around the input.
 */
export const minPipelinedTimeoutMs = 1_000;

/** Maximum number of attempts of a run in one form if `finish` or the commit conflicts with other transactions. */
export const maxConflicts = 5;

/** How many attempts may fail before the input has run, for example because of a cancel meant for another run. */
export const maxAttemptsWithoutRun = 10;

/** How often a cancelled session reset is repeated: often, because giving up costs the session. */
export const maxResets = 100;

/** If a cancel hit nothing, or the task's SQL caught the error, the cancel is repeated after this time, in ms. */
export const cancelRepeatMs = 1_000;

/** Maximum length, in characters, of an input that is searched for keywords. The limit keeps the search short. */
export const maxSearchedLength = 1 << 16;

/** Output lines are joined into pieces of about this many characters, so that many short lines cost little. */
export const outputPieceLength = 1 << 16;

/** Outputs of at least this size, in bytes, are passed to the manager one at a time, to limit its memory. */
export const largeOutputBytes = 1 << 20;
