import assert from "node:assert/strict";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import { Lifecycle, type LifecycleState } from "../../../src/shared/lifecycle.js";

/** How a hook behaves. */
interface Behaviour {
  /** Number of turns of the event loop after which the hook returns. */
  readonly turns: number;
  readonly fails: boolean;
  /** Whether the hook returns only after its signal has been aborted. */
  readonly waitsForSignal: boolean;
}

interface Call {
  /** Number of turns of the event loop since the previous call. */
  readonly after: number;
  readonly call: "start" | "drain" | "stop" | "fail";
  readonly graceMs: number;
}

const behaviour = fc.record({
  turns: fc.nat(5),
  fails: fc.boolean(),
  waitsForSignal: fc.boolean(),
});

const calls = fc.array(
  fc.record({
    after: fc.oneof(fc.constant(0), fc.nat(4)),
    call: fc.constantFrom("start" as const, "start" as const, "drain" as const, "stop" as const, "fail" as const),
    graceMs: fc.constantFrom(0, 1, 60_000, Infinity),
  }),
  { maxLength: 50, size: "medium" },
);

const paths = new Set([
  "idle stopped",
  "idle starting running stopping stopped",
  "idle starting running draining stopping stopped",
  "idle starting stopping stopped",
]);

async function turns(count: number): Promise<void> {
  for (let n = 0; n < count; n += 1) await new Promise(setImmediate);
}

function signalled(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve());
  });
}

async function play(behaviours: Record<"start" | "drain" | "stop", Behaviour>, all: readonly Call[]) {
  const hooks: string[] = [];
  const failures: Error[] = [];
  let running = 0;
  const failed = (error: Error): void => {
    if (lifecycle.state !== "stopped") failures.push(error);
  };
  const runHook = async (hook: "start" | "drain" | "stop", signal?: AbortSignal): Promise<void> => {
    hooks.push(hook);
    const { turns: count, fails, waitsForSignal } = behaviours[hook];
    await turns(count);
    if (waitsForSignal && signal) await signalled(signal);
    if (!fails) return;
    const error = new Error(hook);
    if (hook !== "start" || !signal?.aborted) failed(error);
    throw error;
  };
  const lifecycle: Lifecycle = new Lifecycle(
    {
      start: async (signal) => {
        running += 1;
        await runHook("start", signal).finally(() => (running -= 1));
      },
      drain: (signal) => runHook("drain", signal),
      stop: () => {
        assert.equal(running, 0, "stop never overlaps start");
        return runHook("stop");
      },
    },
    { name: "the component" },
  );
  const path: LifecycleState[] = ["idle"];
  lifecycle.on("state", (state, previous) => {
    assert.equal(previous, path.at(-1));
    path.push(state);
  });

  const promises: Record<Call["call"], Set<Promise<unknown>>> = {
    start: new Set(),
    drain: new Set(),
    stop: new Set([lifecycle.stopped]),
    fail: new Set([lifecycle.stopped]),
  };
  const apply = ({ call, graceMs }: Omit<Call, "after">): void => {
    switch (call) {
      case "start":
      case "drain":
        promises[call].add(lifecycle[call]());
        break;
      case "stop":
        promises.stop.add(lifecycle.stop(graceMs));
        break;
      case "fail": {
        const error = new Error("failure");
        failed(error);
        promises.fail.add(lifecycle.fail(error, graceMs));
        break;
      }
    }
  };
  for (const { after, ...call } of all) {
    if (after > 0) await turns(after);
    apply(call);
  }
  apply({ call: "stop", graceMs: 0 });

  assert.equal(await lifecycle.stopped, failures[0] ?? null, "the first failure is the reason");
  for (const made of Object.values(promises)) {
    assert.ok(made.size <= 1, "many calls, one promise");
    await Promise.allSettled(made);
  }
  assert.ok(paths.has(path.join(" ")), path.join(" "));
  const expected = ["starting", "draining", "stopping"].filter((state) => path.some((entered) => entered === state));
  assert.deepEqual(
    hooks.map((hook) => ({ start: "starting", drain: "draining", stop: "stopping" })[hook]),
    expected,
    "each hook once, in its state",
  );
}

describe("a lifecycle", () => {
  it("ends in stopped with each hook called at most once, for any calls and failures", async (test) => {
    const unhandled: unknown[] = [];
    const note = (reason: unknown): void => {
      unhandled.push(reason);
    };
    process.on("unhandledRejection", note);
    test.after(() => process.off("unhandledRejection", note));
    const behaviours = fc.record({ start: behaviour, drain: behaviour, stop: behaviour });
    await fc.assert(fc.asyncProperty(behaviours, calls, play), { numRuns: 1000 });
    await turns(10);
    assert.deepEqual(unhandled, []);
  });
});
