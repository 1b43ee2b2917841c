import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it, mock, type TestContext } from "node:test";
import { PgTaskError } from "../../../../../src/shared/errors.js";
import { HandshakeReceiver } from "../../../../../src/shared/ipc/handshake/receiver.js";
import { HandshakeSender } from "../../../../../src/shared/ipc/handshake/sender.js";
import {
  generations,
  packWord,
  SlotState,
  wordIndex,
  type SlotReference,
} from "../../../../../src/shared/ipc/handshake/slots.js";

const minute = 60_000;

/** Creates a channel that collects the references that it sends. */
function channel(options?: { slots?: number; slotBytes?: number }) {
  const sender = new HandshakeSender(options);
  const receiver = new HandshakeReceiver(sender.buffer);
  const references: SlotReference[] = [];
  const send = (payload: object, timeoutMs = minute): Promise<void> =>
    sender.send(payload, (reference) => references.push(reference), timeoutMs);
  return { sender, receiver, references, send };
}

const ackTimeout = { name: "PgTaskError", code: "PROTOCOL_ACK_TIMEOUT" };

/** Collects the promises that Atomics.waitAsync returns. */
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

describe("a handshake", () => {
  it("resolves once the thread has taken the payload", async () => {
    const { sender, receiver, references, send } = channel();
    const sent = send({ a: 1 });
    assert.equal(sender.pending, 1);
    assert.deepEqual(receiver.take(references[0]!), { a: 1 });
    await sent;
    assert.equal(sender.pending, 0);
  });

  it("delivers its payload once", async () => {
    const { receiver, references, send } = channel();
    const sent = send({ a: 1 });
    receiver.take(references[0]!);
    assert.equal(receiver.take(references[0]!), null);
    await sent;
    assert.equal(receiver.take(references[0]!), null);
  });

  it("delivers the payload as it was when sent", async () => {
    const { receiver, references, send } = channel({ slots: 1 });
    const first = send({});
    const payload = { value: "then" };
    const second = send(payload);
    payload.value = "later";
    receiver.take(references[0]!);
    await first;
    assert.deepEqual(receiver.take(references[1]!), { value: "then" });
    await second;
  });

  const payloads: Record<string, object> = {
    "an empty object": {},
    "an empty array": [],
    "empty strings": { "": "" },
    "astral characters, lone surrogates and zeros": { "😀": "𝄞\ud800\0é", list: [null, "\udc00"] },
  };
  for (const [name, payload] of Object.entries(payloads)) {
    it(`delivers ${name}`, async () => {
      const { receiver, references, send } = channel();
      const sent = send(payload);
      assert.deepEqual(receiver.take(references[0]!), payload);
      await sent;
    });
  }

  it("leaves no rest of a longer payload after a shorter one", async () => {
    const { receiver, references, send } = channel({ slots: 1 });
    for (const [index, payload] of [{ text: "x".repeat(1000) }, { text: "y" }].entries()) {
      const sent = send(payload);
      assert.deepEqual(receiver.take(references[index]!), payload);
      await sent;
    }
  });

  it("measures payloads in bytes, not characters", async () => {
    const { receiver, references, send } = channel({ slots: 2, slotBytes: 20 });
    const fits = [["é".repeat(8)], ["😀".repeat(4)]];
    const exceeds = [["é".repeat(8) + "x"], ["😀".repeat(4) + "x"]];
    for (const payload of [...fits, ...exceeds]) {
      const sent = send(payload);
      assert.deepEqual(receiver.take(references.at(-1)!), payload);
      await sent;
    }
    assert.deepEqual(
      references.map((reference) => reference.overflow !== undefined),
      [false, false, true, true],
    );
  });

  it("survives the wrap-around of a slot's generation", async () => {
    const { sender, receiver, references, send } = channel({ slots: 1 });
    const words = new Int32Array(sender.buffer, 0, wordIndex(0) + 1);
    words[wordIndex(0)] = packWord(generations - 3, SlotState.free);
    for (let n = 0; n < 5; n += 1) {
      const sent = send({ n });
      assert.deepEqual(receiver.take(references[n]!), { n });
      await sent;
    }
    assert.deepEqual(
      references.map((reference) => reference.generation),
      [generations - 2, generations - 1, 0, 1, 2],
    );
  });

  it("rejects what JSON cannot represent, without occupying a slot", async () => {
    const { sender, send } = channel();
    const circular: { self?: object } = {};
    circular.self = circular;
    for (const payload of [circular, () => 1, { toJSON: () => null }]) {
      await assert.rejects(send(payload), { code: "PROTOCOL_PAYLOAD" });
    }
    assert.equal(sender.pending, 0);
  });

  it("rejects with the error of the send callback and withdraws the payload", async () => {
    const { sender, receiver, references, send } = channel({ slots: 1 });
    let reference: SlotReference | undefined;
    const rejected = sender.send(
      {},
      (given) => {
        reference = given;
        throw new TypeError("could not be cloned");
      },
      minute,
    );
    await assert.rejects(rejected, { message: "could not be cloned" });
    assert.equal(receiver.take(reference!), null);
    assert.equal(sender.pending, 0);
    const next = send({});
    assert.equal(sender.pending, 1);
    assert.deepEqual(receiver.take(references[0]!), {});
    await next;
  });

  it("rejects a reference to a slot that does not exist", () => {
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
  it("handshakes wait and are published in order", async () => {
    const { sender, receiver, references, send } = channel({ slots: 2 });
    const sent = [0, 1, 2, 3, 4].map((n) => send({ n }));
    const order: unknown[] = [];
    assert.equal(sender.pending, 5);
    for (let n = 0; n < 5; n += 1) {
      order.push(receiver.take(references[n]!));
      await sent[n];
    }
    assert.deepEqual(order, [{ n: 0 }, { n: 1 }, { n: 2 }, { n: 3 }, { n: 4 }]);
  });
});

describe("a late thread", () => {
  beforeEach(() => mock.timers.enable({ apis: ["setTimeout"] }));
  afterEach(() => mock.timers.reset());

  it("gets nothing after the timeout, which the sender reports", async () => {
    const { sender, receiver, references, send } = channel();
    const sent = assert.rejects(send({ a: 1 }, 1000), {
      ...ackTimeout,
      message: "expected the thread to take its parameters within 1000 ms, got no answer; they have been withdrawn",
    });
    mock.timers.tick(1000);
    await sent;
    assert.equal(receiver.take(references[0]!), null);
    assert.equal(sender.pending, 0);
  });

  it("never gets a later payload of the same slot", async () => {
    const { receiver, references, send } = channel({ slots: 1 });
    const first = assert.rejects(send({ n: 1 }, 1000), ackTimeout);
    const second = send({ n: 2 }, 5000);
    mock.timers.tick(1000);
    await first;
    assert.equal(references.length, 2);
    assert.equal(references[0]!.slot, references[1]!.slot);
    assert.equal(receiver.take(references[0]!), null);
    assert.deepEqual(receiver.take(references[1]!), { n: 2 });
    await second;
  });

  it("gets no overflow buffer that was withdrawn", async () => {
    const { receiver, references, send } = channel({ slotBytes: 8 });
    const sent = assert.rejects(send({ text: "longer than a slot" }, 10), ackTimeout);
    mock.timers.tick(10);
    await sent;
    assert.notEqual(references[0]!.overflow, undefined);
    assert.equal(receiver.take(references[0]!), null);
  });

  it("is in time if it takes the payload before the sender's timer runs", async () => {
    const { receiver, references, send } = channel();
    const sent = send({ a: 1 }, 10);
    assert.deepEqual(receiver.take(references[0]!), { a: 1 });
    mock.timers.tick(10);
    await sent;
  });

  it("has the full timeout from publication, not from waiting for a slot", async () => {
    const { references, receiver, send } = channel({ slots: 1 });
    const first = send({ n: 1 }, 1000);
    const second = send({ n: 2 }, 1000);
    mock.timers.tick(900);
    receiver.take(references[0]!);
    await first;
    mock.timers.tick(900);
    assert.deepEqual(receiver.take(references[1]!), { n: 2 });
    await second;
  });
});

describe("a failed channel", () => {
  it("rejects waiting, published and later payloads, and delivers nothing", async () => {
    const { sender, receiver, references, send } = channel({ slots: 2 });
    const dead = new PgTaskError("THREAD_DIED", "the thread ended");
    const sent = [0, 1, 2, 3].map((n) => assert.rejects(send({ n }), dead));
    sender.fail(dead);
    await Promise.all(sent);
    await assert.rejects(send({ n: 4 }), dead);
    assert.equal(references.length, 2);
    assert.deepEqual(
      references.map((reference) => receiver.take(reference)),
      [null, null],
    );
    assert.equal(sender.pending, 0);
  });

  it("still resolves what the thread had taken", async () => {
    const { sender, receiver, references, send } = channel();
    const [taken, untaken] = [send({ n: 1 }), send({ n: 2 })];
    receiver.take(references[0]!);
    const dead = new Error("dead");
    sender.fail(dead);
    await taken;
    await assert.rejects(untaken, dead);
  });

  it("keeps its first reason", async () => {
    const { sender, send } = channel();
    sender.fail(new Error("first"));
    sender.fail(new Error("second"));
    await assert.rejects(send({}), { message: "first" });
  });
});

describe("races", () => {
  it("a payload withdrawn after it was copied is not delivered", async (test) => {
    const { sender, receiver, references, send } = channel();
    const sent = assert.rejects(send({ a: 1 }), { message: "dead" });
    const { compareExchange } = Atomics;
    let acknowledging = true;
    test.mock.method(Atomics, "compareExchange", (array: Int32Array, index: number, expected: number, next: number) => {
      if (acknowledging) {
        acknowledging = false;
        sender.fail(new Error("dead"));
      }
      return compareExchange(array, index, expected, next);
    });
    assert.equal(receiver.take(references[0]!), null);
    await sent;
  });

  it("a wake-up for an earlier generation is not taken for an answer", async () => {
    mock.timers.enable({ apis: ["setTimeout"] });
    try {
      const { sender, receiver, references, send } = channel({ slots: 1 });
      const sent = send({ a: 1 });
      const woken = Atomics.notify(new Int32Array(sender.buffer, 0, wordIndex(0) + 1), wordIndex(0));
      assert.equal(woken, 1);
      await new Promise(setImmediate);
      assert.equal(sender.pending, 1);
      receiver.take(references[0]!);
      await sent;
    } finally {
      mock.timers.reset();
    }
  });
});

describe("no Atomics.waitAsync stays pending", () => {
  beforeEach(() => mock.timers.enable({ apis: ["setTimeout"] }));
  afterEach(() => mock.timers.reset());

  it("after a payload was withdrawn", async (test) => {
    const waits = watchWaits(test);
    const { send } = channel();
    const sent = assert.rejects(send({}, 10), ackTimeout);
    mock.timers.tick(10);
    await sent;
    assert.deepEqual(await Promise.all(waits), ["ok"]);
  });

  it("after a payload is seen to be taken before the thread's wake-up", async (test) => {
    const waits = watchWaits(test);
    const { receiver, references, send } = channel();
    const sent = send({}, 10);
    const notifying = test.mock.method(Atomics, "notify");
    notifying.mock.mockImplementationOnce(() => 0);
    receiver.take(references[0]!);
    mock.timers.tick(10);
    await sent;
    assert.deepEqual(await Promise.all(waits), ["ok"]);
  });
});
