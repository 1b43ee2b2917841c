import type { RunResult } from "../../shared/ipc/run.js";
import type { ClaimedTask, OwnedResult, OwnedTask } from "../model/tasks.js";
import { maxWrittenResults } from "../model/tuning.js";

/** The maximum length of all outputs and errors in one statement, in characters. A single result may be longer. */
const maxTextLength = 8 * 1024 * 1024;

/** A task that did not run, or whose run had no effect. It returns to PLAN. */
export interface ReleasedTask extends OwnedTask {
  /** The hash of the task's group and the task's own `max`; undefined if not known. */
  readonly due?: { readonly hash: number; readonly max: number };
}

interface Deferred<Item> {
  readonly item: Item;
  /** When writing the item may be tried again, on the process's clock. 0 means at the next `requeueDeferred`. */
  readonly until: number;
  readonly rejected: boolean;
}

/**
 * Results and released tasks that are not yet written to their rows.
 *
 *   add ──▶ queued ──take──▶ being written ──▶ written
 *           ▲ │  ▲                │ │
 *           │ │  └────requeue─────┘ └─defer──▶ deferred ──requeueDeferred──▶ queued
 *           └─┘ requeueLast: behind all others
 */
export class PendingResults {
  #results: OwnedResult[] = [];
  #released: ReleasedTask[] = [];
  /**
   * Results that are written after all others. Nothing waits for them, because the server may well reject some of them.
   */
  #lastResults: OwnedResult[] = [];
  #lastReleased: ReleasedTask[] = [];
  /** Results with large outputs. They are written one at a time, in parallel with the other results. */
  #large: OwnedResult[] = [];
  #largeInProgress: OwnedResult | null = null;
  /** Whether no task may start, because the table may be a copy. */
  blocksAll = false;
  /** The number of results after which the task's group may have to pause. */
  #pausingCount = 0;
  #deferred: Deferred<OwnedResult>[] = [];
  #deferredReleases: Deferred<ReleasedTask>[] = [];

  /**
   * Adds a result or a released task.
   * @param queued the task's entry in its session's queue; undefined if the session no longer has the task.
   */
  add(
    result: RunResult & Pick<OwnedResult, "owedNote">,
    owner: string,
    queued?: {
      readonly task: Pick<ClaimedTask, "hash" | "max" | "mayPause">;
      readonly hasPlainEnd: boolean;
    },
  ): void {
    if (result.outcome === "ended") {
      const pauses = queued?.task.mayPause === true ? queued.task.hash : undefined;
      if (pauses !== undefined) this.#pausingCount += 1;
      const owned = toOwnedResult(result, owner, pauses, queued?.hasPlainEnd === true);
      (result.largeOutput === undefined ? this.#results : this.#large).push(owned);
    } else {
      if (queued === undefined) this.#released.push({ id: result.id, owner });
      else {
        const { hash, max } = queued.task;
        this.#released.push({ id: result.id, owner, due: { hash, max } });
      }
    }
  }

  /** Whether there is nothing to write now, apart from large outputs. */
  get isEmpty(): boolean {
    return this.#queuedCount === 0;
  }

  /** The number of results with large outputs that are queued or being written. */
  get largeCount(): number {
    return this.#large.length + (this.#largeInProgress === null ? 0 : 1);
  }

  /**
   * Returns whether no task of this group may start before the next write. This is the case if the group has to pause,
   * or if tasks that come before others of the group are about to be released.
   */
  blocksGroup(hash: number): boolean {
    if (!this.blocksAnyGroup) return false;
    return (
      this.blocksAll ||
      this.#released.some(({ due }) => due?.hash === hash) ||
      [...this.#results, ...this.#large].some(({ pausingHash: pauses }) => pauses === hash) ||
      this.#largeInProgress?.pausingHash === hash
    );
  }

  get blocksAnyGroup(): boolean {
    return this.blocksAll || this.#released.length > 0 || this.#pausingCount > 0;
  }

  /** The number of results and released tasks that wait for `requeueDeferred`, except rejected ones. */
  get deferredCount(): number {
    return this.#allDeferredCount - this.rejectedCount;
  }

  /** The number of results and released tasks that wait because the server rejected them. */
  get rejectedCount(): number {
    return [...this.#deferred, ...this.#deferredReleases].filter(({ rejected }) => rejected).length;
  }

  /**
   * Time until the next result or released task that the server rejected is written again, in ms. Infinity if none was
   * rejected.
   */
  get rejectedRetryMs(): number {
    const all = [...this.#deferred, ...this.#deferredReleases];
    const times = all.flatMap(({ rejected, until }) => (rejected ? until : []));
    return Math.max(0, Math.min(...times) - performance.now());
  }

  get #allDeferredCount(): number {
    return this.#deferred.length + this.#deferredReleases.length;
  }

  get #queuedCount(): number {
    const first = this.#results.length + this.#released.length;
    return first + this.#lastResults.length + this.#lastReleased.length;
  }

  /** The number of results and released tasks that are not written yet, including those that are deferred. */
  get size(): number {
    return this.#queuedCount + this.largeCount + this.#allDeferredCount;
  }

  /** The owners of unwritten results, except rejected ones. */
  get unwrittenOwners(): ReadonlySet<string> {
    const results = [...this.#results, ...this.#lastResults, ...this.#large];
    if (this.#largeInProgress !== null) results.push(this.#largeInProgress);
    for (const { item, rejected } of this.#deferred) if (!rejected) results.push(item);
    return new Set(results.map(({ owner }) => owner));
  }

  /** The counts for the log. */
  get state(): Readonly<Record<string, number>> {
    const results = this.#results.length + this.#lastResults.length;
    const released = this.#released.length + this.#lastReleased.length;
    return {
      results,
      released,
      large: this.largeCount,
      deferred: this.deferredCount,
      pausing: this.#pausingCount,
    };
  }

  /** Whether a result or a release of the task by this owner is not written yet. */
  has({ id, owner }: OwnedTask): boolean {
    const isTask = (each: OwnedTask | null): boolean => each?.id === id && each.owner === owner;
    if (isTask(this.#largeInProgress)) return true;
    return (
      [this.#results, this.#lastResults, this.#large, this.#released, this.#lastReleased].some((list) =>
        list.some(isTask),
      ) || [...this.#deferred, ...this.#deferredReleases].some(({ item }) => isTask(item))
    );
  }

  /** Removes and returns as many results as one statement should write. */
  takeResults(): OwnedResult[] {
    let textLength = 0;
    let count = 0;
    const take = (from: OwnedResult[]): OwnedResult[] => {
      const before = count;
      for (const result of from) {
        textLength += (result.output?.length ?? 0) + (result.error?.length ?? 0);
        if (count > 0 && (textLength > maxTextLength || count >= maxWrittenResults)) break;
        count += 1;
      }
      return from.splice(0, count - before);
    };
    const taken = take(this.#results);
    this.#pausingCount -= countPausing(taken);
    return this.#lastResults.length === 0 ? taken : [...taken, ...take(this.#lastResults)];
  }

  /**
   * Takes the next result with a large output. The result counts as unwritten, and no other can be taken, until
   * `settleLarge` is called.
   * @returns null if there is no such result, or if `settleLarge` has not been called for the last one yet.
   */
  takeLarge(): OwnedResult | null {
    if (this.#largeInProgress !== null) return null;
    this.#largeInProgress = this.#large.shift() ?? null;
    return this.#largeInProgress;
  }

  /** Called when the result from `takeLarge` has been written, deferred or requeued. */
  settleLarge(): void {
    if (this.#largeInProgress?.pausingHash !== undefined) this.#pausingCount -= 1;
    this.#largeInProgress = null;
  }

  takeReleased(): ReleasedTask[] {
    const taken = this.#released.splice(0, maxWrittenResults);
    if (this.#lastReleased.length === 0) return taken;
    return [...taken, ...this.#lastReleased.splice(0, maxWrittenResults - taken.length)];
  }

  /** Removes and returns the results of runs that a server crash may have undone, including deferred results. */
  takeUnconfirmed(): OwnedResult[] {
    const all = [
      ...this.#deferred.splice(0).map(({ item }) => item),
      ...this.#results.splice(0),
      ...this.#lastResults.splice(0),
      ...this.#large.splice(0),
    ];
    this.#pausingCount = this.#largeInProgress?.pausingHash === undefined ? 0 : 1;
    this.requeue(
      all.filter((result) => !mayBeUndoneByCrash(result)),
      [],
    );
    return all.filter(mayBeUndoneByCrash);
  }

  /** Puts these items first in the next statement, for example after the connection was lost. */
  requeue(results: readonly OwnedResult[], released: readonly ReleasedTask[]): void {
    const large = results.filter((result) => result.largeOutput !== undefined);
    this.#results = [...results.filter((result) => result.largeOutput === undefined), ...this.#results];
    if (large.length > 0) this.#large = [...large, ...this.#large];
    this.#pausingCount += countPausing(results);
    this.#released = [...released, ...this.#released];
  }

  /**
   * Puts these items last. The server rejects some of them, and there was no time left to find out which. At the end of
   * the queue they delay neither other results nor claims.
   */
  requeueLast(results: readonly OwnedResult[], released: readonly ReleasedTask[]): void {
    const large = results.filter((result) => result.largeOutput !== undefined);
    this.#large.push(...large);
    this.#pausingCount += countPausing(large);
    this.#lastResults.push(...results.filter((result) => result.largeOutput === undefined));
    this.#lastReleased.push(...released);
  }

  /**
   * Keeps items that cannot be written now, until `requeueDeferred` is called.
   *
   * @param until when the items may be tried again, on the process's clock.
   * @param rejected whether the server rejected the items for a reason that is not transient. Then nothing
   *   waits for the items.
   */
  defer(results: readonly OwnedResult[], released: readonly ReleasedTask[], until = 0, rejected = false): void {
    for (const item of results) this.#deferred.push({ item, until, rejected });
    for (const item of released) this.#deferredReleases.push({ item, until, rejected });
  }

  /** Requeues the items that may be tried again at `now`. */
  requeueDeferred(now = performance.now()): void {
    const isDue = ({ until }: Deferred<unknown>): boolean => until <= now;
    const results = this.#deferred.filter(isDue);
    const released = this.#deferredReleases.filter(isDue);
    this.#deferred = this.#deferred.filter((each) => !isDue(each));
    this.#deferredReleases = this.#deferredReleases.filter((each) => !isDue(each));
    this.requeue(itemsOf(results, false), itemsOf(released, false));
    // Items that may well be rejected again come last, so that they delay nothing else.
    this.requeueLast(itemsOf(results, true), itemsOf(released, true));
  }
}

/**
 * Returns the deferred items of one kind: those with a time (`timed`), or those without one, which wait only for the
 * next `requeueDeferred`.
 */
function itemsOf<Item>(deferred: readonly Deferred<Item>[], timed: boolean): Item[] {
  return deferred.flatMap(({ item, until }) => (until > 0 === timed ? item : []));
}

/** Returns whether a crash of the server right after the run may undo the run's effect. */
export function mayBeUndoneByCrash({ committed, unflushed }: Pick<OwnedResult, "committed" | "unflushed">): boolean {
  return committed || unflushed === true;
}

/** Copies each property by name, because spreading whole objects costs more than everything else here. */
function toOwnedResult(
  result: Extract<RunResult, { outcome: "ended" }> & Pick<OwnedResult, "owedNote">,
  owner: string,
  pausingHash: number | undefined,
  isPlain: boolean,
): OwnedResult {
  const { outcome, session, id, start, stop, output, largeOutput, error, sqlstate, committed, unflushed, owedNote } =
    result;
  const owned: OwnedResult = {
    outcome,
    session,
    id,
    start,
    stop,
    output,
    error,
    sqlstate,
    committed,
    unflushed,
    owner,
    pausingHash,
    isPlain,
    owedNote,
  };
  return largeOutput === undefined ? owned : { ...owned, largeOutput };
}

function countPausing(results: readonly OwnedResult[]): number {
  let count = 0;
  for (const { pausingHash } of results) if (pausingHash !== undefined) count += 1;
  return count;
}
