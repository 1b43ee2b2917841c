/**
 * Returns a signal that is aborted after `ms`, or with `signal`. Does not keep the process alive. On Node 20, a signal
 * of `AbortSignal.timeout` on which only one of `AbortSignal.any` depends can be collected, and is then never aborted.
 */
export function timeoutSignal(ms: number, signal?: AbortSignal): AbortSignal {
  const timeout = new AbortController();
  const expire = (): void => timeout.abort(new DOMException("timeout expired", "TimeoutError"));
  setTimeout(expire, ms).unref();
  return signal === undefined ? timeout.signal : AbortSignal.any([signal, timeout.signal]);
}
