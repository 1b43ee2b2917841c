import { getRandomValues } from "node:crypto";

const drawn = new Uint32Array(1024);
let left = 0;

/** A random second key of an advisory lock, 1 to 2^31 - 1: one that a task could guess it could hold itself. */
export function randomKey(): number {
  if (left === 0) {
    getRandomValues(drawn);
    left = drawn.length;
  }
  left -= 1;
  return Math.max(1, (drawn[left] ?? 0) >>> 1);
}
