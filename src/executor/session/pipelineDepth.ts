/** Fewest and most runs on the wire at once; the most where no run has been long of late. */
const least = 4;
const most = 16;
const mostOfShort = 32;
/** Those behind a run that takes longer than this, in ms, would feel it, and so many runs are how long that counts. */
const longMs = 50;
const remembered = 256;
/** What is on the wire should take about so long, in ms. */
const wireMs = 8;
/**
 * What a longer and what a shorter run makes of the usual time, which so is what a third of them stay
 * below. The mean would not do: the last on the wire ends for the server when the next arrives, so that
 * whatever holds us up would make runs look longer, fewer of them be sent, and more of them be the last.
 */
const longer = 1.25;
const shorter = 0.64;

/** How many runs may be on a wire at once, by how long they take of late. */
export class PipelineDepth {
  #usualMs = wireMs / least;
  /** How many runs there have been since one was long. */
  #sinceLong = 0;

  get runs(): number {
    const allowed = this.#sinceLong < remembered ? most : mostOfShort;
    return Math.min(allowed, Math.floor(wireMs / this.#usualMs));
  }

  /** @param ms how long one has taken the server. */
  took(ms: number): void {
    this.#sinceLong = ms > longMs ? 0 : this.#sinceLong + 1;
    const usualMs = this.#usualMs * (ms > this.#usualMs ? longer : shorter);
    // No further than that one run alone changes nothing, so that it soon follows when runs change.
    this.#usualMs = Math.min(wireMs / least, Math.max(wireMs / mostOfShort / longer, usualMs));
  }
}
