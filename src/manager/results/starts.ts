import type { StartedTask } from "../sessions/session.js";

/** Tasks that run, and whose rows do not say so yet. */
export class Starts {
  #waiting: StartedTask[] = [];
  readonly #held: StartedTask[] = [];

  get empty(): boolean {
    return this.#waiting.length === 0;
  }

  /** How many wait for `release`. */
  get held(): number {
    return this.#held.length;
  }

  add(task: StartedTask): void {
    this.#waiting.push(task);
  }

  take(): StartedTask[] {
    return this.#waiting.splice(0);
  }

  /** For what cannot be written now: it waits for `release`. */
  hold(tasks: readonly StartedTask[]): void {
    this.#held.push(...tasks);
  }

  release(): void {
    this.#waiting = [...this.#held.splice(0), ...this.#waiting];
  }
}
