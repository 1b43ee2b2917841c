/** How long a statement that does not pass over locked rows waits for them, in ms: all others wait meanwhile. */
export const lockWaitMs = 10;

/** SQL of a condition that is true, and limits how long its statement waits for rows. */
export const lockWait = `(SELECT set_config('lock_timeout', '${lockWaitMs}ms', true)) IS NOT NULL`;
