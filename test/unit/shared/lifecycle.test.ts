import assert from "node:assert/strict";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import { Lifecycle, type LifecycleHooks } from "../../../src/shared/lifecycle.js";

type Hook = "start" | "drain" | "stop";

/** Creates a lifecycle and records the states that it enters. */
function createLifecycle(hooks: LifecycleHooks) {
  const states: string[] = [];
  const log = { debug: ({ state }: { state?: string }) => state !== undefined && states.push(state), error: () => {} };
  return { lifecycle: new Lifecycle(hooks, { name: "the component", log }), states };
}

const noHooks: LifecycleHooks = { start: async () => {}, drain: async () => {}, stop: async () => {} };

const startAborted = { code: "START_ABORTED", message: "the component was stopped before it ran" };

/** Files that share a process may have timers of their own. */
const timers = (): number => process.getActiveResourcesInfo().filter((each) => each === "Timeout").length;

describe("a lifecycle", () => {
  it("may be stopped and started by its own start hook", async () => {
    const { lifecycle }: { lifecycle: Lifecycle } = createLifecycle({
      ...noHooks,
      start: async () => {
        void lifecycle.stop();
        void lifecycle.start().catch(() => {});
      },
    });
    await assert.rejects(lifecycle.start(), startAborted);
    assert.equal(await lifecycle.stopped, null);
  });

  it("leaves no timer that keeps the process alive", async () => {
    const before = timers();
    const { lifecycle } = createLifecycle(noHooks);
    await lifecycle.start();
    await lifecycle.stop(60_000);
    assert.ok(timers() <= before);
  });
});

/** Starts a component whose drain lasts until the test ends it, and stops it with this grace period. */
async function draining(graceMs: number) {
  const calls: Hook[] = [];
  const received: { drain?: AbortSignal; graceMs?: number } = {};
  let endDrain!: (failure?: Error) => void;
  const drained = new Promise<void>((resolve, reject) => {
    endDrain = (failure) => (failure === undefined ? resolve() : reject(failure));
  });
  const { lifecycle, states } = createLifecycle({
    start: async () => void calls.push("start"),
    drain: async (signal, leftMs) => {
      calls.push("drain");
      Object.assign(received, { drain: signal, graceMs: leftMs });
      await drained;
    },
    stop: async () => void calls.push("stop"),
  });
  await lifecycle.start();
  const stopped = lifecycle.stop(graceMs);
  while (states.at(-1) !== "draining") await new Promise(setImmediate);
  return { lifecycle, calls, received, endDrain, stopped };
}

describe("a drain", () => {
  it("is awaited during the grace period, and receives its length", async () => {
    const { calls, received, endDrain, stopped } = await draining(60_000);
    assert.ok(received.graceMs! > 0 && received.graceMs! <= 60_000);
    assert.deepEqual(calls, ["start", "drain"]);
    endDrain();
    assert.equal(await stopped, null);
    assert.deepEqual(calls, ["start", "drain", "stop"]);
  });

  it("is not interrupted at once by a grace period that is longer than a timer can be", async () => {
    const { received, endDrain, stopped } = await draining(2 ** 31 + 10_000);
    // A timer that overflows fires after 1 ms, and before one that is set later for longer.
    await new Promise((resolve) => void setTimeout(resolve, 2));
    assert.equal(received.drain?.aborted, false);
    endDrain();
    assert.equal(await stopped, null);
  });

  it("is interrupted when the grace period is over, which a later stop can only shorten", async (test) => {
    test.mock.timers.enable({ apis: ["setTimeout"] });
    for (const [later, tickMs] of [
      [60_000, 1000],
      [500, 500],
      [0, 0],
    ] as const) {
      const { lifecycle, received, stopped } = await draining(1000);
      assert.equal(lifecycle.stop(later), stopped);
      test.mock.timers.tick(tickMs);
      assert.equal(received.drain?.aborted, true, String(later));
      assert.equal(await stopped, null);
    }
  });

  it("that fails is the reason, unless it was interrupted before", async () => {
    const lost = new Error("lost");
    const failed = await draining(60_000);
    failed.endDrain(lost);
    assert.equal(await failed.stopped, lost);
    const interrupted = await draining(60_000);
    assert.equal(await interrupted.lifecycle.stop(), null);
    interrupted.endDrain(lost);
    await new Promise(setImmediate);
    assert.equal(await interrupted.lifecycle.stop(), null);
  });
});

describe("a failure", () => {
  it("while it runs stops it without a drain, and the first one is the reason", async () => {
    const { lifecycle, states } = createLifecycle(noHooks);
    await lifecycle.start();
    const first = new Error("first");
    void lifecycle.fail(first);
    assert.equal(await lifecycle.fail(new Error("second")), first);
    assert.deepEqual(states, ["starting", "running", "stopping", "stopped"]);
  });

  it("may be thrown synchronously, and need not be an Error", async () => {
    const { lifecycle } = createLifecycle({
      ...noHooks,
      start: () => {
        throw "refused";
      },
    });
    await assert.rejects(lifecycle.start(), { code: "INTERNAL", message: "refused" });
  });
});

/** How a hook behaves: after how many turns of the event loop it returns, and whether only after an abort. */
const behaviour = fc.record({ turns: fc.nat(5), fails: fc.boolean(), waitsForSignal: fc.boolean() });
const calls = fc.array(
  fc.record({
    after: fc.oneof(fc.constant(0), fc.nat(4)),
    call: fc.constantFrom("start" as const, "start" as const, "stop" as const, "fail" as const),
    graceMs: fc.constantFrom(0, 1, 60_000, Infinity),
  }),
  { maxLength: 50, size: "medium" },
);
type Behaviour = typeof behaviour extends fc.Arbitrary<infer T> ? T : never;
type Call = typeof calls extends fc.Arbitrary<(infer T)[]> ? T : never;

const paths = new Set([
  "stopped",
  "starting running stopping stopped",
  "starting running draining stopping stopped",
  "starting stopping stopped",
]);

async function turns(count: number): Promise<void> {
  for (let n = 0; n < count; n += 1) await new Promise(setImmediate);
}

async function play(behaviours: Record<Hook, Behaviour>, all: readonly Call[]): Promise<void> {
  const hooks: Hook[] = [];
  const failures: Error[] = [];
  let isStarting = false;
  const failed = (error: Error): Error => {
    if (states.at(-1) !== "stopped") failures.push(error);
    return error;
  };
  const runHook = async (hook: Hook, signal?: AbortSignal): Promise<void> => {
    hooks.push(hook);
    const { turns: count, fails, waitsForSignal } = behaviours[hook];
    await turns(count);
    const waits = (): boolean => waitsForSignal && signal?.aborted === false;
    while (waits()) await turns(1);
    if (!fails) return;
    if (hook === "start" && signal?.aborted === true) throw new Error("aborted");
    throw failed(new Error(hook));
  };
  const { lifecycle, states } = createLifecycle({
    start: async (signal) => {
      isStarting = true;
      await runHook("start", signal).finally(() => (isStarting = false));
    },
    drain: (signal) => runHook("drain", signal),
    stop: () => {
      assert.ok(!isStarting, "stop never overlaps start");
      return runHook("stop");
    },
  });
  const starts = new Set<Promise<void>>();
  for (const { after, call, graceMs } of [...all, { after: 0, call: "stop" as const, graceMs: 0 }]) {
    if (after > 0) await turns(after);
    if (call === "start") starts.add(lifecycle.start());
    else if (call === "stop") assert.equal(lifecycle.stop(graceMs), lifecycle.stopped);
    else assert.equal(lifecycle.fail(failed(new Error("failure"))), lifecycle.stopped);
  }
  assert.equal(await lifecycle.stopped, failures[0] ?? null, "the first failure is the reason");
  assert.ok(starts.size <= 1, "many calls, one promise");
  await Promise.allSettled(starts);
  assert.ok(paths.has(states.join(" ")), states.join(" "));
  const stateOf = { start: "starting", drain: "draining", stop: "stopping" };
  assert.deepEqual(
    hooks.map((hook) => stateOf[hook]),
    states.filter((state) => Object.values(stateOf).includes(state)),
    "each hook once, in its state",
  );
}

it("a lifecycle ends in stopped with each hook called at most once, for any calls and failures", async (test) => {
  const unhandled: unknown[] = [];
  const note = (reason: unknown): void => void unhandled.push(reason);
  process.on("unhandledRejection", note);
  test.after(() => process.off("unhandledRejection", note));
  const behaviours = fc.record({ start: behaviour, drain: behaviour, stop: behaviour });
  await fc.assert(fc.asyncProperty(behaviours, calls, play), { numRuns: 1000 });
  await turns(10);
  assert.deepEqual(unhandled, []);
});
