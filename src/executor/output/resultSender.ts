import type { FromExecutor } from "../../shared/ipc/messages.js";
import type { OutgoingResult } from "../run/execution.js";

type OfSession = Extract<FromExecutor, { readonly session: number }>;

/**
 * Hands to the manager what it is to know, large outputs one at a time: the next one leaves, and gets
 * into the memory of both, when those before it are written. What comes of a session after its large
 * output waits behind it.
 */
export class ResultSender {
  readonly #send: (message: FromExecutor) => void;
  readonly #waiting: { readonly session: number; readonly what: OutgoingResult | OfSession }[] = [];
  /** Whether a large output has been handed over and is not known to be written. */
  #under = false;

  constructor(send: (message: FromExecutor) => void) {
    this.#send = send;
  }

  /** Whether something of this session waits, behind which everything else of it has to wait. */
  holds(session: number): boolean {
    return this.#waiting.some((each) => each.session === session);
  }

  result(result: OutgoingResult): void {
    const { session } = result;
    const waits = this.holds(session) || (result.stored !== undefined && this.#under);
    if (waits) this.#waiting.push({ session, what: result });
    else this.#handOver(result);
  }

  tell(message: FromExecutor): void {
    if ("session" in message && this.holds(message.session)) {
      this.#waiting.push({ session: message.session, what: message });
    } else this.#send(message);
  }

  /** What was handed over is written. */
  written(): void {
    this.#under = false;
    this.#goOn();
  }

  /** Hands everything over, since nothing will be answered any more. */
  end(): void {
    while (this.#waiting.length > 0) this.written();
  }

  #goOn(): void {
    const waiting = this.#waiting.splice(0);
    for (const { what } of waiting) {
      if ("outcome" in what) this.result(what);
      else this.tell(what);
    }
  }

  #handOver({ stored, ...result }: OutgoingResult): void {
    if (stored === undefined || result.outcome === "returned") {
      this.#send({ type: "results", results: [result] });
      return;
    }
    this.#under = true;
    this.#send({ type: "results", results: [{ ...result, large: stored.take() }] });
  }
}
