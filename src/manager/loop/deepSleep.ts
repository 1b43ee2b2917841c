/**
 * Decides when a manager falls into deep sleep, in which it keeps no executor threads.
 *
 *   awake ──`idle` empty checks──▶ asleep (until a wake-up or the next planned time)
 *     ▲                              │
 *     └────────wake-up, or a task────┘
 */
export class DeepSleep {
  #isAsleep = false;
  #emptyChecks = 0;

  get isAsleep(): boolean {
    return this.#isAsleep;
  }

  /** Wakes the manager if it is asleep, and starts counting empty checks anew. */
  stayAwake(): void {
    this.#isAsleep = false;
    this.#emptyChecks = 0;
  }

  /**
   * Records that a check has found nothing to do.
   *
   * @param idle number of empty checks after which the manager falls asleep
   * @returns whether the manager has fallen asleep just now
   */
  countEmptyCheck(idle: number): boolean {
    this.#emptyChecks += 1;
    if (this.#isAsleep || this.#emptyChecks < idle) return false;
    this.#isAsleep = true;
    return true;
  }
}
