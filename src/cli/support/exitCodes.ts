/**
 * Exit codes beside those of the error families (docs/errors.md). Those of `add --wait` say how the
 * task ended.
 */
export const exitCode = {
  done: 0,
  /** Not all of what was asked for could be done: an id that is not there, a state that forbids it. */
  notAll: 1,
  fail: 10,
  gone: 11,
  stop: 12,
  /** The row went while it was waited for. */
  deleted: 13,
  /** It was added, and its end cannot be read: adding it again would run it twice. */
  unknown: 14,
  interrupted: 130,
} as const;
