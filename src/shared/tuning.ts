/** After this time, in ms, the manager recalls the tasks behind a run, and pipelines become shorter. */
export const slowRunMs = 50;

/** After this time, in ms, a task that could start but has not counts as stalled. */
export const stalledMs = 10_000;

/**
 * How long the steps of a stop can take after the grace period, in ms: each more than the one before, so that each step
 * has ended by itself before the next one cuts it off.
 */
export const stopMarginsMs = {
  /** Until the manager no longer waits for cancelled runs to end. */
  cancelledRuns: 1_500,
  /** Until the manager closes its sessions even if results are not written. */
  sessions: 2_000,
  /** Until the manager gives up results that are not written. */
  results: 3_000,
  /** Until the supervisor terminates the manager's thread. */
  managerThread: 4_000,
  /** Until the supervisor no longer waits for its managers. */
  supervisor: 10_000,
} as const;

/**
 * Longest time, in ms, that an answer can take after its backend has become idle: long enough for a lost packet to be
 * sent again. After that, the connection counts as half-open.
 */
export const maxSilenceMs = 400;
/** The same while the backend is sending an output: a network that only stalls must not end the task. */
export const maxSendingSilenceMs = 10_000;
