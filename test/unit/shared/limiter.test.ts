import assert from "node:assert/strict";
import { it } from "node:test";
import { Limiter } from "../../../src/shared/limiter.js";

/** Jobs that run until they are told to end. */
function jobs(limiter: Limiter, count: number): { begun: number[]; end: (number: number) => void } {
  const begun: number[] = [];
  const ends: (() => void)[] = [];
  for (let number = 0; number < count; number += 1) {
    void limiter.run(async () => {
      begun.push(number);
      await new Promise<void>((resolve) => (ends[number] = resolve));
    });
  }
  return { begun, end: (number) => ends[number]?.() };
}

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

it("lets as many jobs run at once as it may, and the others in their order", async () => {
  const { begun, end } = jobs(new Limiter(2), 4);
  await settled();
  assert.deepEqual(begun, [0, 1]);
  end(1);
  await settled();
  assert.deepEqual(begun, [0, 1, 2]);
});

it("lets more run as soon as it may", async () => {
  const limiter = new Limiter(1);
  const { begun } = jobs(limiter, 3);
  limiter.limit = 3;
  await settled();
  assert.deepEqual(begun, [0, 1, 2]);
});

it("goes on after a job that failed", async () => {
  const limiter = new Limiter(1);
  await assert.rejects(
    limiter.run(() => Promise.reject(new Error("broken"))),
    /broken/,
  );
  await limiter.run(() => Promise.resolve());
});
