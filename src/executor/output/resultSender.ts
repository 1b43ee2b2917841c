import type { FromExecutor } from "../../shared/ipc/executorMessages.js";
import type { OutgoingResult } from "../run/execution.js";

type SessionScopedMessage = Extract<FromExecutor, { readonly session: number }>;

/**
 * Sends messages to the manager. Large outputs are sent one at a time: each one only after the manager has written the
 * previous one, so that at most one of this thread's large outputs is in the manager's memory. While a large output
 * waits, later messages of its session wait behind it, so that their order is kept.
 */
export class ResultSender {
  readonly #send: (message: FromExecutor) => void;
  readonly #queue: {
    readonly session: number;
    readonly item: OutgoingResult | SessionScopedMessage;
  }[] = [];
  /** Whether the manager has yet to confirm that it has written the last large output. */
  #isWriting = false;

  constructor(send: (message: FromExecutor) => void) {
    this.#send = send;
  }

  /** Whether messages of this session are queued. If so, the session's next messages must be queued too. */
  hasQueued(session: number): boolean {
    return this.#queue.some((each) => each.session === session);
  }

  sendResult(result: OutgoingResult): void {
    const { session } = result;
    const waits = this.hasQueued(session) || (result.spilledOutput !== undefined && this.#isWriting);
    if (waits) this.#queue.push({ session, item: result });
    else this.#post(result);
  }

  sendMessage(message: FromExecutor): void {
    if ("session" in message && this.hasQueued(message.session)) {
      this.#queue.push({ session: message.session, item: message });
    } else this.#send(message);
  }

  /** Called when the manager has written the large output. Sends the messages that waited for this. */
  largeOutputWritten(): void {
    this.#isWriting = false;
    this.#sendQueued();
  }

  /** Sends all queued messages without waiting for confirmations, because none will arrive any more. */
  sendAll(): void {
    while (this.#queue.length > 0) this.largeOutputWritten();
  }

  #sendQueued(): void {
    const waiting = this.#queue.splice(0);
    for (const { item } of waiting) {
      if ("outcome" in item) this.sendResult(item);
      else this.sendMessage(item);
    }
  }

  #post({ spilledOutput, ...result }: OutgoingResult): void {
    if (spilledOutput === undefined || result.outcome === "released") {
      this.#send({ type: "results", results: [result] });
      return;
    }
    this.#isWriting = true;
    this.#send({ type: "results", results: [{ ...result, largeOutput: spilledOutput.take() }] });
  }
}
