/** Interval at which a thread increments its heartbeat counter, and at which the watcher checks the counter, in ms. */
const heartbeatMs = 1000;

/** Allocates a thread's heartbeat counter. */
export function createHeartbeat(): SharedArrayBuffer {
  return new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT);
}

/**
 * Increments the heartbeat counter as long as this thread's event loop turns. The timer does not keep the thread alive.
 */
export function startHeartbeat(buffer: SharedArrayBuffer): void {
  const count = new Int32Array(buffer);
  setInterval(() => Atomics.add(count, 0, 1), heartbeatMs).unref();
}

/**
 * Calls `onStall` once when there has been no heartbeat for `limitMs`. The limit is counted in checks, not in elapsed
 * time: while the whole process is suspended, the checks are suspended too, so a suspension is not taken for a stall.
 *
 * @returns a function that stops the checks
 */
export function watchHeartbeat(buffer: SharedArrayBuffer, limitMs: number, onStall: () => void): () => void {
  const count = new Int32Array(buffer);
  let seen = Atomics.load(count, 0);
  let missed = 0;
  const timer = setInterval(() => {
    const now = Atomics.load(count, 0);
    missed = now === seen ? missed + 1 : 0;
    seen = now;
    if (missed * heartbeatMs < limitMs) return;
    clearInterval(timer);
    onStall();
  }, heartbeatMs);
  timer.unref();
  return () => clearInterval(timer);
}
