import assert from "node:assert/strict";
import { describe, it, mock } from "node:test";
import * as fc from "fast-check";
import { HandshakeReceiver } from "../../../../src/shared/ipc/handshake/receiver.js";
import { HandshakeSender } from "../../../../src/shared/ipc/handshake/sender.js";
import {
  generations,
  packWord,
  Slots,
  SlotState,
  wordIndex,
  type SlotClaim,
} from "../../../../src/shared/ipc/handshake/slots.js";
import type { SlotReference } from "../../../../src/shared/ipc/messages.js";

/**
 * Both sides as one sees them from outside: each step is one access to the shared memory, and any
 * step of one side may come between any two of the other.
 */
type Step =
  | {
      readonly by: "sender";
      readonly act: "claim" | "writePart" | "publish" | "reclaim" | "release";
    }
  | { readonly by: "receiver"; readonly act: "look" | "copy" | "acknowledge" };

interface Written extends SlotClaim {
  readonly text: string;
  end: "open" | "taken" | "reclaimed";
}

interface Read {
  readonly of: Written;
  copied: string | null;
}

const steps = fc.array(
  fc.record({
    pick: fc.nat(),
    step: fc.constantFrom<Step>(
      { by: "sender", act: "claim" },
      { by: "sender", act: "writePart" },
      { by: "sender", act: "publish" },
      { by: "sender", act: "reclaim" },
      { by: "sender", act: "release" },
      { by: "receiver", act: "look" },
      { by: "receiver", act: "copy" },
      { by: "receiver", act: "acknowledge" },
    ),
  }),
  { maxLength: 120, size: "large" },
);

class Model {
  readonly slots: Slots;
  readonly claimed: Written[] = [];
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
    const writing = this.claimed[pick % this.claimed.length];
    const shown = this.published[pick % this.published.length];
    switch (act) {
      case "claim": {
        const claim = this.slots.claim();
        const text = `payload ${(this.#count += 1)}`;
        if (claim) this.claimed.push({ ...claim, text, end: "open" });
        return;
      }
      case "writePart":
        if (writing) this.slots.write(writing.slot, writing.text.slice(0, 4), 4);
        return;
      case "publish":
        if (!writing) return;
        this.slots.write(writing.slot, writing.text, writing.text.length);
        assert.equal(this.slots.publish(writing), true);
        this.claimed.splice(this.claimed.indexOf(writing), 1);
        this.published.push(writing);
        return;
      case "reclaim":
        if (!shown) return;
        assert.equal(this.slots.reclaim(shown), shown.end === "open");
        if (shown.end === "open") shown.end = "reclaimed";
        return;
      case "release":
        if (shown && this.slots.release(shown)) assert.equal(shown.end, "taken");
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
        assert.equal(taken, read.of.end === "open", "taken once, and only what was not taken back");
        if (!taken) return;
        assert.equal(read.copied, read.of.text, "never torn, never another's");
        read.of.end = "taken";
        return;
      }
    }
  }
}

describe("the slots", () => {
  it("give each payload whole and at most once, in any order of steps", () => {
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
  | { readonly event: "breathe" }
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
    { weight: 2, arbitrary: fc.record({ event: fc.constant("breathe" as const) }) },
    { weight: 1, arbitrary: fc.record({ event: fc.constant("fail" as const) }) },
  ),
  { maxLength: 60, size: "medium" },
);

/** Plays the events; what is still open at the end times out. */
async function play(slots: number, all: readonly Event[]): Promise<void> {
  const sender = new HandshakeSender({ slots, slotBytes: 24 });
  const receiver = new HandshakeReceiver(sender.buffer);
  const rung: { n: number; reference: SlotReference }[] = [];
  const taken: number[] = [];
  const outcomes: Promise<"resolved" | "rejected">[] = [];
  for (const event of all) {
    switch (event.event) {
      case "send": {
        const n = outcomes.length;
        const sent = sender.send(
          { n, text: "é".repeat(event.size) },
          (reference) => rung.push({ n, reference }),
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
        const bell = rung[event.which % rung.length];
        const payload = bell && receiver.take<{ n: number; text: string }>(bell.reference);
        if (!payload) break;
        assert.equal(payload.n, bell.n, "never another's");
        assert.match(payload.text, /^é*$/);
        taken.push(payload.n);
        break;
      }
      case "tick":
        mock.timers.tick(event.ms);
        break;
      case "breathe":
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
    "each is taken once exactly when its handover resolves",
  );
  assert.deepEqual(
    rung.map((bell) => bell.n),
    rung.map((bell) => bell.n).toSorted((a, b) => a - b),
    "published in the order they came",
  );
}

describe("a channel", () => {
  it("resolves exactly the handovers that were taken, whenever taking, timeouts and death come", async () => {
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
