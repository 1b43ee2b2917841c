import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { describe, it } from "node:test";
import { Backoff, sleep } from "../../../src/shared/backoff.js";

const take = (backoff: Backoff, count: number): number[] => Array.from({ length: count }, () => backoff.next());

describe("backoff", () => {
  for (const [title, options, pauses] of [
    ["doubles its pauses up to the maximum", { firstMs: 100, maxMs: 1000 }, [100, 200, 400, 800, 1000, 1000]],
    ["grows by the given factor", { firstMs: 10, maxMs: 1000, factor: 3 }, [10, 30, 90, 270]],
    [
      "shortens pauses by a random part up to `jitter`, while they grow",
      { firstMs: 100, maxMs: 400, jitter: 0.5, random: () => 0.5 },
      [75, 150, 300, 300],
    ],
    ["never exceeds the maximum, not even at first", { firstMs: 5000, maxMs: 1000 }, [1000, 1000]],
  ] as const) {
    it(title, () => assert.deepEqual(take(new Backoff({ random: () => 0, ...options }), pauses.length), pauses));
  }

  it("starts again with the first pause after a success", () => {
    const backoff = new Backoff({ firstMs: 100, maxMs: 1000, random: () => 0 });
    take(backoff, 5);
    backoff.reset();
    assert.deepEqual(take(backoff, 2), [100, 200]);
  });

  it("retries at once after a calm period, but not when failures follow each other", () => {
    let now = 0;
    const backoff = new Backoff({
      firstMs: 100,
      maxMs: 1000,
      random: () => 0,
      calmMs: 500,
      now: () => now,
    });
    assert.deepEqual(take(backoff, 3), [0, 100, 200]);
    now = 499;
    backoff.reset();
    assert.deepEqual(take(backoff, 2), [100, 200]);
    now = 1000;
    backoff.reset();
    assert.deepEqual(take(backoff, 2), [0, 100]);
  });
});

describe("sleep", () => {
  it("does not end at once if it is longer than a timer can be", async () => {
    const controller = new AbortController();
    const slept = sleep(2 ** 31, controller.signal);
    // A timer that overflows fires after 1 ms, and before one that is set later for longer.
    await sleep(2);
    controller.abort();
    assert.equal(await slept, false);
  });

  it("resolves to true when the whole time has passed", async (test) => {
    test.mock.timers.enable({ apis: ["setTimeout"] });
    const { signal } = new AbortController();
    const slept = sleep(1000, signal);
    test.mock.timers.tick(1000);
    assert.equal(await slept, true);
    assert.deepEqual(getEventListeners(signal, "abort"), []);
  });

  it("resolves to false at once when it is aborted", async () => {
    const controller = new AbortController();
    const slept = sleep(60_000, controller.signal);
    controller.abort();
    assert.equal(await slept, false);
  });

  it("does not wait when the signal is already aborted", async () => {
    assert.equal(await sleep(60_000, AbortSignal.abort()), false);
  });
});
