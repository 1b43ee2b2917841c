import type { RunResult } from "../../shared/ipc/messages.js";
import type { QueuedTask } from "../sessions/sessionQueue.js";
import type { OwnedResult } from "./completeFull.sql.js";
import type { OwnedTask } from "./releaseTasks.sql.js";

/** Most output and error text of one statement, in characters; a single error may be larger. */
const mostText = 8 * 1024 * 1024;
const mostResults = 1000;

/** A task that did not run, or left nothing behind. */
export interface ReleasedTask extends OwnedTask {
  /** Where it stands in its group, when that is known. */
  readonly due?: { readonly hash: number; readonly max: number };
}

interface Held<What> {
  readonly what: What;
  readonly until: number;
  readonly refused: boolean;
}

/** What has come out and is not in its row yet. */
export class PendingResults {
  #results: OwnedResult[] = [];
  #returns: ReleasedTask[] = [];
  /** Those that come after the others, and that nothing waits for, since some of them may well be refused. */
  #resultsBehind: OwnedResult[] = [];
  #returnsBehind: ReleasedTask[] = [];
  /** Those with large outputs are written one by one, beside the others. */
  #large: OwnedResult[] = [];
  #largeUnderWay: OwnedResult | null = null;
  /** How many of the results are of tasks whose group may pause after them. */
  #pausing = 0;
  /** Those that wait for `release`, and until when, on the process's clock. */
  #held: Held<OwnedResult>[] = [];
  #heldReturns: Held<ReleasedTask>[] = [];

  /** @param task what is known of it, if it is. */
  add(
    result: RunResult,
    owner: string,
    task?: Pick<QueuedTask, "hash" | "max" | "pauses" | "plain">,
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
    return this.#toWrite === 0;
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

  /** How many wait for `release`, those that were refused aside. */
  get held(): number {
    return this.#allHeld - this.refused;
  }

  /** How many wait since the server has refused them. */
  get refused(): number {
    return [...this.#held, ...this.#heldReturns].filter(({ refused }) => refused).length;
  }

  /** Until the next of those is tried again, in ms; Infinity when there is none. */
  get refusedMs(): number {
    const refused = [...this.#held, ...this.#heldReturns].filter((held) => held.refused);
    return Math.max(0, Math.min(...refused.map(({ until }) => until)) - performance.now());
  }

  get #allHeld(): number {
    return this.#held.length + this.#heldReturns.length;
  }

  get #toWrite(): number {
    const first = this.#results.length + this.#returns.length;
    return first + this.#resultsBehind.length + this.#returnsBehind.length;
  }

  /** How many are not in their rows, those that wait included. */
  get size(): number {
    return this.#toWrite + this.large + this.#allHeld;
  }

  /** Whose results are not in their rows, those that were refused aside. */
  get owners(): ReadonlySet<string> {
    const results = [...this.#results, ...this.#resultsBehind, ...this.#large];
    if (this.#largeUnderWay !== null) results.push(this.#largeUnderWay);
    for (const { what, refused } of this.#held) if (!refused) results.push(what);
    return new Set(results.map(({ owner }) => owner));
  }

  /** How much of what there is. */
  get state(): Readonly<Record<string, number>> {
    const results = this.#results.length + this.#resultsBehind.length;
    const returns = this.#returns.length + this.#returnsBehind.length;
    return { results, returns, large: this.large, held: this.held, pausing: this.#pausing };
  }

  has(id: string): boolean {
    if (this.#largeUnderWay?.id === id) return true;
    return (
      [this.#results, this.#resultsBehind, this.#large, this.#returns, this.#returnsBehind].some(
        (list) => list.some((each) => each.id === id),
      ) || [...this.#held, ...this.#heldReturns].some(({ what }) => what.id === id)
    );
  }

  /** Removes and returns as many results as one statement should carry. */
  takeResults(): OwnedResult[] {
    let text = 0;
    let count = 0;
    const take = (from: OwnedResult[]): OwnedResult[] => {
      const before = count;
      for (const result of from) {
        text += (result.output?.length ?? 0) + (result.error?.length ?? 0);
        if (count > 0 && (text > mostText || count >= mostResults)) break;
        count += 1;
      }
      return from.splice(0, count - before);
    };
    const taken = take(this.#results);
    this.#pausing -= countPausing(taken);
    return this.#resultsBehind.length === 0 ? taken : [...taken, ...take(this.#resultsBehind)];
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

  takeReturns(): ReleasedTask[] {
    const taken = this.#returns.splice(0, mostResults);
    if (this.#returnsBehind.length === 0) return taken;
    return [...taken, ...this.#returnsBehind.splice(0, mostResults - taken.length)];
  }

  /** Removes and returns what a crash of the server may have undone, whether it waits for `release` or not. */
  takeDoubtful(): OwnedResult[] {
    const all = [
      ...this.#held.splice(0).map(({ what }) => what),
      ...this.#results.splice(0),
      ...this.#resultsBehind.splice(0),
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
  putBack(results: readonly OwnedResult[], returns: readonly ReleasedTask[]): void {
    const large = results.filter((result) => result.large !== undefined);
    this.#results = [...results.filter((result) => result.large === undefined), ...this.#results];
    if (large.length > 0) this.#large = [...large, ...this.#large];
    this.#pausing += countPausing(results);
    this.#returns = [...returns, ...this.#returns];
  }

  /** For what there was no time for, since some of it is refused: last, so that it holds up nothing else, no claim either. */
  putBehind(results: readonly OwnedResult[], returns: readonly ReleasedTask[]): void {
    const large = results.filter((result) => result.large !== undefined);
    this.#large.push(...large);
    this.#pausing += countPausing(large);
    this.#resultsBehind.push(...results.filter((result) => result.large === undefined));
    this.#returnsBehind.push(...returns);
  }

  /**
   * For what cannot be written now: it waits for `release`.
   *
   * @param until when it may be tried again, on the process's clock.
   * @param refused whether it was refused, and not by what may pass by itself: then nobody waits for it.
   */
  hold(
    results: readonly OwnedResult[],
    returns: readonly ReleasedTask[],
    until = 0,
    refused = false,
  ): void {
    for (const what of results) this.#held.push({ what, until, refused });
    for (const what of returns) this.#heldReturns.push({ what, until, refused });
  }

  /** Puts what is held back, but for what is to wait beyond `now`. */
  release(now = performance.now()): void {
    const due = ({ until }: Held<unknown>): boolean => until <= now;
    const results = this.#held.filter(due);
    const returns = this.#heldReturns.filter(due);
    this.#held = this.#held.filter((held) => !due(held));
    this.#heldReturns = this.#heldReturns.filter((held) => !due(held));
    this.putBack(heldUntil(results, false), heldUntil(returns, false));
    // What may well be refused again comes last, so that it holds up nothing else.
    this.putBehind(heldUntil(results, true), heldUntil(returns, true));
  }
}

/** Those that had to wait until some time, or those that had to wait for a release only. */
function heldUntil<What>(held: readonly Held<What>[], some: boolean): What[] {
  return held.flatMap(({ what, until }) => (until > 0 === some ? what : []));
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
