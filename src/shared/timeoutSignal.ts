/**
 * Returns a signal that is aborted after `ms` (in ms), or when `signal` is aborted. The timer does not keep the process
 * alive.
 *
 * On Node 20, a signal of `AbortSignal.timeout` can be collected as garbage when only a signal of `AbortSignal.any`
 * depends on it, and then it is never aborted. A controller is not, because its timer holds it.
 */
export function timeoutSignal(ms: number, signal?: AbortSignal): AbortSignal {
  const timeout = new AbortController();
  const expire = (): void => timeout.abort(new DOMException("timeout expired", "TimeoutError"));
  setTimeout(expire, ms).unref();
  return signal === undefined ? timeout.signal : AbortSignal.any([signal, timeout.signal]);
}
