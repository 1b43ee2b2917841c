import { setTimeout as pause } from "node:timers/promises";

/** Asks again and again until it is so. @throws Error when `limitMs` have passed. */
export async function until(
  isSo: () => Promise<boolean>,
  { everyMs, limitMs, what }: { everyMs: number; limitMs: number; what: string },
): Promise<void> {
  const start = performance.now();
  while (!(await isSo())) {
    if (performance.now() - start > limitMs) {
      throw new Error(`waited ${Math.round(limitMs / 1000)} s until ${what}, in vain`);
    }
    await pause(everyMs);
  }
}
