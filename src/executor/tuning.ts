/** How the executor schedules runs (docs/decisions/0011-pipelining.md and 0022-batches-and-pauses.md). */

/**
 * Bounds of the pipeline depth. The higher maximum applies while none of the last `rememberedRuns` runs was slow. Fewer
 * runs cost more CPU time each, but runs behind a slow one have to wait for it.
 */
export const minPipelineRuns = 4;
export const maxPipelineRuns = 16;
export const maxPipelineRunsWithoutSlow = 32;

export const rememberedRuns = 256;

export const pipelineMs = 8;

/**
 * Factors for the typical duration after a run that took longer, and one that took less: a third of the runs are then
 * shorter. The mean would be unsuitable, because a run with nothing behind it seems to last until the next one is sent.
 */
export const durationGrowth = 1.25;
export const durationShrink = 0.64;

/** A queued run is reported as started after this time, in ms. Most runs have ended by then. */
export const startedReportMs = 50;

/** How long results are collected, in ms: a message between threads costs more than its bytes. */
export const resultBatchMs = 2;

/**
 * A pipelined run is cancelled when its output comes this close, in bytes, to the limit: more than what both operating
 * systems buffer, which the server may have committed before the executor reads it.
 */
export const maxBufferedBytes = 48 << 20;

/**
 * Smallest output limit, in bytes, with which runs are pipelined, and the default. With less, too many runs would come
 * within `maxBufferedBytes` of the limit and be repeated.
 */
export const minPipelinedOutputLimit = 64 << 20;

/** A shorter timeout of a task or session, in ms, might also hit pg-task's own statements around the input. */
export const minPipelinedTimeoutMs = 1_000;

/** Attempts of a run in one form if finish or the commit conflicts with other transactions. */
export const maxConflicts = 5;

/** How many attempts may fail before the input has run, such as by a cancel meant for another run. */
export const maxAttemptsWithoutRun = 10;

/** How often a cancelled reset of a session is repeated: often, because giving up costs the session. */
export const maxResets = 100;

/** If a cancel hit nothing, or the task's SQL caught the error, it is repeated after this time, in ms. */
export const cancelRepeatMs = 1_000;

/** Longest input, in characters, that is searched for keywords. */
export const maxSearchedLength = 1 << 16;

/** Output lines are joined into pieces of about this many characters. */
export const outputPieceLength = 1 << 16;

/** From this size on, in bytes, outputs are passed to the manager one at a time. */
export const largeOutputBytes = 1 << 20;

/** A remote ledger is cleaned after this many runs of a thread, or after this time, in ms. */
export const ledgerCleaning = { runs: 500, ms: 60_000 };

/** For how long, in ms, a server on which a role can have no ledger is not asked again. */
export const ledgerObstacleMs = 60_000;
