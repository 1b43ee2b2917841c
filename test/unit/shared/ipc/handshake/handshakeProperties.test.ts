import assert from "node:assert/strict";
import { describe, it, mock } from "node:test";
import * as fc from "fast-check";
import { HandshakeReceiver } from "../../../../../src/shared/ipc/handshake/receiver.js";
import { HandshakeSender } from "../../../../../src/shared/ipc/handshake/sender.js";
import {
  generations,
  packWord,
  Slots,
  SlotState,
  wordIndex,
  type Reservation,
  type SlotReference,
} from "../../../../../src/shared/ipc/handshake/slots.js";

/** One access of either side to the shared memory. The steps of both sides can interleave in any order. */
type Step =
  | {
      readonly by: "sender";
      readonly act: "reserve" | "writePart" | "publish" | "withdraw" | "free";
    }
  | { readonly by: "receiver"; readonly act: "look" | "copy" | "acknowledge" };

interface Written extends Reservation {
  readonly text: string;
  end: "open" | "taken" | "withdrawn";
}

interface Read {
  readonly of: Written;
  copied: string | null;
}

const steps = fc.array(
  fc.record({
    pick: fc.nat(),
    step: fc.constantFrom<Step>(
      { by: "sender", act: "reserve" },
      { by: "sender", act: "writePart" },
      { by: "sender", act: "publish" },
      { by: "sender", act: "withdraw" },
      { by: "sender", act: "free" },
      { by: "receiver", act: "look" },
      { by: "receiver", act: "copy" },
      { by: "receiver", act: "acknowledge" },
    ),
  }),
  { maxLength: 120, size: "large" },
);

class Model {
  readonly slots: Slots;
  readonly reserved: Written[] = [];
  readonly published: Written[] = [];
  readonly reads: Read[] = [];
  #count = 0;

  constructor(slotCount: number, firstGeneration: number) {
    this.slots = Slots.allocate(slotCount, 16);
    const words = new Int32Array(this.slots.buffer, 0, wordIndex(slotCount - 1) + 1);
    for (let slot = 0; slot < slotCount; slot += 1) {
      words[wordIndex(slot)] = packWord(firstGeneration, SlotState.free);
    }
  }

  run({ by, act }: Step, pick: number): void {
    if (by === "receiver") this.#receive(act, pick);
    else this.#send(act, pick);
  }

  #send(act: Extract<Step, { by: "sender" }>["act"], pick: number): void {
    const writing = this.reserved[pick % this.reserved.length];
    const shown = this.published[pick % this.published.length];
    switch (act) {
      case "reserve": {
        const reservation = this.slots.reserve();
        const text = `payload ${(this.#count += 1)}`;
        if (reservation) this.reserved.push({ ...reservation, text, end: "open" });
        return;
      }
      case "writePart":
        if (writing) this.slots.write(writing.slot, writing.text.slice(0, 4), 4);
        return;
      case "publish":
        if (!writing) return;
        this.slots.write(writing.slot, writing.text, writing.text.length);
        assert.equal(this.slots.publish(writing), true);
        this.reserved.splice(this.reserved.indexOf(writing), 1);
        this.published.push(writing);
        return;
      case "withdraw":
        if (!shown) return;
        assert.equal(this.slots.withdraw(shown), shown.end === "open");
        if (shown.end === "open") shown.end = "withdrawn";
        return;
      case "free":
        if (shown && this.slots.free(shown)) assert.equal(shown.end, "taken");
        return;
    }
  }

  #receive(act: Extract<Step, { by: "receiver" }>["act"], pick: number): void {
    const shown = this.published[pick % this.published.length];
    const read = this.reads[pick % this.reads.length];
    switch (act) {
      case "look":
        if (!shown) return;
        assert.equal(this.slots.isPublished(shown), shown.end === "open");
        if (shown.end === "open") this.reads.push({ of: shown, copied: null });
        return;
      case "copy":
        if (read) read.copied ??= this.slots.copy(read.of.slot).toString();
        return;
      case "acknowledge": {
        if (!read || read.copied === null) return;
        const taken = this.slots.acknowledge(read.of);
        assert.equal(taken, read.of.end === "open", "taken once, and only if not withdrawn");
        if (!taken) return;
        assert.equal(read.copied, read.of.text, "neither torn nor another payload");
        read.of.end = "taken";
        return;
      }
    }
  }
}

describe("the slots", () => {
  it("deliver each payload whole and at most once, however steps interleave", () => {
    const firstGeneration = fc.constantFrom(0, 2 ** 29 - 2, generations - 2);
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 3 }), firstGeneration, steps, (count, first, all) => {
        const model = new Model(count, first);
        for (const { step, pick } of all) model.run(step, pick);
      }),
      { numRuns: 2000 },
    );
  });
});

type Event =
  | { readonly event: "send"; readonly size: number; readonly timeoutMs: number }
  | { readonly event: "take"; readonly which: number }
  | { readonly event: "tick"; readonly ms: number }
  | { readonly event: "yield" }
  | { readonly event: "fail" };

const events = fc.array(
  fc.oneof(
    {
      weight: 5,
      arbitrary: fc.record({
        event: fc.constant("send" as const),
        size: fc.nat(40),
        timeoutMs: fc.integer({ min: 1, max: 50 }),
      }),
    },
    { weight: 5, arbitrary: fc.record({ event: fc.constant("take" as const), which: fc.nat() }) },
    { weight: 3, arbitrary: fc.record({ event: fc.constant("tick" as const), ms: fc.nat(30) }) },
    { weight: 2, arbitrary: fc.record({ event: fc.constant("yield" as const) }) },
    { weight: 1, arbitrary: fc.record({ event: fc.constant("fail" as const) }) },
  ),
  { maxLength: 60, size: "medium" },
);

/** Replays the events. Whatever is still pending at the end times out. */
async function play(slots: number, all: readonly Event[]): Promise<void> {
  const sender = new HandshakeSender({ slots, slotBytes: 24 });
  const receiver = new HandshakeReceiver(sender.buffer);
  const published: { n: number; reference: SlotReference }[] = [];
  const taken: number[] = [];
  const outcomes: Promise<"resolved" | "rejected">[] = [];
  for (const event of all) {
    switch (event.event) {
      case "send": {
        const n = outcomes.length;
        const sent = sender.send(
          { n, text: "é".repeat(event.size) },
          (reference) => published.push({ n, reference }),
          event.timeoutMs,
        );
        outcomes.push(
          sent.then(
            () => "resolved",
            () => "rejected",
          ),
        );
        break;
      }
      case "take": {
        const sent = published[event.which % published.length];
        const payload = sent && receiver.take<{ n: number; text: string }>(sent.reference);
        if (!payload) break;
        assert.equal(payload.n, sent.n, "not another payload");
        assert.match(payload.text, /^é*$/);
        taken.push(payload.n);
        break;
      }
      case "tick":
        mock.timers.tick(event.ms);
        break;
      case "yield":
        await new Promise(setImmediate);
        break;
      case "fail":
        sender.fail(new Error("dead"));
        break;
    }
  }
  while (sender.pending > 0) mock.timers.tick(50);
  const ends = await Promise.all(outcomes);
  const resolved = ends.flatMap((end, n) => (end === "resolved" ? [n] : []));
  assert.deepEqual(
    taken.toSorted((a, b) => a - b),
    resolved,
    "each is taken exactly when its handshake resolves",
  );
  assert.deepEqual(
    published.map(({ n }) => n),
    published.map(({ n }) => n).toSorted((a, b) => a - b),
    "published in order",
  );
}

describe("a channel", () => {
  it("resolves exactly the handshakes that were taken, whatever the order of takes, timeouts and failures", async () => {
    mock.timers.enable({ apis: ["setTimeout"] });
    try {
      await fc.assert(fc.asyncProperty(fc.integer({ min: 1, max: 3 }), events, play), {
        numRuns: 500,
      });
    } finally {
      mock.timers.reset();
    }
  });
});
