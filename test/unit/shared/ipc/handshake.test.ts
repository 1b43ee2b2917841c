import assert from "node:assert/strict";
import { once } from "node:events";
import { afterEach, beforeEach, describe, it, mock, type TestContext } from "node:test";
import { Worker } from "node:worker_threads";
import { HandshakeSender, takePayload, type Handover } from "../../../../src/shared/ipc/handshake.js";
import type { ChildData, ChildRequest } from "../../../support/handshakeChild.js";

const minute = 60_000;

/** Creates a channel that collects what it posts. */
function channel() {
  const sender = new HandshakeSender();
  const posted: Handover[] = [];
  const send = (payload: object, timeoutMs = minute): Promise<void> =>
    sender.send(payload, (handover) => posted.push(handover), timeoutMs);
  return { sender, posted, send };
}

const ackTimeout = {
  code: "PROTOCOL_ACK_TIMEOUT",
  message: "expected the thread to take its parameters within 1000 ms, got no answer; they have been withdrawn",
};

describe("a handshake", () => {
  it("resolves once the thread has taken the payload, which it gets as it was when sent", async () => {
    const { posted, send } = channel();
    for (const payload of [{}, [], { "": "" }, { "😀": "𝄞\ud800\0é", list: [null, "\udc00"] }]) {
      const before = structuredClone(payload);
      const sent = send(payload);
      Object.assign(payload, { later: true });
      assert.deepEqual(takePayload(posted.at(-1)!), before);
      await sent;
    }
  });

  it("delivers its payload once", async () => {
    const { posted, send } = channel();
    const sent = send({ a: 1 });
    takePayload(posted[0]!);
    assert.equal(takePayload(posted[0]!), null);
    await sent;
  });
});

describe("a late thread", () => {
  beforeEach(() => mock.timers.enable({ apis: ["setTimeout"] }));
  afterEach(() => mock.timers.reset());

  it("gets nothing after the timeout, which the sender reports", async () => {
    const { posted, send } = channel();
    const sent = [send({ n: 1 }, 1000), send({ n: 2 }, 5000)].map((each) => assert.rejects(each, ackTimeout));
    mock.timers.tick(1000);
    await Promise.all(sent);
    await assert.rejects(send({ n: 3 }), ackTimeout);
    assert.deepEqual(
      posted.map((handover) => takePayload(handover)),
      [null, null],
    );
  });

  it("is in time if it takes the payload before the sender's timer runs", async () => {
    const { posted, send } = channel();
    const sent = send({ a: 1 }, 10);
    assert.deepEqual(takePayload(posted[0]!), { a: 1 });
    mock.timers.tick(10);
    await sent;
  });

  it("has the full time for each payload", async () => {
    const { posted, send } = channel();
    const first = send({ n: 1 }, 1000);
    mock.timers.tick(900);
    const second = send({ n: 2 }, 1000);
    takePayload(posted[0]!);
    await first;
    mock.timers.tick(900);
    assert.deepEqual(takePayload(posted[1]!), { n: 2 });
    await second;
  });
});

describe("a failed channel", () => {
  it("resolves what the thread had taken, and rejects the rest with the first reason", async () => {
    const { sender, posted, send } = channel();
    const [taken, untaken] = [send({ n: 1 }), send({ n: 2 })];
    takePayload(posted[0]!);
    const dead = new Error("dead");
    sender.fail(dead);
    sender.fail(new Error("second"));
    await taken;
    await assert.rejects(untaken, dead);
    await assert.rejects(send({}), dead);
    assert.equal(takePayload(posted[1]!), null);
  });

  it("delivers nothing that the thread is about to take", async (test) => {
    const { sender, posted, send } = channel();
    const sent = assert.rejects(send({ a: 1 }), { message: "dead" });
    const { compareExchange } = Atomics;
    const exchange = (array: Int32Array, index: number, expected: number, next: number): number => {
      sender.fail(new Error("dead"));
      return compareExchange(array, index, expected, next);
    };
    test.mock.method(Atomics, "compareExchange", exchange, { times: 1 });
    assert.equal(takePayload(posted[0]!), null);
    await sent;
  });

  it("leaves no Atomics.waitAsync pending, nor does a thread that wakes late", async (test) => {
    const waits: Promise<string>[] = [];
    const { waitAsync } = Atomics;
    test.mock.method(Atomics, "waitAsync", (array: Int32Array, index: number, value: number) => {
      const wait = waitAsync(array, index, value);
      if (wait.async) waits.push(wait.value);
      return wait;
    });
    const { sender, posted, send } = channel();
    const taken = send({});
    test.mock.method(Atomics, "notify").mock.mockImplementationOnce(() => 0);
    takePayload(posted[0]!);
    const untaken = assert.rejects(send({}));
    sender.fail(new Error("dead"));
    await Promise.all([taken, untaken]);
    assert.deepEqual(await Promise.all(waits), ["ok", "ok"]);
  });
});

function startChild(test: TestContext) {
  const sender = new HandshakeSender();
  const gate = new Int32Array(new SharedArrayBuffer(4));
  const workerData: ChildData = { gate: gate.buffer };
  const child = new Worker(new URL("../../../support/handshakeChild.js", import.meta.url), { workerData });
  test.after(() => child.terminate());
  const order = (request: ChildRequest): void => child.postMessage(request);
  const taken: unknown[] = [];
  child.on("message", (payload) => taken.push(payload));
  const send = (payload: object, timeoutMs = minute): Promise<void> => sender.send(payload, order, timeoutMs);
  const block = async (): Promise<void> => {
    order("block");
    await once(child, "message");
    taken.length = 0;
  };
  const openGate = (): void => {
    Atomics.store(gate, 0, 1);
    Atomics.notify(gate, 0);
  };
  return { sender, child, order, send, taken, block, openGate };
}

describe("between threads", () => {
  it("payloads of any size arrive in order, and each acknowledgement wakes an idle event loop", async (test) => {
    const { child, send, taken } = startChild(test);
    const payloads = Array.from({ length: 50 }, (_, n) => ({ n, text: "x".repeat(n * 1000) }));
    for (const payload of payloads) await send(payload);
    const large = { text: "a😀é".repeat(1_500_000), end: true };
    await Promise.all([...payloads, large].map((payload) => send(payload)));
    while (taken.length < 101) await once(child, "message");
    assert.deepEqual(taken, [...payloads, ...payloads, large]);
  });

  it("a thread that blocks past the timeout gets nothing", async (test) => {
    const { child, send, taken, block, openGate } = startChild(test);
    await block();
    await assert.rejects(send({ n: 1 }, 5), { code: "PROTOCOL_ACK_TIMEOUT" });
    openGate();
    await once(child, "message");
    assert.deepEqual(taken, [null]);
  });

  it("everything pending is rejected when the thread has died", async (test) => {
    const { sender, child, send, block } = startChild(test);
    await block();
    const dead = new Error("the thread ended");
    child.once("exit", () => sender.fail(dead));
    const ends = [1, 2, 3].map((n) => assert.rejects(send({ n }), dead));
    await child.terminate();
    await Promise.all(ends);
  });

  it("a pending handshake times out when the thread has exited unnoticed", async (test) => {
    const { child, order, send } = startChild(test);
    order("leave");
    await once(child, "exit");
    await assert.rejects(send({}, 5), { code: "PROTOCOL_ACK_TIMEOUT" });
  });
});
