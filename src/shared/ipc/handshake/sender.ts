import { PgTaskError } from "../../errors.js";
import type { SlotReference } from "../messages.js";
import { Slots, type SlotClaim } from "./slots.js";

interface Handover {
  readonly text: string;
  readonly ring: (reference: SlotReference) => void;
  readonly timeoutMs: number;
  readonly resolve: () => void;
  readonly reject: (reason: unknown) => void;
}

interface Flight extends SlotClaim {
  readonly handover: Handover;
  timer: NodeJS.Timeout | undefined;
}

/**
 * The parent's side of a channel. A handover resolves when the child has taken it, once, and rejects
 * when it has been taken back, so that the child can never have it.
 */
export class HandshakeSender {
  readonly #slots: Slots;
  /** In their order: handovers that wait for a free slot, and what is to be told behind these. */
  #waiting: (Handover | (() => void))[] = [];
  readonly #flights = new Set<Flight>();
  #failure: Error | null = null;

  /** `slotBytes`: payloads longer than this in UTF-8 travel in a buffer of their own. */
  constructor({ slots = 8, slotBytes = 16_384 }: { slots?: number; slotBytes?: number } = {}) {
    this.#slots = Slots.allocate(slots, slotBytes);
  }

  /** For the child's HandshakeReceiver, as workerData. */
  get buffer(): SharedArrayBuffer {
    return this.#slots.buffer;
  }

  /** Handovers neither taken nor taken back, those that wait for a free slot included. */
  get pending(): number {
    return this.#handovers.length + this.#flights.size;
  }

  /**
   * Writes the payload as it is now, then calls `ring` to post the reference to the child, and
   * resolves when the child has taken it. When all slots are in use it waits its turn first.
   *
   * @param payload as JSON carries it
   * @param timeoutMs 1 to 2147483647, counted from ringing
   * @throws PgTaskError PROTOCOL_ACK_TIMEOUT, the slot has been taken back; PROTOCOL_PAYLOAD when
   * JSON cannot carry the payload; what `ring` threw; the reason given to `fail`.
   */
  async send(
    payload: object,
    ring: (reference: SlotReference) => void,
    timeoutMs: number,
  ): Promise<void> {
    const text = encode(payload);
    if (this.#failure !== null) throw this.#failure;
    await new Promise<void>((resolve, reject) => {
      this.#waiting.push({ text, ring, timeoutMs, resolve, reject });
      this.#publishWaiting();
    });
  }

  /**
   * Calls `tell` when the references of all that was sent before have been posted, so that it cannot
   * overtake what waits for a free slot: at once when nothing does, and not at all when the child is dead
   * by then.
   */
  behind(tell: () => void): void {
    if (this.#waiting.length === 0) tell();
    else this.#waiting.push(tell);
  }

  /**
   * The child is dead: takes back and rejects everything pending, and every later send. What the
   * child has taken before still resolves.
   */
  fail(reason: Error): void {
    this.#failure ??= reason;
    const handovers = this.#handovers;
    this.#waiting = [];
    for (const handover of handovers) handover.reject(this.#failure);
    for (const flight of this.#flights) this.#takeBack(flight, this.#failure);
  }

  get #handovers(): Handover[] {
    return this.#waiting.flatMap((each) => (typeof each === "function" ? [] : each));
  }

  #publishWaiting(): void {
    for (let [next] = this.#waiting; next !== undefined; [next] = this.#waiting) {
      if (typeof next === "function") {
        this.#waiting.shift();
        next();
        continue;
      }
      const claim = this.#slots.claim();
      if (claim === null) return;
      this.#waiting.shift();
      this.#publish(claim, next);
    }
  }

  #publish(claim: SlotClaim, handover: Handover): void {
    const bytes = Buffer.byteLength(handover.text, "utf8");
    const fits = bytes <= this.#slots.slotBytes;
    if (fits) this.#slots.write(claim.slot, handover.text, bytes);
    const overflow = fits ? {} : { overflow: bufferOf(handover.text, bytes) };
    this.#slots.publish(claim);

    const flight: Flight = { ...claim, handover, timer: undefined };
    this.#flights.add(flight);
    // waitAsync alone would not keep the process alive until the child answers; this timer does.
    flight.timer = setTimeout(() => {
      this.#takeBack(flight, ackTimeout(handover.timeoutMs));
    }, handover.timeoutMs);
    void this.#slots.leavesPublished(claim).then(() => this.#taken(flight));
    try {
      handover.ring({ ...claim, ...overflow });
    } catch (error) {
      this.#takeBack(flight, error);
    }
  }

  #takeBack(flight: Flight, reason: unknown): void {
    // The slot decides, not who comes first here: what the child has taken is never reported lost.
    if (this.#slots.reclaim(flight)) this.#settle(flight, () => flight.handover.reject(reason));
    else this.#taken(flight);
  }

  #taken(flight: Flight): void {
    if (this.#slots.release(flight)) this.#settle(flight, flight.handover.resolve);
  }

  #settle(flight: Flight, outcome: () => void): void {
    clearTimeout(flight.timer);
    this.#flights.delete(flight);
    outcome();
    this.#publishWaiting();
  }
}

/** JSON escapes lone surrogates, so that its UTF-8 always reads back as it was. */
function encode(payload: object): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(payload);
  } catch (cause) {
    throw new PgTaskError(
      "PROTOCOL_PAYLOAD",
      `expected a payload that JSON can carry: ${String(cause)}`,
      { cause },
    );
  }
  if (text === undefined || text === "null") {
    throw new PgTaskError(
      "PROTOCOL_PAYLOAD",
      `expected a payload that JSON can carry, got one that becomes ${text}`,
    );
  }
  return text;
}

function bufferOf(text: string, bytes: number): SharedArrayBuffer {
  const buffer = new SharedArrayBuffer(bytes);
  Buffer.from(buffer).write(text, "utf8");
  return buffer;
}

function ackTimeout(timeoutMs: number): PgTaskError {
  return new PgTaskError(
    "PROTOCOL_ACK_TIMEOUT",
    `expected the thread to take its parameters within ${timeoutMs} ms, got no answer; ` +
      "they have been taken back",
  );
}
