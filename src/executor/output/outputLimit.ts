/**
 * Maximum output of a task, in bytes. It applies even if the configured limit is higher, because one statement has to
 * carry the output as a single value.
 */
export const maxOutputBytes = 256 << 20;

/** Limits the output of one attempt. The caller cancels the run when the output exceeds the limit. */
export class OutputLimit {
  readonly #maxBytes: number;
  /** When the output exceeds this many bytes, `onNear` is called once. */
  #nearBytes = Infinity;
  #onNear: () => void = () => {};

  /** @param maxBytes the configured limit, in bytes of UTF-8 */
  constructor(maxBytes: number) {
    this.#maxBytes = Math.min(maxBytes, maxOutputBytes);
  }

  /** The error of a task whose output exceeds the limit. */
  get error(): string {
    return `output exceeds ${this.#maxBytes} bytes${this.#maxBytes < maxOutputBytes ? " (pg_task.output)" : ""}`;
  }

  isExceededBy(bytes: number): boolean {
    return bytes > this.#maxBytes;
  }

  /**
   * Calls `onNear` once, when the received and announced output comes within `beforeLimit` bytes of the limit. If the
   * limit is lower than `beforeLimit`, `onNear` is called at the first output.
   *
   * @param beforeLimit distance to the limit, in bytes
   */
  warnBefore(beforeLimit: number, onNear: () => void): void {
    this.#nearBytes = Math.max(0, this.#maxBytes - beforeLimit);
    this.#onNear = onNear;
  }

  /**
   * @param bytes size of the output received so far, including the announced size of a message that is still arriving
   */
  checkNear(bytes: number): void {
    if (bytes <= this.#nearBytes) return;
    this.#nearBytes = Infinity;
    this.#onNear();
  }
}
