/**
 * The shared memory of one channel from a parent thread (sender) to its child (receiver).
 *
 *     header   number of slots, size of a slot in bytes
 *     control  for each slot: its word (generation and state in one Int32), length of its payload
 *     payload  for each slot: UTF-8
 *
 *             reserve            publish                acknowledge
 *     FREE(g) ──────▶ WRITING(g+1) ──────▶ PUBLISHED(g+1) ──────▶ TAKEN(g+1)
 *        ▲                                      │                    │
 *        │               withdraw               │                    │ free
 *        └──────────────────────────────────────┴────────────────────┘
 *
 * Every transition is one compareExchange of the slot's whole word, so state and generation change together. The
 * receiver makes only the transition `acknowledge`. The sender makes all other transitions.
 */
export const SlotState = { free: 0, writing: 1, published: 2, taken: 3 } as const;
export type SlotState = (typeof SlotState)[keyof typeof SlotState];

const stateBits = 2;
// After this many uses of a slot, its generation number repeats. A stale reference could then look current, but only if
// the receiver had taken no payload from the slot in between. As the only receiver of the channel gets the references
// in order, all payloads in between would have to be withdrawn.
export const generations = 2 ** (32 - stateBits);

const header = { slots: 0, slotBytes: 1, words: 2 } as const;
const control = { word: 0, length: 1, words: 2 } as const;

/** Returns the index of a slot's word in the Int32 view of the channel's memory. */
export const wordIndex = (slot: number): number => header.words + slot * control.words + control.word;

const lengthIndex = (slot: number): number => header.words + slot * control.words + control.length;

/** Packs a slot's generation and state into one word. */
export const packWord = (generation: number, state: SlotState): number => (generation << stateBits) | state;

const generationOf = (word: number): number => word >>> stateBits;
const stateOf = (word: number): number => word & (2 ** stateBits - 1);

/** A slot that is reserved for one payload. The generation tells this use of the slot from all others. */
export interface Reservation {
  readonly slot: number;
  readonly generation: number;
}

/** Tells the receiver where to find a published payload. */
export interface SlotReference extends Reservation {
  /** The payload itself, if it does not fit into a slot. */
  readonly overflow?: SharedArrayBuffer;
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

  /**
   * Reserves a free slot for writing.
   *
   * @returns null if no slot is free
   */
  reserve(): Reservation | null {
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

  /**
   * Writes a payload into a reserved slot.
   *
   * @param bytes the length of `text` in UTF-8, at most `slotBytes`
   */
  write(slot: number, text: string, bytes: number): void {
    this.#payload(slot, bytes).write(text, "utf8");
    Atomics.store(this.#words, lengthIndex(slot), bytes);
  }

  /**
   * Marks a slot as published. Must be called after `write`, so that a thread that sees PUBLISHED also sees the whole
   * payload.
   */
  publish({ slot, generation }: Reservation): boolean {
    return this.#move(slot, generation, SlotState.writing, SlotState.published);
  }

  isPublished({ slot, generation }: Reservation): boolean {
    return Atomics.load(this.#words, wordIndex(slot)) === packWord(generation, SlotState.published);
  }

  /**
   * Copies the slot's content without checking its generation. The copy is valid only if `acknowledge` then succeeds.
   */
  copy(slot: number): Buffer {
    return Buffer.from(this.#payload(slot, Atomics.load(this.#words, lengthIndex(slot))));
  }

  /**
   * Marks a published slot as taken. Must be called after `copy`. If `acknowledge` succeeds, the copy is valid, because
   * the sender cannot have written to the slot since `isPublished`. Before the sender writes, it must change the state,
   * either from PUBLISHED or from TAKEN. A change from PUBLISHED would make `acknowledge` fail, and only `acknowledge`
   * itself leads to TAKEN.
   *
   * @returns false if the slot is no longer published under this generation
   */
  acknowledge({ slot, generation }: Reservation): boolean {
    const taken = this.#move(slot, generation, SlotState.published, SlotState.taken);
    if (taken) Atomics.notify(this.#words, wordIndex(slot));
    return taken;
  }

  /**
   * Withdraws a published payload and frees its slot.
   *
   * @returns false if the receiver has already taken the payload
   */
  withdraw({ slot, generation }: Reservation): boolean {
    const withdrawn = this.#move(slot, generation, SlotState.published, SlotState.free);
    // Ends the sender's own waitAsync, which waits for the slot to leave PUBLISHED.
    if (withdrawn) Atomics.notify(this.#words, wordIndex(slot));
    return withdrawn;
  }

  free({ slot, generation }: Reservation): boolean {
    const freed = this.#move(slot, generation, SlotState.taken, SlotState.free);
    // If the sender saw TAKEN before the receiver called notify, the sender's waitAsync is still pending. This call
    // ends it.
    if (freed) Atomics.notify(this.#words, wordIndex(slot));
    return freed;
  }

  /** Resolves when the slot is no longer published under this generation. */
  async leavesPublished(reservation: Reservation): Promise<void> {
    const published = packWord(reservation.generation, SlotState.published);
    // A loop is needed because a late notify for an earlier generation can wake a later waiter.
    while (this.isPublished(reservation)) {
      const wait = Atomics.waitAsync(this.#words, wordIndex(reservation.slot), published);
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
