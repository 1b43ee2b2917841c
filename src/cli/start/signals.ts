/** A further signal that comes sooner is the same request again: npm hands Ctrl-C on twice. */
const sameRequestMs = 1000;

/**
 * Calls `stop` at the first SIGTERM, SIGINT or `shutdown` message of the parent, and `hasten` at one
 * that comes more than a second after it.
 *
 * @returns stops listening.
 */
export function onStopSignal(stop: (signal: string) => void, hasten: () => void): () => void {
  let first: number | null = null;
  const ask = (signal: string): void => {
    if (first === null) {
      first = performance.now();
      stop(signal);
    } else if (performance.now() - first > sameRequestMs) {
      hasten();
    }
  };
  const message = (text: unknown): void => {
    if (text === "shutdown") ask("shutdown");
  };
  process.on("SIGTERM", ask);
  process.on("SIGINT", ask);
  process.on("message", message);
  return () => {
    process.off("SIGTERM", ask);
    process.off("SIGINT", ask);
    process.off("message", message);
  };
}
