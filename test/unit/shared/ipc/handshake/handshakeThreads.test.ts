import assert from "node:assert/strict";
import { once } from "node:events";
import { describe, it, type TestContext } from "node:test";
import { Worker } from "node:worker_threads";
import { HandshakeSender } from "../../../../../src/shared/ipc/handshake/sender.js";
import { Slots, type Reservation, type SlotReference } from "../../../../../src/shared/ipc/handshake/slots.js";
import type { Answer, ChildData, ChildRequest } from "../../../../support/handshakeChild.js";
import type { ReaderData, ReaderReport } from "../../../../support/slotReader.js";

const minute = 60_000;

function startChild(test: TestContext, options?: { slots?: number; slotBytes?: number }) {
  const sender = new HandshakeSender(options);
  const gate = new Int32Array(new SharedArrayBuffer(4));
  const workerData: ChildData = { buffer: sender.buffer, gate: gate.buffer };
  const child = new Worker(new URL("../../../../support/handshakeChild.js", import.meta.url), {
    workerData,
  });
  test.after(() => child.terminate());

  const answers: Answer[] = [];
  const listeners: ((answer: Answer) => void)[] = [];
  child.on("message", (answer: Answer) => {
    const listener = listeners.shift();
    if (listener) listener(answer);
    else answers.push(answer);
  });
  return {
    sender,
    child,
    order: (order: ChildRequest) => child.postMessage(order),
    send: (reference: SlotReference) => child.postMessage({ type: "take", reference }),
    answer: (): Promise<Answer> => {
      const waiting = answers.shift();
      return waiting ? Promise.resolve(waiting) : new Promise((resolve) => listeners.push(resolve));
    },
    openGate: () => {
      Atomics.store(gate, 0, 1);
      Atomics.notify(gate, 0);
    },
  };
}

describe("between threads", () => {
  it("the acknowledgement wakes an idle event loop", async (test) => {
    const { sender, send, answer } = startChild(test);
    for (let n = 0; n < 50; n += 1) {
      await sender.send({ n }, send, minute);
      assert.deepEqual(await answer(), { type: "payload", payload: { n } });
    }
  });

  it("more payloads than slots arrive in order", async (test) => {
    const { sender, send, answer } = startChild(test, { slots: 2, slotBytes: 64 });
    const sent = Array.from({ length: 200 }, (_, n) => sender.send({ n, text: "x".repeat(n) }, send, minute));
    for (let n = 0; n < 200; n += 1) {
      assert.deepEqual(await answer(), {
        type: "payload",
        payload: { n, text: "x".repeat(n) },
      });
    }
    await Promise.all(sent);
  });

  it("a payload of 10 MB arrives whole", async (test) => {
    const { sender, send, answer } = startChild(test);
    const payload = { text: "a😀é".repeat(1_500_000), end: true };
    await sender.send(payload, send, minute);
    assert.deepEqual(await answer(), { type: "payload", payload });
  });

  it("a thread that blocks past the timeout finds its payload withdrawn", async (test) => {
    const { sender, order, send, answer, openGate } = startChild(test, { slots: 1 });
    order({ type: "block" });
    assert.deepEqual(await answer(), { type: "blocking" });
    const late = sender.send({ n: 1 }, send, 5);
    const next = sender.send({ n: 2 }, send, minute);
    await assert.rejects(late, { code: "PROTOCOL_ACK_TIMEOUT" });
    openGate();
    await next;
    assert.deepEqual(await answer(), { type: "payload", payload: null });
    assert.deepEqual(await answer(), { type: "payload", payload: { n: 2 } });
  });

  it("everything pending is rejected when the thread has died", async (test) => {
    const { sender, child, order, send, answer } = startChild(test, { slots: 2 });
    order({ type: "block" });
    await answer();
    const sent = [1, 2, 3].map((n) => sender.send({ n }, send, minute));
    const dead = new Error("the thread ended");
    child.once("exit", () => sender.fail(dead));
    const ends = Promise.all(sent.map((promise) => assert.rejects(promise, dead)));
    await child.terminate();
    await ends;
    assert.equal(sender.pending, 0);
  });

  it("a pending handshake times out when the thread has exited unnoticed", async (test) => {
    const { sender, child, order, send } = startChild(test);
    const gone = once(child, "exit");
    order({ type: "leave" });
    await gone;
    await assert.rejects(sender.send({}, send, 5), { code: "PROTOCOL_ACK_TIMEOUT" });
  });
});

describe("a payload withdrawn while a thread copies it", () => {
  it("is never acknowledged, and what is acknowledged is whole", async (test) => {
    const slots = Slots.allocate(1, 65_536);
    const control = new Int32Array(new SharedArrayBuffer(8));
    const workerData: ReaderData = { buffer: slots.buffer, control: control.buffer };
    const reader = new Worker(new URL("../../../../support/slotReader.js", import.meta.url), {
      workerData,
    });
    test.after(() => reader.terminate());
    await once(reader, "message");

    const taken: number[] = [];
    for (let round = 0; round < 5000; round += 1) {
      const reservation = slots.reserve()!;
      publishLetters(slots, reservation, control);
      // The time that the reader gets ranges from none to enough.
      for (let look = 0; look < (round % 50) * 40; look += 1) slots.isPublished(reservation);
      if (slots.withdraw(reservation)) continue;
      taken.push(reservation.generation);
      slots.free(reservation);
    }
    const report = new Promise<ReaderReport>((resolve) => reader.once("message", resolve));
    Atomics.store(control, 1, 1);
    const seen = await report;
    assert.deepEqual(seen.torn, []);
    assert.deepEqual(seen.taken, taken);
    test.diagnostic(`${taken.length} taken, ${seen.refused} refused while copying`);
  });
});

function publishLetters(slots: Slots, reservation: Reservation, control: Int32Array): void {
  const letter = String.fromCodePoint(97 + (reservation.generation % 26));
  const bytes = 60_000 + (reservation.generation % 5000);
  slots.write(reservation.slot, letter.repeat(bytes), bytes);
  slots.publish(reservation);
  Atomics.store(control, 0, reservation.generation);
}
