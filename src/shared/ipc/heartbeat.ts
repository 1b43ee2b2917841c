/** How often a thread gives a sign of life, and how often it is looked for, in ms. */
const beatMs = 1000;

/** Memory in which a thread's beats are counted. */
export function createHeartbeat(): SharedArrayBuffer {
  return new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT);
}

/** Beats for as long as this thread's event loop turns; does not keep the thread there. */
export function beat(heart: SharedArrayBuffer): void {
  const count = new Int32Array(heart);
  setInterval(() => Atomics.add(count, 0, 1), beatMs).unref();
}

/**
 * Calls `still` once when no beat has been seen for `limitMs`. What counts is how often it was
 * looked for: when the whole process stood still, so did the one who looks.
 *
 * @returns stops looking.
 */
export function watchHeartbeat(
  heart: SharedArrayBuffer,
  limitMs: number,
  still: () => void,
): () => void {
  const count = new Int32Array(heart);
  let seen = Atomics.load(count, 0);
  let looked = 0;
  const timer = setInterval(() => {
    const now = Atomics.load(count, 0);
    looked = now === seen ? looked + 1 : 0;
    seen = now;
    if (looked * beatMs < limitMs) return;
    clearInterval(timer);
    still();
  }, beatMs);
  timer.unref();
  return () => clearInterval(timer);
}
