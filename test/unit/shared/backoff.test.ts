import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { describe, it } from "node:test";
import { Backoff, sleep } from "../../../src/shared/backoff.js";

const take = (backoff: Backoff, count: number): number[] =>
  Array.from({ length: count }, () => backoff.next());

describe("backoff", () => {
  it("doubles its pauses up to the longest", () => {
    const backoff = new Backoff({ firstMs: 100, maxMs: 1000, random: () => 0 });
    assert.deepEqual(take(backoff, 6), [100, 200, 400, 800, 1000, 1000]);
  });

  it("begins again after a success", () => {
    const backoff = new Backoff({ firstMs: 100, maxMs: 1000, random: () => 0 });
    take(backoff, 5);
    backoff.reset();
    assert.deepEqual(take(backoff, 2), [100, 200]);
  });

  it("grows by the factor given", () => {
    const backoff = new Backoff({ firstMs: 10, maxMs: 1000, factor: 3, random: () => 0 });
    assert.deepEqual(take(backoff, 4), [10, 30, 90, 270]);
  });

  it("takes away up to the part that jitter names, and grows all the same", () => {
    const backoff = new Backoff({ firstMs: 100, maxMs: 400, jitter: 0.5, random: () => 0.5 });
    assert.deepEqual(take(backoff, 4), [75, 150, 300, 300]);
  });

  it("never pauses longer than the longest, not at first either", () => {
    const backoff = new Backoff({ firstMs: 5000, maxMs: 1000, random: () => 0 });
    assert.deepEqual(take(backoff, 2), [1000, 1000]);
  });

  it("lets the first attempt come at once after a calm time, and not when it fails soon again", () => {
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

describe("pause", () => {
  it("tells that the whole time has passed", async (test) => {
    test.mock.timers.enable({ apis: ["setTimeout"] });
    const { signal } = new AbortController();
    const paused = sleep(1000, signal);
    test.mock.timers.tick(1000);
    assert.equal(await paused, true);
    assert.deepEqual(getEventListeners(signal, "abort"), []);
  });

  it("ends at once when it is aborted, and says so", async () => {
    const controller = new AbortController();
    const paused = sleep(60_000, controller.signal);
    controller.abort();
    assert.equal(await paused, false);
  });

  it("does not begin when it is aborted already", async () => {
    assert.equal(await sleep(60_000, AbortSignal.abort()), false);
  });
});
