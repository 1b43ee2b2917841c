import { PgTaskError } from "../errors.js";

/**
 * How a parent thread hands parameters and tasks to its child: each payload is in a SharedArrayBuffer of its own, behind
 * one word that tells whose it is:
 *
 *     offered ──child takes the payload──▶ taken
 *        │
 *        └──parent gives the child up──▶ withdrawn
 *
 * Both transitions are atomic: what the child has taken is never reported as lost, and a late child gets nothing that
 * was given up.
 */
const offered = 0;
const taken = 1;
const withdrawn = 2;

const wordBytes = Int32Array.BYTES_PER_ELEMENT;

export interface Handover {
  /** The word, then the payload as JSON in UTF-8, in which lone surrogates are escaped. */
  readonly shared: SharedArrayBuffer;
}

const wordOf = (shared: SharedArrayBuffer): Int32Array<SharedArrayBuffer> => new Int32Array(shared, 0, 1);

interface Untaken {
  readonly word: Int32Array<SharedArrayBuffer>;
  readonly timer: NodeJS.Timeout;
  readonly resolve: () => void;
  readonly reject: (reason: Error) => void;
}

export class HandshakeSender {
  readonly #untaken = new Set<Untaken>();
  #failure: Error | null = null;

  /**
   * Calls `post` to send the payload as a part of a message. Resolves when the child has taken it.
   *
   * @param timeoutMs 1 to 2147483647. If it passes, the channel fails.
   * @throws PgTaskError PROTOCOL_ACK_TIMEOUT, or the reason given to `fail`
   */
  async send(payload: object, post: (handover: Handover) => void, timeoutMs: number): Promise<void> {
    if (this.#failure !== null) throw this.#failure;
    const text = JSON.stringify(payload);
    const shared = new SharedArrayBuffer(wordBytes + Buffer.byteLength(text));
    Buffer.from(shared, wordBytes).write(text);
    await new Promise<void>((resolve, reject) => {
      // This timer also keeps the process alive until the child answers. Atomics.waitAsync would not.
      const timer = setTimeout(() => this.fail(ackTimeout(timeoutMs)), timeoutMs);
      const untaken = { word: wordOf(shared), timer, resolve, reject };
      this.#untaken.add(untaken);
      post({ shared });
      void this.#awaitTaken(untaken);
    });
  }

  /** Withdraws what the child has not taken. Each call of `send` for it rejects, and so does every later one. */
  fail(reason: Error): void {
    this.#failure ??= reason;
    for (const untaken of this.#untaken) {
      const state = Atomics.compareExchange(untaken.word, 0, offered, withdrawn);
      this.#settle(untaken, state === taken ? null : this.#failure);
      // Ends the wait below.
      Atomics.notify(untaken.word, 0);
    }
  }

  async #awaitTaken(untaken: Untaken): Promise<void> {
    const wait = Atomics.waitAsync(untaken.word, 0, offered);
    if (wait.async) await wait.value;
    // If `fail` has ended the wait, the payload is settled already.
    if (this.#untaken.has(untaken)) this.#settle(untaken, null);
  }

  #settle(untaken: Untaken, failure: Error | null): void {
    this.#untaken.delete(untaken);
    clearTimeout(untaken.timer);
    if (failure === null) untaken.resolve();
    else untaken.reject(failure);
  }
}

/** Returns null if the payload was withdrawn, or taken before. */
// oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- the message with the payload implies T
export function takePayload<T extends object>({ shared }: Handover): T | null {
  const word = wordOf(shared);
  if (Atomics.compareExchange(word, 0, offered, taken) !== offered) return null;
  Atomics.notify(word, 0);
  const payload: T = JSON.parse(Buffer.from(shared, wordBytes).toString());
  return payload;
}

function ackTimeout(timeoutMs: number): PgTaskError {
  return new PgTaskError(
    "PROTOCOL_ACK_TIMEOUT",
    `expected the thread to take its parameters within ${timeoutMs} ms, got no answer; they have been withdrawn`,
  );
}
