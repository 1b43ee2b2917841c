import { PgTaskError } from "../../errors.js";
import { Slots, type SlotClaim, type SlotReference } from "./slots.js";

interface Handover {
  readonly text: string;
  readonly post: (reference: SlotReference) => void;
  readonly timeoutMs: number;
  readonly resolve: () => void;
  readonly reject: (reason: unknown) => void;
}

interface InFlight extends SlotClaim {
  readonly handover: Handover;
  timer: NodeJS.Timeout | undefined;
}

/**
 * The parent thread's side of a handshake channel. A handover resolves when the child has taken its payload. It rejects
 * when the payload has been taken back, and then the child can never get that payload.
 */
export class HandshakeSender {
  readonly #slots: Slots;
  /** Handovers that wait for a free slot, and callbacks to be called after the handovers before them, in order. */
  #waiting: (Handover | (() => void))[] = [];
  readonly #inFlight = new Set<InFlight>();
  #failure: Error | null = null;

  /**
   * @param slots how many payloads can be in flight at once
   * @param slotBytes size of a slot. Payloads that are longer in UTF-8 travel in a buffer of their own.
   */
  constructor({ slots = 8, slotBytes = 16_384 }: { slots?: number; slotBytes?: number } = {}) {
    this.#slots = Slots.allocate(slots, slotBytes);
  }

  /** The channel's shared memory, to be passed to the child's HandshakeReceiver as part of its workerData. */
  get buffer(): SharedArrayBuffer {
    return this.#slots.buffer;
  }

  /**
   * The number of handovers whose payload the child has not taken and that have not been taken back. Handovers that
   * wait for a free slot are included.
   */
  get pending(): number {
    return this.#handovers.length + this.#inFlight.size;
  }

  /**
   * Serializes the payload, waits for a free slot if all are in use, and calls `post` to send the reference to the
   * child. Resolves when the child has taken the payload.
   *
   * @param payload must be representable as JSON
   * @param timeoutMs 1 to 2147483647, counted from the call of `post`
   * @throws PgTaskError PROTOCOL_ACK_TIMEOUT if the child has not taken the payload in time; the payload has then been
   * taken back
   * @throws PgTaskError PROTOCOL_PAYLOAD if the payload cannot be represented as JSON
   * @throws the error of `post`, or the reason given to `fail`
   */
  async send(payload: object, post: (reference: SlotReference) => void, timeoutMs: number): Promise<void> {
    const text = encode(payload);
    if (this.#failure !== null) throw this.#failure;
    await new Promise<void>((resolve, reject) => {
      this.#waiting.push({ text, post, timeoutMs, resolve, reject });
      this.#publishWaiting();
    });
  }

  /**
   * Calls `action` when the references of all earlier handovers have been posted, so that the action cannot overtake
   * handovers that wait for a free slot. If no handover waits, `action` is called at once. If the child dies first,
   * `action` is never called.
   */
  afterPending(action: () => void): void {
    if (this.#waiting.length === 0) action();
    else this.#waiting.push(action);
  }

  /**
   * Called when the child thread is dead. Takes back and rejects all pending handovers, and rejects every later `send`.
   * Handovers whose payload the child had already taken still resolve.
   */
  fail(reason: Error): void {
    this.#failure ??= reason;
    const handovers = this.#handovers;
    this.#waiting = [];
    for (const handover of handovers) handover.reject(this.#failure);
    for (const flight of this.#inFlight) this.#reclaim(flight, this.#failure);
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

    const flight: InFlight = { ...claim, handover, timer: undefined };
    this.#inFlight.add(flight);
    // This timer also keeps the process alive until the child answers. Atomics.waitAsync would not.
    flight.timer = setTimeout(() => {
      this.#reclaim(flight, ackTimeout(handover.timeoutMs));
    }, handover.timeoutMs);
    void this.#slots.leavesPublished(claim).then(() => this.#acknowledged(flight));
    try {
      handover.post({ ...claim, ...overflow });
    } catch (error) {
      this.#reclaim(flight, error);
    }
  }

  #reclaim(flight: InFlight, reason: unknown): void {
    // The state of the slot decides, not the order of events in this thread. Therefore a payload that the child has
    // taken is never reported as lost.
    if (this.#slots.reclaim(flight)) this.#settle(flight, () => flight.handover.reject(reason));
    else this.#acknowledged(flight);
  }

  #acknowledged(flight: InFlight): void {
    if (this.#slots.release(flight)) this.#settle(flight, flight.handover.resolve);
  }

  #settle(flight: InFlight, outcome: () => void): void {
    clearTimeout(flight.timer);
    this.#inFlight.delete(flight);
    outcome();
    this.#publishWaiting();
  }
}

/**
 * Serializes a payload. JSON escapes lone surrogates, so encoding the text as UTF-8 and decoding it yields the same
 * text.
 */
function encode(payload: object): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(payload);
  } catch (cause) {
    throw new PgTaskError("PROTOCOL_PAYLOAD", `expected a payload that JSON can carry: ${String(cause)}`, { cause });
  }
  if (text === undefined || text === "null") {
    throw new PgTaskError("PROTOCOL_PAYLOAD", `expected a payload that JSON can carry, got one that becomes ${text}`);
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
    `expected the thread to take its parameters within ${timeoutMs} ms, got no answer; they have been taken back`,
  );
}
