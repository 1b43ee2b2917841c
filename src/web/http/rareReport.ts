/** In ms. */
const reportMs = 60_000;

/**
 * Reports an event at once, and further ones together.
 * @param report gets the newest event, and the number of events since the last report
 */
export function rareReport<T>(report: (newest: T, count: number) => void): (event: T) => void {
  let unreported: { readonly newest: T; readonly count: number } | null = null;
  let isPausing = false;
  const flush = (): void => {
    isPausing = unreported !== null;
    if (unreported === null) return;
    report(unreported.newest, unreported.count);
    unreported = null;
    setTimeout(flush, reportMs).unref();
  };
  return (newest) => {
    unreported = { newest, count: (unreported?.count ?? 0) + 1 };
    if (!isPausing) flush();
  };
}
