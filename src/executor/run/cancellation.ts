import { startTimer } from "../../shared/longTimer.js";
import { cancelRepeatMs } from "../tuning.js";

/** Why pg-task cancels a run. After `outputNearLimit` the run is repeated. All other reasons end the run. */
export type CancelReason = "timeout" | "output" | "abort" | "stop" | "outputNearLimit";

/**
 * Cancels one run, on request or when its timeout expires. Requests a cancel only while the cancel can hit no other
 * run.
 *
 *     waiting ──start──▶ running ──end──▶ ended
 *        ▲                  │
 *        └─────suspend──────┘
 *
 * In the state `waiting`, another run may be ahead of this one on the wire, or this run is to be retried. A cancel
 * requested in this state is kept until the run starts. In the state `ended`, no more cancels are requested. A cancel
 * that is still pending must be awaited (`whenSettled`) before anything is sent that the cancel must not hit.
 */
export class RunCancellation {
  readonly #requestCancel: () => void;
  readonly #timeoutMs: number;
  /** Stops the timer, which covers all attempts together. Null until the run starts for the first time. */
  #stopTimeout: (() => void) | null = null;
  #state: "waiting" | "running" | "ended" = "waiting";
  #reason: CancelReason | null = null;
  #isPending = false;
  #repeatTimer: NodeJS.Timeout | undefined;
  #onSettled: (() => void)[] = [];

  /**
   * @param timeoutMs time limit of the run, in ms; 0 means no limit
   * @param requestCancel requests a cancel: from the manager, or from the other server if the run is remote. Each
   * request is answered by a call of `cancelAnswered`.
   */
  constructor(timeoutMs: number, requestCancel: () => void) {
    this.#timeoutMs = timeoutMs;
    this.#requestCancel = requestCancel;
  }

  /** Why the run is cancelled: the first reason, but any other one replaces `outputNearLimit`. Null if it is not. */
  get reason(): CancelReason | null {
    return this.#reason;
  }

  /** Notes that the run has started, so that a cancel now hits it. Sends the cancel if one was requested earlier. */
  start(): void {
    if (this.#state !== "waiting") return;
    this.#state = "running";
    if (this.#reason !== null) this.#send();
    if (this.#timeoutMs > 0) this.#stopTimeout ??= startTimer(this.#timeoutMs, () => this.request("timeout"));
  }

  /** Notes that there is nothing to cancel until the run is retried. */
  suspend(): void {
    if (this.#state !== "running") return;
    this.#state = "waiting";
    clearTimeout(this.#repeatTimer);
  }

  /** Whether a cancel has been requested but not answered yet. */
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

  /** Forgets the reason `outputNearLimit`: the retry is stepwise, and needs no such cancel. */
  clearForRetry(): void {
    if (this.#reason !== "outputNearLimit") return;
    this.#reason = null;
    this.suspend();
  }

  /** Notes that the requested cancel has reached the server, or could not be sent. */
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
