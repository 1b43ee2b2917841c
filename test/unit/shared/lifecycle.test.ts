import assert from "node:assert/strict";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import { Lifecycle, type LifecycleHooks } from "../../../src/shared/lifecycle.js";

type Hook = "start" | "drain" | "stop";

/** A promise that the test settles. */
class Gate {
  readonly promise: Promise<void>;
  open!: () => void;
  fail!: (error: Error) => void;

  constructor() {
    this.promise = new Promise((resolve, reject) => {
      this.open = resolve;
      this.fail = reject;
    });
  }
}

/** Creates a lifecycle and records the states that it enters. */
function createLifecycle(hooks: LifecycleHooks) {
  const states: string[] = [];
  const log = { debug: ({ state }: { state?: string }) => state !== undefined && states.push(state), error: () => {} };
  return { lifecycle: new Lifecycle(hooks, { name: "the component", log }), states };
}

/** Creates a component whose hooks return at once, except those in `held`, which wait for their gates. */
function createComponent(...held: Hook[]) {
  const calls: Hook[] = [];
  const gates = { start: new Gate(), drain: new Gate(), stop: new Gate() };
  const received: { start?: AbortSignal; drain?: AbortSignal; graceMs?: number } = {};
  const enter = (hook: Hook): Promise<void> => {
    calls.push(hook);
    if (!held.includes(hook)) gates[hook].open();
    return gates[hook].promise;
  };
  const created = createLifecycle({
    start: (signal) => {
      received.start = signal;
      return enter("start");
    },
    drain: (signal, graceMs) => {
      Object.assign(received, { drain: signal, graceMs });
      return enter("drain");
    },
    stop: () => enter("stop"),
  });
  const reached = async (state: string): Promise<void> => {
    while (created.states.at(-1) !== state) await new Promise(setImmediate);
  };
  return { ...created, calls, gates, received, reached };
}

const unlimited = Infinity;
const startAborted = { code: "START_ABORTED", message: "the component was stopped before it ran" };

describe("a lifecycle", () => {
  it("goes through its states in order, and each is logged", async () => {
    const { lifecycle, calls, states } = createComponent();
    await lifecycle.start();
    assert.deepEqual(states, ["starting", "running"]);
    assert.equal(await lifecycle.stop(unlimited), null);
    assert.deepEqual(states, ["starting", "running", "draining", "stopping", "stopped"]);
    assert.deepEqual(calls, ["start", "drain", "stop"]);
  });

  it("does not start if it was stopped before, nor a second time", async () => {
    const never = createComponent();
    assert.equal(await never.lifecycle.stop(1000), null);
    await assert.rejects(never.lifecycle.start(), startAborted);
    assert.deepEqual(never.states, ["stopped"]);
    const once = createComponent();
    await once.lifecycle.start();
    await once.lifecycle.stop();
    await once.lifecycle.start();
    assert.deepEqual(once.calls, ["start", "stop"]);
  });

  it("may be stopped and started by its own start hook", async () => {
    const { lifecycle }: { lifecycle: Lifecycle } = createLifecycle({
      start: async () => {
        void lifecycle.stop();
        void lifecycle.start().catch(() => {});
      },
      drain: async () => {},
      stop: async () => {},
    });
    await assert.rejects(lifecycle.start(), startAborted);
    assert.equal(await lifecycle.stopped, null);
  });

  it("leaves no timer that keeps the process alive", async () => {
    const { lifecycle } = createComponent();
    await lifecycle.start();
    await lifecycle.stop(60_000);
    assert.ok(!process.getActiveResourcesInfo().includes("Timeout"));
  });
});

describe("a stop during start", () => {
  for (const end of ["returns", "throws"]) {
    it(`aborts the start, waits until it ${end}, and never runs`, async () => {
      const { lifecycle, calls, states, gates, received } = createComponent("start");
      const started = assert.rejects(lifecycle.start(), startAborted);
      assert.equal(received.start?.aborted, false);
      const stopped = lifecycle.stop();
      assert.equal(received.start?.aborted, true);
      await new Promise(setImmediate);
      assert.deepEqual(calls, ["start"]);
      if (end === "returns") gates.start.open();
      else gates.start.fail(new Error("aborted"));
      await started;
      assert.equal(await stopped, null);
      assert.deepEqual(states, ["starting", "stopping", "stopped"]);
    });
  }
});

/** Starts a component and stops it with this grace period. Its drain waits for the gate. */
async function draining(graceMs: number) {
  const component = createComponent("drain", "stop");
  component.gates.stop.open();
  await component.lifecycle.start();
  const stopped = component.lifecycle.stop(graceMs);
  await component.reached("draining");
  return { ...component, stopped };
}

describe("a drain", () => {
  it("is awaited during the grace period, and receives its length", async () => {
    const { calls, gates, received, stopped } = await draining(60_000);
    assert.ok(received.graceMs! > 0 && received.graceMs! <= 60_000);
    assert.deepEqual(calls, ["start", "drain"]);
    gates.drain.open();
    assert.equal(await stopped, null);
    assert.deepEqual(calls, ["start", "drain", "stop"]);
  });

  it("is not interrupted at once by a grace period that is longer than a timer can be", async () => {
    const { gates, received, stopped } = await draining(2 ** 31 + 10_000);
    // A timer that overflows fires after 1 ms, and before one that is set later for longer.
    await new Promise((resolve) => void setTimeout(resolve, 2));
    assert.equal(received.drain?.aborted, false);
    gates.drain.open();
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
    failed.gates.drain.fail(lost);
    assert.equal(await failed.stopped, lost);
    const interrupted = await draining(60_000);
    assert.equal(await interrupted.lifecycle.stop(), null);
    interrupted.gates.drain.fail(lost);
    await new Promise(setImmediate);
    assert.equal(await interrupted.lifecycle.stop(), null);
  });
});

describe("a failure", () => {
  it("of start calls the stop hook and is the reason", async () => {
    const { lifecycle, calls, gates } = createComponent("start");
    const refused = new Error("refused");
    const started = assert.rejects(lifecycle.start(), refused);
    gates.start.fail(refused);
    await started;
    assert.equal(await lifecycle.stopped, refused);
    assert.deepEqual(calls, ["start", "stop"]);
  });

  it("while running stops it without a drain, and the first one is the reason", async () => {
    const { lifecycle, calls } = createComponent();
    await lifecycle.start();
    const first = new Error("first");
    void lifecycle.fail(first);
    assert.equal(await lifecycle.fail(new Error("second")), first);
    assert.deepEqual(calls, ["start", "stop"]);
  });

  it("of stop is reported, and the state is still stopped", async () => {
    const { lifecycle, gates, states } = createComponent("stop");
    await lifecycle.start();
    const broken = new Error("broken");
    gates.stop.fail(broken);
    assert.equal(await lifecycle.stop(), broken);
    assert.equal(states.at(-1), "stopped");
    assert.equal(await lifecycle.fail(new Error("late")), broken);
  });

  it("may be thrown synchronously, and need not be an Error", async () => {
    const { lifecycle } = createLifecycle({
      start: () => {
        throw "refused";
      },
      drain: async () => {},
      stop: async () => {},
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
