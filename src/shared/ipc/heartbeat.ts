/** Interval at which a thread increments its heartbeat counter, and at which the watcher checks the counter, in ms. */
const heartbeatMs = 1000;

/** Allocates a thread's heartbeat counter. */
export function createHeartbeat(): SharedArrayBuffer {
  return new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT);
}

/**
 * Increments the heartbeat counter while this thread's event loop is running. The timer does not keep the thread alive.
 */
export function startHeartbeat(buffer: SharedArrayBuffer): void {
  const count = new Int32Array(buffer);
  setInterval(() => Atomics.add(count, 0, 1), heartbeatMs).unref();
}

/**
 * Calls `onFreeze` once when there has been no heartbeat for `limitMs`. The limit is counted in checks, not in elapsed
 * time. If the whole process is suspended, there are no checks either, so the suspension is not mistaken for a freeze.
 *
 * @returns a function that stops the checks
 */
export function watchHeartbeat(buffer: SharedArrayBuffer, limitMs: number, onFreeze: () => void): () => void {
  const count = new Int32Array(buffer);
  let seen = Atomics.load(count, 0);
  let missed = 0;
  const timer = setInterval(() => {
    const now = Atomics.load(count, 0);
    missed = now === seen ? missed + 1 : 0;
    seen = now;
    if (missed * heartbeatMs < limitMs) return;
    clearInterval(timer);
    onFreeze();
  }, heartbeatMs);
  timer.unref();
  return () => clearInterval(timer);
}
