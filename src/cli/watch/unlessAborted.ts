/** Resolves when the work has ended or the signal is aborted, whichever comes first. */
export async function unlessAborted(work: Promise<void>, signal: AbortSignal): Promise<void> {
  const aborted = new AbortController();
  try {
    await Promise.race([
      work,
      new Promise<void>((resolve) => {
        if (signal.aborted) resolve();
        signal.addEventListener("abort", () => resolve(), { signal: aborted.signal });
      }),
    ]);
  } finally {
    aborted.abort();
  }
}
