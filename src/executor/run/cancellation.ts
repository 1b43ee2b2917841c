/** Why a run is cancelled on our own account; `room` is to be run again, all others end it. */
export type CancelReason = "timeout" | "output" | "abort" | "stop" | "room";

/** A cancel that hit nothing, or that the task's SQL caught, is asked for again after this. */
const repeatMs = 1000;

/**
 * Cancels one run through the manager, so that the cancel hits that run.
 *
 *     waiting ──begin──▶ running ──end──▶ ended
 *        ▲                  │
 *        └──────wait────────┘
 *
 * While waiting (another may be before it on the wire, or it has to be done again) a request is kept.
 * Once ended nothing is asked any more, but one that is under way must be waited for (`settled`)
 * before anything is run that it may not hit.
 */
export class RunCancellation {
  readonly #ask: () => void;
  #state: "waiting" | "running" | "ended" = "waiting";
  #reason: CancelReason | null = null;
  #underWay = false;
  #repeat: NodeJS.Timeout | undefined;
  #settle: (() => void)[] = [];

  /** @param ask asks the manager; it answers each time with `answered` */
  constructor(ask: () => void) {
    this.#ask = ask;
  }

  /** Why the run was first asked to end, null when it was not. */
  get reason(): CancelReason | null {
    return this.#reason;
  }

  /** From now on a cancel hits the run. */
  begin(): void {
    if (this.#state !== "waiting") return;
    this.#state = "running";
    if (this.#reason !== null) this.#send();
  }

  /** The run is to be done again: until then there is nothing to cancel. */
  wait(): void {
    if (this.#state !== "running") return;
    this.#state = "waiting";
    clearTimeout(this.#repeat);
  }

  /** Whether a cancel has been asked for and not been answered. */
  get underWay(): boolean {
    return this.#underWay;
  }

  request(reason: CancelReason): void {
    if (this.#state === "ended" || (this.#reason !== null && this.#reason !== "room")) return;
    const asked = this.#reason !== null;
    this.#reason = reason;
    if (this.#state === "running" && !asked) this.#send();
  }

  /** The run is to be done again, with room enough. */
  clear(): void {
    if (this.#reason !== "room") return;
    this.#reason = null;
    this.wait();
  }

  /** The manager's cancel has reached the server, if it could. */
  answered(): void {
    if (!this.#underWay) return;
    this.#underWay = false;
    for (const settle of this.#settle.splice(0)) settle();
    clearTimeout(this.#repeat);
    if (this.#state === "running") this.#repeat = setTimeout(() => this.#send(), repeatMs);
  }

  /** The run is over. */
  end(): void {
    this.#state = "ended";
    clearTimeout(this.#repeat);
  }

  /** Resolves when no cancel is under way. */
  async settled(): Promise<void> {
    if (!this.#underWay) return;
    await new Promise<void>((resolve) => this.#settle.push(resolve));
  }

  #send(): void {
    this.#underWay = true;
    this.#ask();
  }
}
