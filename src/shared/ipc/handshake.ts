import { PgTaskError } from "../errors.js";

/**
 * How a parent thread hands payloads to its child. The payload itself is part of a message. Whether the child has taken
 * it is decided by one word of shared memory, which holds how many payloads the child has taken and whether the parent
 * has closed the channel:
 *
 *     open, n taken ──child takes the next payload──▶ open, n + 1 taken
 *          │
 *          └──parent gives the child up──▶ closed, n taken
 *
 * Both transitions are atomic. So a payload that the child has taken is never reported as lost, and a child that is late
 * gets nothing that the parent has given up.
 */
const countMask = 0x7fff_ffff;
const closedBit = ~countMask;

/** A payload as part of a message. */
export interface Handover {
  /** Number of the payload in its channel, from 1. */
  readonly number: number;
  /** The payload as JSON, which escapes lone surrogates and so preserves them. */
  readonly payload: string;
}

/** The number that follows. The numbers start again after 2^31 payloads. */
const after = (number: number): number => (number + 1) & countMask;

/** A payload that the child has not taken as far as the parent knows. */
interface Untaken {
  readonly resolve: () => void;
  readonly reject: (reason: Error) => void;
  readonly timer: NodeJS.Timeout;
}

/** The parent's side. */
export class HandshakeSender {
  /** The channel's shared memory, to be passed to the child's HandshakeReceiver. */
  readonly buffer = new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT);
  readonly #word = new Int32Array(this.buffer);
  /** In the order in which the child takes them. */
  readonly #untaken: Untaken[] = [];
  #posted = 0;
  /** How many payloads the child had taken when the word was last looked at. */
  #taken = 0;
  #failure: Error | null = null;
  #isWatching = false;

  /**
   * Calls `post`, which has to send the payload to the child as a part of a message. Resolves when the child has taken it.
   *
   * @param timeoutMs 1 to 2147483647. If it passes, the channel fails.
   * @throws PgTaskError PROTOCOL_ACK_TIMEOUT, or the reason given to `fail`, when the child can no longer get the payload
   */
  async send(payload: object, post: (handover: Handover) => void, timeoutMs: number): Promise<void> {
    const text = JSON.stringify(payload);
    if (this.#failure !== null) throw this.#failure;
    await new Promise<void>((resolve, reject) => {
      // This timer also keeps the process alive until the child answers. Atomics.waitAsync would not.
      const timer = setTimeout(() => this.fail(ackTimeout(timeoutMs)), timeoutMs);
      this.#untaken.push({ resolve, reject, timer });
      this.#posted = after(this.#posted);
      post({ number: this.#posted, payload: text });
      void this.#watch();
    });
  }

  /** Closes the channel. Each call of `send` whose payload the child has not taken rejects, and so does every later one. */
  fail(reason: Error): void {
    if (this.#failure !== null) return;
    this.#failure = reason;
    this.#settleTaken(Atomics.or(this.#word, 0, closedBit));
    for (const { timer, reject } of this.#untaken.splice(0)) {
      clearTimeout(timer);
      reject(reason);
    }
    // Ends the wait below.
    Atomics.notify(this.#word, 0);
  }

  async #watch(): Promise<void> {
    if (this.#isWatching) return;
    this.#isWatching = true;
    for (;;) {
      const word = Atomics.load(this.#word, 0);
      this.#settleTaken(word);
      if (this.#untaken.length === 0) break;
      const wait = Atomics.waitAsync(this.#word, 0, word);
      if (wait.async) await wait.value;
    }
    this.#isWatching = false;
  }

  #settleTaken(word: number): void {
    const count = (word - this.#taken) & countMask;
    this.#taken = word & countMask;
    for (const { timer, resolve } of this.#untaken.splice(0, count)) {
      clearTimeout(timer);
      resolve();
    }
  }
}

/** The child's side. */
export class HandshakeReceiver {
  readonly #word: Int32Array<SharedArrayBuffer>;

  /** @param buffer that of the parent's HandshakeSender */
  constructor(buffer: SharedArrayBuffer) {
    this.#word = new Int32Array(buffer);
  }

  /** Takes the next payload. Returns null if the parent has closed the channel. */
  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- the message with the payload implies T
  take<T extends object>({ number, payload }: Handover): T | null {
    const before = (number - 1) & countMask;
    if (Atomics.compareExchange(this.#word, 0, before, number) !== before) return null;
    Atomics.notify(this.#word, 0);
    const taken: T = JSON.parse(payload);
    return taken;
  }
}

function ackTimeout(timeoutMs: number): PgTaskError {
  return new PgTaskError(
    "PROTOCOL_ACK_TIMEOUT",
    `expected the thread to take its parameters within ${timeoutMs} ms, got no answer; they have been withdrawn`,
  );
}
