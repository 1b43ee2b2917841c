import type { RemotePid } from "./remotePid.sql.js";

/** Processes of remote servers that are not in their tasks' rows yet. */
export class RemotePids {
  #waiting: RemotePid[] = [];
  readonly #held: RemotePid[] = [];

  get empty(): boolean {
    return this.#waiting.length === 0;
  }

  /** How many wait for `release`. */
  get held(): number {
    return this.#held.length;
  }

  add(place: RemotePid): void {
    this.#waiting.push(place);
  }

  take(): RemotePid[] {
    return this.#waiting.splice(0);
  }

  /** For what cannot be written now: it waits for `release`. */
  hold(places: readonly RemotePid[]): void {
    this.#held.push(...places);
  }

  release(): void {
    this.#waiting = [...this.#held.splice(0), ...this.#waiting];
  }
}
