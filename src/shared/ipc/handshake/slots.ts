/**
 * The memory of one channel from a parent thread (sender) to its child (receiver).
 *
 *   header   number of slots, bytes of a slot
 *   control  for each slot: its word (generation and state in one Int32), length of its payload
 *   payload  for each slot: UTF-8
 *
 *            claim             publish                acknowledge
 *   FREE(g) ──────▶ WRITING(g+1) ──────▶ PUBLISHED(g+1) ──────▶ TAKEN(g+1)
 *      ▲                                      │                    │
 *      │                reclaim               │                    │ release
 *      └──────────────────────────────────────┴────────────────────┘
 *
 * Every step is one compareExchange of the whole word, so that state and generation change together.
 * The receiver makes one step only, acknowledge; all others are the sender's.
 */
export const SlotState = { free: 0, writing: 1, published: 2, taken: 3 } as const;
export type SlotState = (typeof SlotState)[keyof typeof SlotState];

const stateBits = 2;
// A wrap could deceive a reader only if it slept through all the generations of a slot that others
// took back meanwhile. A channel has one reader, which is rung in order: each of them would have
// had to time out.
export const generations = 2 ** (32 - stateBits);

const header = { slots: 0, slotBytes: 1, words: 2 } as const;
const control = { word: 0, length: 1, words: 2 } as const;

/** Where a slot's word stands in the Int32 view of the channel's memory. */
export const wordIndex = (slot: number): number =>
  header.words + slot * control.words + control.word;

const lengthIndex = (slot: number): number => header.words + slot * control.words + control.length;

/** Generation and state as they stand in a slot's word. */
export const packWord = (generation: number, state: SlotState): number =>
  (generation << stateBits) | state;

const generationOf = (word: number): number => word >>> stateBits;
const stateOf = (word: number): number => word & (2 ** stateBits - 1);

export interface SlotClaim {
  readonly slot: number;
  readonly generation: number;
}

export class Slots {
  readonly buffer: SharedArrayBuffer;
  readonly count: number;
  readonly slotBytes: number;
  readonly #words: Int32Array<SharedArrayBuffer>;

  constructor(buffer: SharedArrayBuffer) {
    this.buffer = buffer;
    const words = new Int32Array(buffer, 0, header.words);
    this.count = words[header.slots]!;
    this.slotBytes = words[header.slotBytes]!;
    this.#words = new Int32Array(buffer, 0, header.words + this.count * control.words);
  }

  static allocate(count: number, slotBytes: number): Slots {
    const controlBytes = (header.words + count * control.words) * Int32Array.BYTES_PER_ELEMENT;
    const buffer = new SharedArrayBuffer(controlBytes + count * slotBytes);
    const words = new Int32Array(buffer);
    words[header.slots] = count;
    words[header.slotBytes] = slotBytes;
    return new Slots(buffer);
  }

  /** Takes a free slot for writing; null when there is none. */
  claim(): SlotClaim | null {
    for (let slot = 0; slot < this.count; slot += 1) {
      const word = Atomics.load(this.#words, wordIndex(slot));
      if (stateOf(word) !== SlotState.free) continue;
      const generation = (generationOf(word) + 1) % generations;
      const writing = packWord(generation, SlotState.writing);
      if (Atomics.compareExchange(this.#words, wordIndex(slot), word, writing) === word) {
        return { slot, generation };
      }
    }
    return null;
  }

  /** `bytes` is the length of `text` in UTF-8, at most `slotBytes`. */
  write(slot: number, text: string, bytes: number): void {
    this.#payload(slot, bytes).write(text, "utf8");
    Atomics.store(this.#words, lengthIndex(slot), bytes);
  }

  /** After write: who sees PUBLISHED sees the whole payload that was written before it. */
  publish({ slot, generation }: SlotClaim): boolean {
    return this.#move(slot, generation, SlotState.writing, SlotState.published);
  }

  isPublished({ slot, generation }: SlotClaim): boolean {
    return Atomics.load(this.#words, wordIndex(slot)) === packWord(generation, SlotState.published);
  }

  /** A copy of what stands in the slot, of whichever generation: worth nothing until acknowledged. */
  copy(slot: number): Buffer {
    return Buffer.from(this.#payload(slot, Atomics.load(this.#words, lengthIndex(slot))));
  }

  /**
   * After copy. Done, nobody wrote between isPublished and here, as writing begins with the sender
   * moving the slot on, which it can do once only: from PUBLISHED before, or from TAKEN after us.
   */
  acknowledge({ slot, generation }: SlotClaim): boolean {
    const taken = this.#move(slot, generation, SlotState.published, SlotState.taken);
    if (taken) Atomics.notify(this.#words, wordIndex(slot));
    return taken;
  }

  /** Takes a published slot back; false when the receiver was first. */
  reclaim({ slot, generation }: SlotClaim): boolean {
    const reclaimed = this.#move(slot, generation, SlotState.published, SlotState.free);
    // For our own waitAsync, which nobody else would wake.
    if (reclaimed) Atomics.notify(this.#words, wordIndex(slot));
    return reclaimed;
  }

  release({ slot, generation }: SlotClaim): boolean {
    const released = this.#move(slot, generation, SlotState.taken, SlotState.free);
    // Our waitAsync still hangs if TAKEN was seen before the receiver's notify.
    if (released) Atomics.notify(this.#words, wordIndex(slot));
    return released;
  }

  /** Resolves when the slot is no longer published under this generation. */
  async leavesPublished(claim: SlotClaim): Promise<void> {
    const published = packWord(claim.generation, SlotState.published);
    // Again and again: a receiver's late notify for an earlier generation wakes a later waiter.
    while (this.isPublished(claim)) {
      const wait = Atomics.waitAsync(this.#words, wordIndex(claim.slot), published);
      if (wait.async) await wait.value;
    }
  }

  #payload(slot: number, bytes: number): Buffer<SharedArrayBuffer> {
    const offset = this.#words.byteLength + slot * this.slotBytes;
    return Buffer.from(this.buffer, offset, bytes);
  }

  #move(slot: number, generation: number, from: SlotState, to: SlotState): boolean {
    const expected = packWord(generation, from);
    const next = packWord(generation, to);
    return Atomics.compareExchange(this.#words, wordIndex(slot), expected, next) === expected;
  }
}
