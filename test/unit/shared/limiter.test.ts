import assert from "node:assert/strict";
import { it } from "node:test";
import { Limiter } from "../../../src/shared/limiter.js";

/** Starts jobs that run until `end` is called. */
function startJobs(limiter: Limiter, count: number): { started: number[]; end: (number: number) => void } {
  const started: number[] = [];
  const ends: (() => void)[] = [];
  for (let number = 0; number < count; number += 1) {
    void limiter.run(async () => {
      started.push(number);
      await new Promise<void>((resolve) => (ends[number] = resolve));
    });
  }
  return { started, end: (number) => ends[number]?.() };
}

const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

it("runs at most `limit` jobs at once, in order of arrival", async () => {
  const { started, end } = startJobs(new Limiter(2), 4);
  await settle();
  assert.deepEqual(started, [0, 1]);
  end(1);
  await settle();
  assert.deepEqual(started, [0, 1, 2]);
});

it("starts more jobs when the limit is raised", async () => {
  const limiter = new Limiter(1);
  const { started } = startJobs(limiter, 3);
  limiter.limit = 3;
  await settle();
  assert.deepEqual(started, [0, 1, 2]);
});

it("continues after a failed job", async () => {
  const limiter = new Limiter(1);
  await assert.rejects(
    limiter.run(() => Promise.reject(new Error("broken"))),
    /broken/,
  );
  await limiter.run(() => Promise.resolve());
});
