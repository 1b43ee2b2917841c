export const maxTimerMs = 2 ** 31 - 1;

/** Starts a timer of any length. Returns a function that stops it. */
export function startTimer(delayMs: number, fire: () => void): () => void {
  let remainingMs = delayMs;
  let timer: NodeJS.Timeout;
  const next = () => {
    const step = Math.min(remainingMs, maxTimerMs);
    remainingMs -= step;
    timer = setTimeout(remainingMs > 0 ? next : fire, step);
  };
  next();
  return () => clearTimeout(timer);
}
