import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it, mock, type TestContext } from "node:test";
import { PgTaskError } from "../../../../src/shared/errors.js";
import { HandshakeReceiver } from "../../../../src/shared/ipc/handshake/receiver.js";
import { HandshakeSender } from "../../../../src/shared/ipc/handshake/sender.js";
import {
  generations,
  packWord,
  SlotState,
  wordIndex,
} from "../../../../src/shared/ipc/handshake/slots.js";
import type { SlotReference } from "../../../../src/shared/ipc/messages.js";

const minute = 60_000;

/** A channel whose doorbell rings into an array. */
function channel(options?: { slots?: number; slotBytes?: number }) {
  const sender = new HandshakeSender(options);
  const receiver = new HandshakeReceiver(sender.buffer);
  const rung: SlotReference[] = [];
  const send = (payload: object, timeoutMs = minute): Promise<void> =>
    sender.send(payload, (reference) => rung.push(reference), timeoutMs);
  return { sender, receiver, rung, send };
}

const ackTimeout = { name: "PgTaskError", code: "PROTOCOL_ACK_TIMEOUT" };

/** What Atomics.waitAsync promised so far. */
function watchWaits(test: TestContext): Promise<string>[] {
  const waits: Promise<string>[] = [];
  const { waitAsync } = Atomics;
  test.mock.method(Atomics, "waitAsync", (array: Int32Array, index: number, value: number) => {
    const wait = waitAsync(array, index, value);
    if (wait.async) waits.push(wait.value);
    return wait;
  });
  return waits;
}

describe("a handover", () => {
  it("resolves once the child has taken the payload", async () => {
    const { sender, receiver, rung, send } = channel();
    const sent = send({ a: 1 });
    assert.equal(sender.pending, 1);
    assert.deepEqual(receiver.take(rung[0]!), { a: 1 });
    await sent;
    assert.equal(sender.pending, 0);
  });

  it("gives its payload once", async () => {
    const { receiver, rung, send } = channel();
    const sent = send({ a: 1 });
    receiver.take(rung[0]!);
    assert.equal(receiver.take(rung[0]!), null);
    await sent;
    assert.equal(receiver.take(rung[0]!), null);
  });

  it("carries the payload as it was when it was sent", async () => {
    const { receiver, rung, send } = channel({ slots: 1 });
    const first = send({});
    const payload = { value: "then" };
    const second = send(payload);
    payload.value = "later";
    receiver.take(rung[0]!);
    await first;
    assert.deepEqual(receiver.take(rung[1]!), { value: "then" });
    await second;
  });

  const payloads: Record<string, object> = {
    "an empty object": {},
    "an empty array": [],
    "empty strings": { "": "" },
    "astral characters, lone surrogates and zeros": { "😀": "𝄞\ud800\0é", list: [null, "\udc00"] },
  };
  for (const [name, payload] of Object.entries(payloads)) {
    it(`carries ${name}`, async () => {
      const { receiver, rung, send } = channel();
      const sent = send(payload);
      assert.deepEqual(receiver.take(rung[0]!), payload);
      await sent;
    });
  }

  it("leaves nothing of a longer payload behind a shorter one", async () => {
    const { receiver, rung, send } = channel({ slots: 1 });
    for (const [index, payload] of [{ text: "x".repeat(1000) }, { text: "y" }].entries()) {
      const sent = send(payload);
      assert.deepEqual(receiver.take(rung[index]!), payload);
      await sent;
    }
  });

  it("counts bytes, not characters, when it decides whether a slot is large enough", async () => {
    const { receiver, rung, send } = channel({ slots: 2, slotBytes: 20 });
    const fits = [["é".repeat(8)], ["😀".repeat(4)]];
    const exceeds = [["é".repeat(8) + "x"], ["😀".repeat(4) + "x"]];
    for (const payload of [...fits, ...exceeds]) {
      const sent = send(payload);
      assert.deepEqual(receiver.take(rung.at(-1)!), payload);
      await sent;
    }
    assert.deepEqual(
      rung.map((reference) => reference.overflow !== undefined),
      [false, false, true, true],
    );
  });

  it("goes on when the generation of its slot wraps around", async () => {
    const { sender, receiver, rung, send } = channel({ slots: 1 });
    const words = new Int32Array(sender.buffer, 0, wordIndex(0) + 1);
    words[wordIndex(0)] = packWord(generations - 3, SlotState.free);
    for (let n = 0; n < 5; n += 1) {
      const sent = send({ n });
      assert.deepEqual(receiver.take(rung[n]!), { n });
      await sent;
    }
    assert.deepEqual(
      rung.map((reference) => reference.generation),
      [generations - 2, generations - 1, 0, 1, 2],
    );
  });

  it("refuses what JSON cannot carry, and holds no slot for it", async () => {
    const { sender, send } = channel();
    const circular: { self?: object } = {};
    circular.self = circular;
    for (const payload of [circular, () => 1, { toJSON: () => null }]) {
      await assert.rejects(send(payload), { code: "PROTOCOL_PAYLOAD" });
    }
    assert.equal(sender.pending, 0);
  });

  it("rejects with the doorbell's error and takes the payload back", async () => {
    const { sender, receiver, rung, send } = channel({ slots: 1 });
    let reference: SlotReference | undefined;
    const unheard = sender.send(
      {},
      (given) => {
        reference = given;
        throw new TypeError("could not be cloned");
      },
      minute,
    );
    await assert.rejects(unheard, { message: "could not be cloned" });
    assert.equal(receiver.take(reference!), null);
    assert.equal(sender.pending, 0);
    const next = send({});
    assert.equal(sender.pending, 1);
    assert.deepEqual(receiver.take(rung[0]!), {});
    await next;
  });

  it("refuses a reference to a slot that does not exist", () => {
    const { receiver } = channel({ slots: 2 });
    for (const slot of [-1, 2, 0.5]) {
      assert.throws(() => receiver.take({ slot, generation: 1 }), {
        code: "PROTOCOL_PAYLOAD",
        message: `expected a slot from 0 to 1, got ${slot}`,
      });
    }
  });
});

describe("when all slots are in use", () => {
  it("handovers wait and are published in the order they came", async () => {
    const { sender, receiver, rung, send } = channel({ slots: 2 });
    const sent = [0, 1, 2, 3, 4].map((n) => send({ n }));
    const order: unknown[] = [];
    assert.equal(sender.pending, 5);
    for (let n = 0; n < 5; n += 1) {
      order.push(receiver.take(rung[n]!));
      await sent[n];
    }
    assert.deepEqual(order, [{ n: 0 }, { n: 1 }, { n: 2 }, { n: 3 }, { n: 4 }]);
  });
});

describe("a child that is late", () => {
  beforeEach(() => mock.timers.enable({ apis: ["setTimeout"] }));
  afterEach(() => mock.timers.reset());

  it("gets nothing after the timeout, and the parent an error", async () => {
    const { sender, receiver, rung, send } = channel();
    const sent = assert.rejects(send({ a: 1 }, 1000), {
      ...ackTimeout,
      message:
        "expected the thread to take its parameters within 1000 ms, got no answer; they have been taken back",
    });
    mock.timers.tick(1000);
    await sent;
    assert.equal(receiver.take(rung[0]!), null);
    assert.equal(sender.pending, 0);
  });

  it("never gets the payload that came into its slot meanwhile", async () => {
    const { receiver, rung, send } = channel({ slots: 1 });
    const first = assert.rejects(send({ n: 1 }, 1000), ackTimeout);
    const second = send({ n: 2 }, 5000);
    mock.timers.tick(1000);
    await first;
    assert.equal(rung.length, 2);
    assert.equal(rung[0]!.slot, rung[1]!.slot);
    assert.equal(receiver.take(rung[0]!), null);
    assert.deepEqual(receiver.take(rung[1]!), { n: 2 });
    await second;
  });

  it("gets no overflow buffer that was taken back", async () => {
    const { receiver, rung, send } = channel({ slotBytes: 8 });
    const sent = assert.rejects(send({ text: "longer than a slot" }, 10), ackTimeout);
    mock.timers.tick(10);
    await sent;
    assert.notEqual(rung[0]!.overflow, undefined);
    assert.equal(receiver.take(rung[0]!), null);
  });

  it("is in time when it takes before the parent's timer runs, whatever the parent hears first", async () => {
    const { receiver, rung, send } = channel();
    const sent = send({ a: 1 }, 10);
    assert.deepEqual(receiver.take(rung[0]!), { a: 1 });
    mock.timers.tick(10);
    await sent;
  });

  it("is given the time from ringing, not from waiting for a slot", async () => {
    const { rung, receiver, send } = channel({ slots: 1 });
    const first = send({ n: 1 }, 1000);
    const second = send({ n: 2 }, 1000);
    mock.timers.tick(900);
    receiver.take(rung[0]!);
    await first;
    mock.timers.tick(900);
    assert.deepEqual(receiver.take(rung[1]!), { n: 2 });
    await second;
  });
});

describe("a failed channel", () => {
  it("rejects what waits, what is published and what comes later, and gives the child nothing", async () => {
    const { sender, receiver, rung, send } = channel({ slots: 2 });
    const dead = new PgTaskError("THREAD_DIED", "the thread ended");
    const sent = [0, 1, 2, 3].map((n) => assert.rejects(send({ n }), dead));
    sender.fail(dead);
    await Promise.all(sent);
    await assert.rejects(send({ n: 4 }), dead);
    assert.equal(rung.length, 2);
    assert.deepEqual(
      rung.map((reference) => receiver.take(reference)),
      [null, null],
    );
    assert.equal(sender.pending, 0);
  });

  it("still resolves what the child had taken", async () => {
    const { sender, receiver, rung, send } = channel();
    const [taken, left] = [send({ n: 1 }), send({ n: 2 })];
    receiver.take(rung[0]!);
    const dead = new Error("dead");
    sender.fail(dead);
    await taken;
    await assert.rejects(left, dead);
  });

  it("keeps its first reason", async () => {
    const { sender, send } = channel();
    sender.fail(new Error("first"));
    sender.fail(new Error("second"));
    await assert.rejects(send({}), { message: "first" });
  });
});

describe("between the steps", () => {
  it("a payload taken back after it was copied is not given", async (test) => {
    const { sender, receiver, rung, send } = channel();
    const sent = assert.rejects(send({ a: 1 }), { message: "dead" });
    const { compareExchange } = Atomics;
    let acknowledging = true;
    test.mock.method(
      Atomics,
      "compareExchange",
      (array: Int32Array, index: number, expected: number, next: number) => {
        if (acknowledging) {
          acknowledging = false;
          sender.fail(new Error("dead"));
        }
        return compareExchange(array, index, expected, next);
      },
    );
    assert.equal(receiver.take(rung[0]!), null);
    await sent;
  });

  it("a wake-up meant for an earlier generation is not mistaken for an answer", async () => {
    mock.timers.enable({ apis: ["setTimeout"] });
    try {
      const { sender, receiver, rung, send } = channel({ slots: 1 });
      const sent = send({ a: 1 });
      const woken = Atomics.notify(
        new Int32Array(sender.buffer, 0, wordIndex(0) + 1),
        wordIndex(0),
      );
      assert.equal(woken, 1);
      await new Promise(setImmediate);
      assert.equal(sender.pending, 1);
      receiver.take(rung[0]!);
      await sent;
    } finally {
      mock.timers.reset();
    }
  });
});

describe("no wait is left behind", () => {
  beforeEach(() => mock.timers.enable({ apis: ["setTimeout"] }));
  afterEach(() => mock.timers.reset());

  it("by a handover that was taken back", async (test) => {
    const waits = watchWaits(test);
    const { send } = channel();
    const sent = assert.rejects(send({}, 10), ackTimeout);
    mock.timers.tick(10);
    await sent;
    assert.deepEqual(await Promise.all(waits), ["ok"]);
  });

  it("by a handover seen as taken before the child's wake-up came", async (test) => {
    const waits = watchWaits(test);
    const { receiver, rung, send } = channel();
    const sent = send({}, 10);
    const notifying = test.mock.method(Atomics, "notify");
    notifying.mock.mockImplementationOnce(() => 0);
    receiver.take(rung[0]!);
    mock.timers.tick(10);
    await sent;
    assert.deepEqual(await Promise.all(waits), ["ok"]);
  });
});
