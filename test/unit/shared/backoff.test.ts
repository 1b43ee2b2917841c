import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { after, before, describe, it, mock } from "node:test";
import { Backoff, sleep } from "../../../src/shared/backoff.js";

const take = (backoff: Backoff, count: number): number[] => Array.from({ length: count }, () => backoff.next());

describe("backoff", () => {
  let [now, random] = [0, 0];
  before(() => {
    mock.method(performance, "now", () => now);
    mock.method(Math, "random", () => random);
  });
  after(() => mock.restoreAll());

  for (const [title, options, chance, pauses] of [
    ["doubles its pauses up to the maximum", { firstMs: 100, maxMs: 1000 }, 0, [100, 200, 400, 800, 1000, 1000]],
    ["shortens them at random by up to a quarter", { firstMs: 100, maxMs: 400 }, 0.8, [80, 160, 320, 320]],
    ["never exceeds the maximum, not even at first", { firstMs: 5000, maxMs: 1000 }, 0, [1000, 1000]],
  ] as const) {
    it(title, () => {
      random = chance;
      assert.deepEqual(take(new Backoff(options), pauses.length), pauses);
    });
  }

  it("starts again with the first pause after a success", () => {
    const backoff = new Backoff({ firstMs: 100, maxMs: 1000 });
    take(backoff, 5);
    backoff.reset();
    assert.deepEqual(take(backoff, 2), [100, 200]);
  });

  it("retries at once after a calm period, but not when failures follow each other", () => {
    const backoff = new Backoff({ firstMs: 100, maxMs: 1000, calmMs: 500 });
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
