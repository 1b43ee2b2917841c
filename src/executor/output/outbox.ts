import type { FromExecutor } from "../../shared/ipc/executorMessages.js";
import type { RunResult } from "../../shared/ipc/run.js";
import type { OutgoingResult } from "../run/execution.js";
import { resultBatchMs } from "../tuning.js";

/**
 * Sends messages to the manager. Those of one session keep their order. Small results are collected. Large outputs are
 * sent one at a time, each only after the manager has written the previous one, so that it holds at most one in memory.
 */
export class Outbox {
  readonly #post: (message: FromExecutor) => void;
  #results: RunResult[] = [];
  #isFlushScheduled = false;
  #flushTimer: NodeJS.Timeout | undefined;
  readonly #waiting: (OutgoingResult | (FromExecutor & { readonly session: number }))[] = [];
  #isWriting = false;

  constructor(post: (message: FromExecutor) => void) {
    this.#post = post;
  }

  /** @param isUrgent whether the session has nothing more to do until the manager knows the result */
  sendResult(result: OutgoingResult, isUrgent: boolean): void {
    const isLarge = result.spilledOutput !== undefined;
    if (this.#mustWait(result.session) || (isLarge && this.#isWriting)) this.#waiting.push(result);
    else if (isLarge) this.#sendLarge(result);
    else {
      this.#results.push(result);
      if (isUrgent) this.#flushSoon();
      else this.#flushTimer ??= setTimeout(() => this.#flush(), resultBatchMs);
    }
  }

  send(message: FromExecutor): void {
    this.#flush();
    if ("session" in message && this.#mustWait(message.session)) this.#waiting.push(message);
    else this.#post(message);
  }

  largeOutputWritten(): void {
    this.#isWriting = false;
    for (const each of this.#waiting.splice(0)) {
      if ("outcome" in each) this.sendResult(each, true);
      else this.send(each);
    }
  }

  /** Sends everything at once, because no more confirmations will arrive. */
  sendAll(): void {
    this.#flush();
    while (this.#waiting.length > 0) this.largeOutputWritten();
    this.#flush();
  }

  #sendLarge({ spilledOutput, ...result }: OutgoingResult): void {
    if (spilledOutput === undefined || result.outcome === "released") return;
    this.#flush();
    this.#isWriting = true;
    this.#post({ type: "results", results: [{ ...result, largeOutput: spilledOutput.take() }] });
  }

  #mustWait(session: number): boolean {
    return this.#waiting.some((each) => each.session === session);
  }

  #flushSoon(): void {
    if (this.#isFlushScheduled) return;
    this.#isFlushScheduled = true;
    setImmediate(() => this.#flush());
  }

  #flush(): void {
    this.#isFlushScheduled = false;
    clearTimeout(this.#flushTimer);
    this.#flushTimer = undefined;
    if (this.#results.length === 0) return;
    const results = this.#results;
    this.#results = [];
    this.#post({ type: "results", results });
  }
}
