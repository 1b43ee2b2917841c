/** The signal is aborted after `ms` or when `outer` is. */
export async function withTimeout<T>(
  ms: number,
  outer: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const controller = new AbortController();
  const abort = (): void => controller.abort();
  const timer = setTimeout(abort, ms);
  outer.addEventListener("abort", abort);
  try {
    if (outer.aborted) abort();
    return await work(controller.signal);
  } finally {
    clearTimeout(timer);
    outer.removeEventListener("abort", abort);
  }
}

/** Does not cancel `work`. */
export async function waitAtMost<T, L>(ms: number, work: Promise<T>, fallback: L): Promise<T | L> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<L>((resolve) => {
    timer = setTimeout(resolve, ms, fallback);
  });
  try {
    return await Promise.race([work, timeout]);
  } finally {
    clearTimeout(timer);
  }
}
