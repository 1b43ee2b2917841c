import type { Requests } from "./peers/protocol.js";

/**
 * Makes requests for random keys, as fast as possible.
 *
 * @returns when the last request of each key began, in ms since 1970, and how long all requests took, in ms
 */
export async function makeRequests(
  { requests, keys, producers }: Requests,
  request: (key: number) => Promise<void>,
): Promise<{ last: readonly number[]; ms: number }> {
  const last = Array.from({ length: keys }, () => 0);
  let left = requests;
  const produce = async (): Promise<void> => {
    while (left > 0) {
      left -= 1;
      // Each key is requested at least once.
      const key = left < keys ? left : Math.floor(Math.random() * keys);
      last[key] = Date.now();
      await request(key);
    }
  };
  const start = performance.now();
  await Promise.all(Array.from({ length: producers }, produce));
  return { last, ms: performance.now() - start };
}

/** SQL of a requested task: it records when it ran. */
export function runOf(key: number): string {
  return `INSERT INTO run (key) VALUES (${key})`;
}
