import { setTimeout as pause } from "node:timers/promises";

/** Polls until the condition holds. @throws Error after `limitMs` */
export async function until(
  isSo: () => Promise<boolean>,
  { everyMs, limitMs, what }: { everyMs: number; limitMs: number; what: string },
): Promise<void> {
  const start = performance.now();
  while (!(await isSo())) {
    if (performance.now() - start > limitMs) {
      throw new Error(`still not after ${Math.round(limitMs / 1000)} s: ${what}`);
    }
    await pause(everyMs);
  }
}
