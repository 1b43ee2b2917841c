import { startTimer } from "../../shared/backoff.js";
import { cancelRepeatMs } from "../tuning.js";

export type CancelReason = "timeout" | "output" | "abort" | "stop" | "outputNearLimit";

/**
 * Cancels one run, on request or when its timeout expires, but only while the cancel can hit no other run.
 *
 *     waiting ──start──▶ running ──end──▶ ended
 *        ▲                  │
 *        └─────suspend──────┘
 *
 * While `waiting`, another run may be ahead on the wire, or this one is to be retried: a cancel is kept until it starts.
 * A pending cancel must be awaited (`whenSettled`) before anything is sent that it must not hit.
 */
export class RunCancellation {
  readonly #requestCancel: () => void;
  readonly #timeoutMs: number;
  /** Stops the timer, which covers all attempts together. */
  #stopTimeout: (() => void) | null = null;
  #state: "waiting" | "running" | "ended" = "waiting";
  #reason: CancelReason | null = null;
  #isPending = false;
  #repeatTimer: NodeJS.Timeout | undefined;
  #onSettled: (() => void)[] = [];

  /** @param requestCancel is answered by a call of `cancelAnswered` */
  constructor(timeoutMs: number, requestCancel: () => void) {
    this.#timeoutMs = timeoutMs;
    this.#requestCancel = requestCancel;
  }

  /** The first reason, but any other one replaces `outputNearLimit`. */
  get reason(): CancelReason | null {
    return this.#reason;
  }

  start(): void {
    if (this.#state !== "waiting") return;
    this.#state = "running";
    if (this.#reason !== null) this.#send();
    if (this.#timeoutMs > 0) this.#stopTimeout ??= startTimer(this.#timeoutMs, () => this.request("timeout"));
  }

  suspend(): void {
    if (this.#state !== "running") return;
    this.#state = "waiting";
    clearTimeout(this.#repeatTimer);
  }

  get isPending(): boolean {
    return this.#isPending;
  }

  request(reason: CancelReason): void {
    if (this.#state === "ended") return;
    if (this.#reason !== null && this.#reason !== "outputNearLimit") return;
    const isFirst = this.#reason === null;
    this.#reason = reason;
    if (this.#state === "running" && isFirst) this.#send();
  }

  /** The retry is stepwise, and needs no cancel for `outputNearLimit`. */
  clearForRetry(): void {
    if (this.#reason !== "outputNearLimit") return;
    this.#reason = null;
    this.suspend();
  }

  /** The requested cancel has reached the server, or could not be sent. */
  cancelAnswered(): void {
    if (!this.#isPending) return;
    this.#isPending = false;
    for (const settle of this.#onSettled.splice(0)) settle();
    clearTimeout(this.#repeatTimer);
    if (this.#state === "running") {
      this.#repeatTimer = setTimeout(() => this.#send(), cancelRepeatMs);
    }
  }

  end(): void {
    this.#state = "ended";
    this.#stopTimeout?.();
    clearTimeout(this.#repeatTimer);
  }

  async whenSettled(): Promise<void> {
    if (!this.#isPending) return;
    await new Promise<void>((resolve) => this.#onSettled.push(resolve));
  }

  #send(): void {
    this.#isPending = true;
    this.#requestCancel();
  }
}
