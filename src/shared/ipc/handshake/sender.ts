import { PgTaskError } from "../../errors.js";
import { Slots, type Reservation, type SlotReference } from "./slots.js";

/** A payload on its way to the child, and how the promise of its `send` is settled. */
interface OutgoingPayload {
  readonly text: string;
  readonly post: (reference: SlotReference) => void;
  readonly timeoutMs: number;
  readonly resolve: () => void;
  readonly reject: (reason: unknown) => void;
}

interface InFlight extends Reservation {
  readonly payload: OutgoingPayload;
  timer: NodeJS.Timeout | undefined;
}

/**
 * The parent thread's side of a handshake channel. `send` resolves when the child has taken the payload. It rejects
 * when the payload has been withdrawn, so that the child can no longer get it.
 */
export class HandshakeSender {
  readonly #slots: Slots;
  /** Payloads that wait for a free slot, and callbacks to be called after the payloads before them, in order. */
  #waiting: (OutgoingPayload | (() => void))[] = [];
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
   * Number of pending payloads, which have been neither taken by the child nor withdrawn. Payloads that wait for a free
   * slot are included.
   */
  get pending(): number {
    return this.#waitingPayloads.length + this.#inFlight.size;
  }

  /**
   * Serializes the payload, waits for a free slot if all are in use, and calls `post` to send the reference to the
   * child. Resolves when the child has taken the payload.
   *
   * @param payload must be representable as JSON
   * @param timeoutMs 1 to 2147483647, counted from the call of `post`
   * @throws PgTaskError PROTOCOL_ACK_TIMEOUT if the child has not taken the payload in time; the payload has then been
   * withdrawn
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
   * Calls `action` when the references of all earlier payloads have been posted, so that the action cannot overtake
   * payloads that wait for a free slot. If no payload waits for a slot, `action` is called at once. If the child dies
   * before that, `action` is never called.
   */
  afterPending(action: () => void): void {
    if (this.#waiting.length === 0) action();
    else this.#waiting.push(action);
  }

  /**
   * Called when the child thread is dead. Withdraws all pending payloads. Their calls of `send` reject, and so does
   * every later call. If the child had already taken a payload, its `send` still resolves.
   */
  fail(reason: Error): void {
    this.#failure ??= reason;
    const payloads = this.#waitingPayloads;
    this.#waiting = [];
    for (const payload of payloads) payload.reject(this.#failure);
    for (const flight of this.#inFlight) this.#withdraw(flight, this.#failure);
  }

  get #waitingPayloads(): OutgoingPayload[] {
    return this.#waiting.flatMap((each) => (typeof each === "function" ? [] : each));
  }

  #publishWaiting(): void {
    for (let [next] = this.#waiting; next !== undefined; [next] = this.#waiting) {
      if (typeof next === "function") {
        this.#waiting.shift();
        next();
        continue;
      }
      const reservation = this.#slots.reserve();
      if (reservation === null) return;
      this.#waiting.shift();
      this.#publish(reservation, next);
    }
  }

  #publish(reservation: Reservation, payload: OutgoingPayload): void {
    const bytes = Buffer.byteLength(payload.text, "utf8");
    const fits = bytes <= this.#slots.slotBytes;
    if (fits) this.#slots.write(reservation.slot, payload.text, bytes);
    const overflow = fits ? {} : { overflow: bufferOf(payload.text, bytes) };
    this.#slots.publish(reservation);

    const flight: InFlight = { ...reservation, payload, timer: undefined };
    this.#inFlight.add(flight);
    // This timer also keeps the process alive until the child answers. Atomics.waitAsync would not.
    flight.timer = setTimeout(() => {
      this.#withdraw(flight, ackTimeout(payload.timeoutMs));
    }, payload.timeoutMs);
    void this.#slots.leavesPublished(reservation).then(() => this.#acknowledged(flight));
    try {
      payload.post({ ...reservation, ...overflow });
    } catch (error) {
      this.#withdraw(flight, error);
    }
  }

  #withdraw(flight: InFlight, reason: unknown): void {
    // The state of the slot decides whether the child has taken the payload, not the order of events in this thread. So
    // a payload that the child has taken is never reported as lost.
    if (this.#slots.withdraw(flight)) this.#settle(flight, () => flight.payload.reject(reason));
    else this.#acknowledged(flight);
  }

  #acknowledged(flight: InFlight): void {
    if (this.#slots.free(flight)) this.#settle(flight, flight.payload.resolve);
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
    `expected the thread to take its parameters within ${timeoutMs} ms, got no answer; they have been withdrawn`,
  );
}
