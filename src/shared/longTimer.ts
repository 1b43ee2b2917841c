/** Longer ones make setTimeout fire at once. */
const maxTimeoutMs = 2 ** 31 - 1;

/**
 * A timer of any length.
 *
 * @returns what stops it
 */
export function startTimer(delayMs: number, fire: () => void): () => void {
  let left = delayMs;
  let timer: NodeJS.Timeout;
  const next = () => {
    const step = Math.min(left, maxTimeoutMs);
    left -= step;
    timer = setTimeout(left > 0 ? next : fire, step);
  };
  next();
  return () => clearTimeout(timer);
}
