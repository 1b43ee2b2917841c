import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Lifecycle, type LifecycleState } from "../../../src/shared/lifecycle.js";

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

/** Creates a component whose hooks return at once, except those in `held`, which wait for their gates. */
function createComponent(...held: Hook[]) {
  const calls: Hook[] = [];
  const states: LifecycleState[] = [];
  const gates = { start: new Gate(), drain: new Gate(), stop: new Gate() };
  const received: { start?: AbortSignal; drain?: AbortSignal; graceMs?: number } = {};
  const enter = (hook: Hook): Promise<void> => {
    calls.push(hook);
    if (!held.includes(hook)) gates[hook].open();
    return gates[hook].promise;
  };
  const lifecycle = new Lifecycle(
    {
      start: (signal) => {
        received.start = signal;
        return enter("start");
      },
      drain: (signal, graceMs) => {
        received.drain = signal;
        received.graceMs = graceMs;
        return enter("drain");
      },
      stop: () => enter("stop"),
    },
    { name: "the component" },
  );
  lifecycle.on("state", (state) => states.push(state));
  const reached = (state: LifecycleState): Promise<void> =>
    new Promise((resolve) => {
      if (lifecycle.state === state) resolve();
      lifecycle.on("state", (entered) => {
        if (entered === state) resolve();
      });
    });
  return { lifecycle, calls, states, gates, received, reached };
}

const unlimited = Infinity;

describe("a lifecycle", () => {
  it("goes through its states in order", async () => {
    const { lifecycle, calls, states } = createComponent();
    assert.equal(lifecycle.state, "idle");
    await lifecycle.start();
    assert.equal(lifecycle.state, "running");
    assert.equal(await lifecycle.stop(unlimited), null);
    assert.deepEqual(states, ["starting", "running", "draining", "stopping", "stopped"]);
    assert.deepEqual(calls, ["start", "drain", "stop"]);
  });

  it("emits each state with the previous one", async () => {
    const { lifecycle } = createComponent();
    const steps: string[] = [];
    lifecycle.on("state", (state, previous) => steps.push(`${previous} ${state}`));
    await lifecycle.start();
    await lifecycle.stop();
    assert.deepEqual(steps, ["idle starting", "starting running", "running stopping", "stopping stopped"]);
  });

  it("does everything once when called fifty times at once", async () => {
    const { lifecycle, calls, states } = createComponent();
    const fifty = Array.from({ length: 50 });
    const starts = fifty.map(() => lifecycle.start());
    const drains = fifty.map(() => lifecycle.drain());
    assert.equal(new Set(starts).size, 1);
    await Promise.all([...starts, ...drains]);
    assert.equal(lifecycle.state, "draining");
    const stops = fifty.map((_, n) => lifecycle.stop(n));
    assert.equal(new Set([...stops, lifecycle.stopped]).size, 1);
    await Promise.all(stops);
    assert.deepEqual(calls, ["start", "drain", "stop"]);
    assert.deepEqual(states, ["starting", "running", "draining", "stopping", "stopped"]);
  });

  it("never starts when it was stopped before", async () => {
    const { lifecycle, calls, states } = createComponent();
    assert.equal(await lifecycle.stop(1000), null);
    await assert.rejects(lifecycle.start(), {
      code: "START_ABORTED",
      message: "the component was stopped before it ran",
    });
    await lifecycle.drain();
    assert.deepEqual(states, ["stopped"]);
    assert.deepEqual(calls, []);
  });

  it("never starts when it was drained before", async () => {
    const { lifecycle, calls } = createComponent();
    await lifecycle.drain();
    assert.equal(await lifecycle.stopped, null);
    await assert.rejects(lifecycle.start(), { code: "START_ABORTED" });
    assert.deepEqual(calls, []);
  });

  it("does not start again once it has stopped", async () => {
    const { lifecycle, calls } = createComponent();
    await lifecycle.start();
    await lifecycle.stop();
    await lifecycle.start();
    assert.equal(lifecycle.state, "stopped");
    assert.deepEqual(calls, ["start", "stop"]);
  });
});

describe("a stop during start", () => {
  it("aborts the start, waits for it, and never runs", async () => {
    const { lifecycle, calls, states, gates, received } = createComponent("start");
    const started = assert.rejects(lifecycle.start(), { code: "START_ABORTED" });
    assert.equal(received.start?.aborted, false);
    const stopped = lifecycle.stop();
    assert.equal(received.start?.aborted, true);
    await new Promise(setImmediate);
    assert.deepEqual(calls, ["start"]);
    gates.start.open();
    await started;
    assert.equal(await stopped, null);
    assert.deepEqual(states, ["starting", "stopping", "stopped"]);
    assert.deepEqual(calls, ["start", "stop"]);
  });

  it("is no failure if the aborted start throws", async () => {
    const { lifecycle, gates } = createComponent("start");
    const started = assert.rejects(lifecycle.start(), { code: "START_ABORTED" });
    const stopped = lifecycle.stop();
    gates.start.fail(new Error("aborted"));
    await started;
    assert.equal(await stopped, null);
  });

  it("rejects the start with the failure that caused it", async () => {
    const { lifecycle, gates } = createComponent("start");
    const lost = new Error("lost");
    const started = assert.rejects(lifecycle.start(), lost);
    const stopped = lifecycle.fail(lost);
    gates.start.open();
    await started;
    assert.equal(await stopped, lost);
  });
});

describe("a drain", () => {
  it("requested during start begins after it", async () => {
    const { lifecycle, states, gates, received } = createComponent("start");
    const started = lifecycle.start();
    const drained = lifecycle.drain();
    assert.equal(received.start?.aborted, false);
    gates.start.open();
    await Promise.all([started, drained]);
    assert.deepEqual(states, ["starting", "running", "draining"]);
    assert.equal(received.graceMs, Infinity);
    assert.equal(await lifecycle.stop(), null);
  });

  it("is awaited during the grace period, and receives its length", async () => {
    const { lifecycle, calls, gates, received, reached } = createComponent("drain");
    await lifecycle.start();
    const stopped = lifecycle.stop(60_000);
    await reached("draining");
    assert.ok(received.graceMs! > 0 && received.graceMs! <= 60_000);
    assert.deepEqual(calls, ["start", "drain"]);
    gates.drain.open();
    assert.equal(await stopped, null);
    assert.deepEqual(calls, ["start", "drain", "stop"]);
  });

  it("is not interrupted at once by a grace period that is longer than a timer can be", async () => {
    const { lifecycle, gates, received, reached } = createComponent("drain");
    await lifecycle.start();
    const stopped = lifecycle.stop(2 ** 31 + 10_000);
    await reached("draining");
    // A timer that overflows fires after 1 ms, and before one that is set later for longer.
    await new Promise((resolve) => void setTimeout(resolve, 2));
    assert.equal(received.drain?.aborted, false);
    gates.drain.open();
    assert.equal(await stopped, null);
  });

  it("is interrupted when the grace period is over", async () => {
    const { lifecycle, calls, received } = createComponent("drain");
    await lifecycle.start();
    assert.equal(await lifecycle.stop(1), null);
    assert.equal(received.drain?.aborted, true);
    assert.deepEqual(calls, ["start", "drain", "stop"]);
    await lifecycle.drain();
  });

  it("is interrupted by a second stop with a shorter grace period", async () => {
    const { lifecycle, received, reached } = createComponent("drain");
    await lifecycle.start();
    const stopped = lifecycle.stop(60_000);
    await reached("draining");
    assert.equal(lifecycle.stop(0), stopped);
    assert.equal(received.drain?.aborted, true);
    assert.equal(await stopped, null);
  });

  it("is not extended by a second stop with a longer grace period", async (test) => {
    test.mock.timers.enable({ apis: ["setTimeout"] });
    const { lifecycle, received, reached } = createComponent("drain");
    await lifecycle.start();
    const stopped = lifecycle.stop(1000);
    await reached("draining");
    void lifecycle.stop(60_000);
    test.mock.timers.tick(1000);
    assert.equal(received.drain?.aborted, true);
    assert.equal(await stopped, null);
  });

  it("requested first is interrupted by a stop without a grace period", async () => {
    const { lifecycle, states, reached } = createComponent("drain");
    await lifecycle.start();
    const drained = lifecycle.drain();
    await reached("draining");
    assert.equal(await lifecycle.stop(), null);
    await drained;
    assert.deepEqual(states, ["starting", "running", "draining", "stopping", "stopped"]);
  });

  it("that fails stops the component with that reason", async () => {
    const { lifecycle, gates } = createComponent("drain");
    await lifecycle.start();
    const drained = lifecycle.drain();
    const lost = new Error("lost");
    gates.drain.fail(lost);
    await drained;
    assert.equal(await lifecycle.stopped, lost);
  });

  it("that fails after it was interrupted is ignored", async () => {
    const { lifecycle, gates, reached } = createComponent("drain", "stop");
    await lifecycle.start();
    const stopped = lifecycle.stop(60_000);
    await reached("draining");
    void lifecycle.stop();
    await reached("stopping");
    gates.stop.open();
    assert.equal(await stopped, null);
    gates.drain.fail(new Error("too late"));
    await new Promise(setImmediate);
    assert.equal(lifecycle.reason, null);
  });
});

describe("a failure", () => {
  it("of start calls the stop hook and is the reason", async () => {
    const { lifecycle, calls, states, gates } = createComponent("start");
    const refused = new Error("refused");
    const started = assert.rejects(lifecycle.start(), refused);
    gates.start.fail(refused);
    await started;
    assert.equal(await lifecycle.stopped, refused);
    assert.equal(lifecycle.reason, refused);
    assert.deepEqual(calls, ["start", "stop"]);
    assert.deepEqual(states, ["starting", "stopping", "stopped"]);
  });

  it("while running stops it without a drain, and the first one is the reason", async () => {
    const { lifecycle, calls } = createComponent();
    await lifecycle.start();
    const first = new Error("first");
    void lifecycle.fail(first);
    assert.equal(await lifecycle.fail(new Error("second")), first);
    assert.deepEqual(calls, ["start", "stop"]);
  });

  it("may leave running work a grace period", async () => {
    const { lifecycle, calls } = createComponent();
    await lifecycle.start();
    const lost = new Error("lock lost");
    assert.equal(await lifecycle.fail(lost, 60_000), lost);
    assert.deepEqual(calls, ["start", "drain", "stop"]);
  });

  it("of stop is reported, and the state is still stopped", async () => {
    const { lifecycle, gates } = createComponent("stop");
    await lifecycle.start();
    const broken = new Error("broken");
    gates.stop.fail(broken);
    assert.equal(await lifecycle.stop(), broken);
    assert.equal(lifecycle.state, "stopped");
  });

  it("after the stop changes nothing", async () => {
    const { lifecycle } = createComponent();
    await lifecycle.start();
    await lifecycle.stop();
    assert.equal(await lifecycle.fail(new Error("late")), null);
    assert.equal(lifecycle.reason, null);
  });

  it("that nobody awaits is no unhandled rejection", async () => {
    const { lifecycle, gates } = createComponent("start");
    let unhandled = 0;
    const count = (): void => {
      unhandled += 1;
    };
    process.on("unhandledRejection", count);
    void lifecycle.start();
    gates.start.fail(new Error("refused"));
    await lifecycle.stopped;
    await new Promise(setImmediate);
    process.off("unhandledRejection", count);
    assert.equal(unhandled, 0);
  });

  it("of a listener only stops the component", async () => {
    const { lifecycle, calls } = createComponent();
    const bug = new Error("bug");
    lifecycle.on("state", (state) => {
      if (state === "running") throw bug;
    });
    await lifecycle.start();
    assert.equal(await lifecycle.stopped, bug);
    assert.deepEqual(calls, ["start", "stop"]);
  });

  it("that is not an Error is wrapped in one", async () => {
    const lifecycle = new Lifecycle(
      { start: () => Promise.reject("refused"), drain: async () => {}, stop: async () => {} },
      { name: "the component" },
    );
    await assert.rejects(lifecycle.start(), { code: "INTERNAL", cause: "refused" });
  });

  it("thrown synchronously by a hook is like any other", async () => {
    const broken = new Error("broken");
    const lifecycle = new Lifecycle(
      {
        start: () => {
          throw broken;
        },
        drain: async () => {},
        stop: async () => {},
      },
      { name: "the component" },
    );
    await assert.rejects(lifecycle.start(), broken);
    assert.equal(await lifecycle.stopped, broken);
  });
});

describe("reentrant calls", () => {
  it("the start hook may stop the component", async () => {
    const lifecycle: Lifecycle = new Lifecycle(
      {
        start: async () => {
          void lifecycle.stop();
          void lifecycle.start().catch(() => {});
        },
        drain: async () => {},
        stop: async () => {},
      },
      { name: "the component" },
    );
    await assert.rejects(lifecycle.start(), { code: "START_ABORTED" });
    assert.equal(await lifecycle.stopped, null);
  });

  it("a listener may stop the component in any state", async () => {
    for (const when of ["starting", "running", "draining", "stopping", "stopped"]) {
      const { lifecycle } = createComponent();
      lifecycle.on("state", (state) => {
        if (state === when) void lifecycle.stop();
      });
      void lifecycle.start().catch(() => {});
      void lifecycle.drain();
      if (when === "stopping" || when === "stopped") void lifecycle.stop();
      assert.equal(await lifecycle.stopped, null);
    }
  });

  it("no timer keeps the process alive after the stop", async () => {
    const { lifecycle } = createComponent();
    await lifecycle.start();
    await lifecycle.stop(60_000);
    const timers = process.getActiveResourcesInfo().filter((resource) => resource === "Timeout");
    assert.deepEqual(timers, []);
  });
});
