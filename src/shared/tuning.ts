/** Times that several layers share. The manager and the executor each have a tuning.ts of their own. */

/**
 * A run is slow once it has taken this long, in ms. The manager then recalls the tasks queued behind the run, and the
 * executor keeps its pipelines shorter for a while, so that fewer runs have to wait.
 */
export const slowRunMs = 50;

/** Time, in ms, after which a task that could start but has not started counts as stalled. */
export const stalledMs = 10_000;

/**
 * How long the steps of a stop can take after the grace period, in ms. They must stay in ascending order, so that each
 * step has ended by itself before it is cut off: the manager waits until its runs have ended, then until their results
 * are written, and only then gives up. The supervisor terminates the manager's thread later than that, and itself ends
 * last.
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
 * Longest time, in ms, that an answer can take to arrive after its backend has become idle. After a longer silence, the
 * connection is considered half-open. The time is long enough for a lost packet to be sent again.
 */
export const maxSilenceMs = 400;
/**
 * The same while the backend is sending an output and waits until its client reads, in ms. The task may still be doing
 * something, so a network that only stalls must not end it.
 */
export const maxSendingSilenceMs = 10_000;
