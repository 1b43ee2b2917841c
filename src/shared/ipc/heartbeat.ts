/**
 * Interval at which a thread increments its heartbeat counter, and at which the watcher checks the counter, in ms, if
 * the thread may go without a heartbeat for `limitMs`.
 */
const intervalMs = (limitMs: number): number => Math.min(5_000, Math.max(100, limitMs / 10));

/** Allocates a thread's heartbeat counter. */
export function createHeartbeat(): SharedArrayBuffer {
  return new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT);
}

/**
 * Increments the heartbeat counter while this thread's event loop is running. The timer does not keep the thread alive.
 */
export function startHeartbeat(buffer: SharedArrayBuffer, limitMs: number): void {
  const count = new Int32Array(buffer);
  setInterval(() => Atomics.add(count, 0, 1), intervalMs(limitMs)).unref();
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
  const everyMs = intervalMs(limitMs);
  const timer = setInterval(() => {
    const now = Atomics.load(count, 0);
    missed = now === seen ? missed + 1 : 0;
    seen = now;
    // A single missed heartbeat can be a delay of the timer.
    if (missed < 2 || missed * everyMs < limitMs) return;
    clearInterval(timer);
    onFreeze();
  }, everyMs);
  timer.unref();
  return () => clearInterval(timer);
}
