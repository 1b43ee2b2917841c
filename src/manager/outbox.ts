import type { RunResult } from "../shared/messages.js";
import type { Held } from "./sessionQueue.js";
import type { OwnedResult } from "./sql/complete.js";
import type { OwnedTask } from "./sql/giveBack.js";

/** Most output and error text of one statement, in characters; a single error may be larger. */
const mostText = 8 * 1024 * 1024;
const mostResults = 1000;

/** A task that did not run, or left nothing behind. */
export interface ReturnedTask extends OwnedTask {
  /** Where it stands in its group, when that is known. */
  readonly due?: { readonly hash: number; readonly max: number };
}

/** What has come out and is not in its row yet. */
export class Outbox {
  #results: OwnedResult[] = [];
  #returns: ReturnedTask[] = [];
  /** Those with large outputs are written one by one, beside the others. */
  #large: OwnedResult[] = [];
  #largeUnderWay: OwnedResult | null = null;
  /** How many of the results are of tasks whose group may pause after them. */
  #pausing = 0;
  readonly #held: { results: OwnedResult[]; returns: ReturnedTask[] } = {
    results: [],
    returns: [],
  };

  /** @param task what is known of it, if it is. */
  add(
    result: RunResult,
    owner: string,
    task?: Pick<Held, "hash" | "max" | "pauses" | "plain">,
  ): void {
    if (result.outcome === "ended") {
      const pauses = task?.pauses === true ? task.hash : undefined;
      if (pauses !== undefined) this.#pausing += 1;
      const own = owned(result, owner, pauses, task?.plain === true);
      (result.large === undefined ? this.#results : this.#large).push(own);
    } else {
      const due = task === undefined ? {} : { due: { hash: task.hash, max: task.max } };
      this.#returns.push({ id: result.id, owner, ...due });
    }
  }

  /** Whether there is nothing to write now, large results aside. */
  get empty(): boolean {
    return this.#results.length === 0 && this.#returns.length === 0;
  }

  /** How many results with large outputs are to be written, or are being written. */
  get large(): number {
    return this.#large.length + (this.#largeUnderWay === null ? 0 : 1);
  }

  /**
   * Whether nothing of this group may start before the next write: tasks that come before others are
   * on their way back to it, or it has to pause.
   */
  holdsUp(hash: number): boolean {
    if (!this.holdsUpAny) return false;
    return (
      this.#returns.some(({ due }) => due?.hash === hash) ||
      [...this.#results, ...this.#large].some(({ pauses }) => pauses === hash) ||
      this.#largeUnderWay?.pauses === hash
    );
  }

  /** Whether that is so of any group. */
  get holdsUpAny(): boolean {
    return this.#returns.length > 0 || this.#pausing > 0;
  }

  /** How many wait for `release`. */
  get held(): number {
    return this.#held.results.length + this.#held.returns.length;
  }

  /** How many are not in their rows, those that wait included. */
  get size(): number {
    return this.#results.length + this.#returns.length + this.large + this.held;
  }

  has(id: string): boolean {
    const { results, returns } = this.#held;
    if (this.#largeUnderWay?.id === id) return true;
    return [this.#results, this.#large, this.#returns, results, returns].some((list) =>
      list.some((each) => each.id === id),
    );
  }

  /** Removes and returns as many results as one statement should carry. */
  takeResults(): OwnedResult[] {
    let text = 0;
    let count = 0;
    for (const result of this.#results) {
      text += (result.output?.length ?? 0) + (result.error?.length ?? 0);
      if (count > 0 && (text > mostText || count >= mostResults)) break;
      count += 1;
    }
    const taken = this.#results.splice(0, count);
    this.#pausing -= countPausing(taken);
    return taken;
  }

  /** A result with a large output, which counts as not written before `settleLarge`; null while there is one. */
  takeLarge(): OwnedResult | null {
    if (this.#largeUnderWay !== null) return null;
    this.#largeUnderWay = this.#large.shift() ?? null;
    return this.#largeUnderWay;
  }

  /** What `takeLarge` gave is written, or was held or put back. */
  settleLarge(): void {
    if (this.#largeUnderWay?.pauses !== undefined) this.#pausing -= 1;
    this.#largeUnderWay = null;
  }

  takeReturns(): ReturnedTask[] {
    return this.#returns.splice(0, mostResults);
  }

  /** Removes and returns what a crash of the server may have undone, whether it waits for `release` or not. */
  takeDoubtful(): OwnedResult[] {
    const all = [
      ...this.#held.results.splice(0),
      ...this.#results.splice(0),
      ...this.#large.splice(0),
    ];
    this.#pausing = this.#largeUnderWay?.pauses === undefined ? 0 : 1;
    this.putBack(
      all.filter((result) => !mayBeUndone(result)),
      [],
    );
    return all.filter(mayBeUndone);
  }

  /** For what was not written since the connection went: first in the next statement. */
  putBack(results: readonly OwnedResult[], returns: readonly ReturnedTask[]): void {
    const large = results.filter((result) => result.large !== undefined);
    this.#results = [...results.filter((result) => result.large === undefined), ...this.#results];
    if (large.length > 0) this.#large = [...large, ...this.#large];
    this.#pausing += countPausing(results);
    this.#returns = [...returns, ...this.#returns];
  }

  /** For what cannot be written now: it waits for `release`. */
  hold(results: readonly OwnedResult[], returns: readonly ReturnedTask[]): void {
    this.#held.results.push(...results);
    this.#held.returns.push(...returns);
  }

  release(): void {
    this.putBack(this.#held.results.splice(0), this.#held.returns.splice(0));
  }
}

/** Whether a crash of the server right after it may undo what it has done. */
export function mayBeUndone({
  committed,
  unflushed,
}: Pick<OwnedResult, "committed" | "unflushed">): boolean {
  return committed || unflushed === true;
}

/** Each by its name: copying whole objects costs more than all the rest here. */
function owned(
  result: Extract<RunResult, { outcome: "ended" }>,
  owner: string,
  pauses: number | undefined,
  plain: boolean,
): OwnedResult {
  const { outcome, session, id, start, stop, output, large, error, committed, unflushed } = result;
  const own = {
    outcome,
    session,
    id,
    start,
    stop,
    output,
    error,
    committed,
    unflushed,
    owner,
    pauses,
    plain,
  };
  return large === undefined ? own : { ...own, large };
}

function countPausing(results: readonly OwnedResult[]): number {
  let count = 0;
  for (const { pauses } of results) if (pauses !== undefined) count += 1;
  return count;
}
