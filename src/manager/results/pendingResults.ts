import type { RunResult } from "../../shared/ipc/run.js";
import type { ClaimedTask, OwnedResult, OwnedTask } from "../model/tasks.js";
import { maxWrittenResults } from "../model/tuning.js";
import { WriteQueue } from "./writeQueue.js";

/** The maximum length of all outputs and errors in one statement, in characters. A single result may be longer. */
const maxTextLength = 8 * 1024 * 1024;

/** A task that did not run, or whose run had no effect, so that it returns to PLAN. */
export interface ReleasedTask extends OwnedTask {
  readonly due?: { readonly hash: number; readonly max: number };
}

/** Results and released tasks that are not yet written to their rows. */
export class PendingResults {
  readonly #results = new WriteQueue<OwnedResult>();
  /** Results with large outputs, which are written one at a time, in parallel with the others. */
  readonly #large = new WriteQueue<OwnedResult>();
  readonly released = new WriteQueue<ReleasedTask>();
  readonly #queues = [this.#results, this.#large, this.released] as const;
  #largeInProgress: OwnedResult | null = null;
  /** Whether no task may start, because the table may be a copy. */
  blocksAll = false;
  /** The groups that may have to pause after a result is written. Null before they are looked for again. */
  #pausing: ReadonlySet<number> | null = null;

  add(
    result: RunResult & Pick<OwnedResult, "owedNote">,
    owner: string,
    {
      task: { hash, max, mayPause },
      hasPlainEnd,
    }: { readonly task: Pick<ClaimedTask, "hash" | "max" | "mayPause">; readonly hasPlainEnd: boolean },
  ): void {
    if (result.outcome === "ended") {
      const pausingHash = mayPause ? hash : undefined;
      // The result is extended in place, because copying it costs more than everything else here.
      const owned = Object.assign(result, { owner, pausingHash, isPlain: hasPlainEnd });
      this.#queueOf(owned).add(owned);
      if (pausingHash !== undefined) this.#pausing = null;
    } else this.released.add({ id: result.id, owner, due: { hash, max } });
  }

  get isEmpty(): boolean {
    return this.#results.count + this.released.count === 0;
  }

  get largeCount(): number {
    return this.#large.count + (this.#largeInProgress === null ? 0 : 1);
  }

  /** Whether the group has to pause, or tasks that come before others of it are about to be released. */
  blocksGroup(hash: number): boolean {
    return (
      this.blocksAll || this.#pausingGroups.has(hash) || this.released.queued.some(({ due }) => due?.hash === hash)
    );
  }

  get blocksAnyGroup(): boolean {
    return this.blocksAll || this.released.queued.length > 0 || this.#pausingGroups.size > 0;
  }

  get #pausingGroups(): ReadonlySet<number> {
    if (this.#pausing !== null) return this.#pausing;
    const results = [...this.#results.queued, ...this.#large.queued];
    if (this.#largeInProgress !== null) results.push(this.#largeInProgress);
    return (this.#pausing = new Set(results.flatMap(({ pausingHash }) => pausingHash ?? [])));
  }

  get deferredCount(): number {
    return sum(this.#queues, ({ deferredCount }) => deferredCount);
  }

  get rejectedCount(): number {
    return sum(this.#queues, ({ rejectedCount }) => rejectedCount);
  }

  /** Time until the next rejected item is written again, in ms. Infinity if there is none. */
  get rejectedRetryMs(): number {
    const until = Math.min(...this.#queues.map(({ rejectedUntil }) => rejectedUntil));
    return Math.max(0, until - performance.now());
  }

  /** How many results and released tasks are not written yet. */
  get size(): number {
    const queued = this.#results.count + this.largeCount + this.released.count;
    return queued + this.deferredCount + this.rejectedCount;
  }

  /** The tasks of these results, and the released ones. */
  get ids(): string[] {
    const written = this.#queues.flatMap((queue): OwnedTask[] => queue.all);
    return [...written, ...(this.#largeInProgress === null ? [] : [this.#largeInProgress])].map(({ id }) => id);
  }

  get unwrittenOwners(): ReadonlySet<string> {
    const results = [...this.#results.unrejected, ...this.#large.unrejected];
    if (this.#largeInProgress !== null) results.push(this.#largeInProgress);
    return new Set(results.map(({ owner }) => owner));
  }

  get state(): Readonly<Record<string, number>> {
    return {
      results: this.#results.count,
      released: this.released.count,
      large: this.largeCount,
      deferred: this.deferredCount,
      pausing: this.#pausingGroups.size,
    };
  }

  has({ id, owner }: OwnedTask): boolean {
    const isTask = (each: OwnedTask | null): boolean => each?.id === id && each.owner === owner;
    return isTask(this.#largeInProgress) || this.#queues.some((queue) => queue.some(isTask));
  }

  takeResults(): OwnedResult[] {
    let textLength = 0;
    let count = 0;
    this.#pausing = null;
    return this.#results.takeWhile(({ output, error }) => {
      textLength += (output?.length ?? 0) + (error?.length ?? 0);
      count += 1;
      return count === 1 || (textLength <= maxTextLength && count <= maxWrittenResults);
    });
  }

  /** Takes the next large result, unwritten until `settleLarge`. Null if there is none, or one is taken already. */
  takeLarge(): OwnedResult | null {
    if (this.#largeInProgress !== null) return null;
    const [next = null] = this.#large.take(1);
    this.#largeInProgress = next;
    return next;
  }

  /** Called when the result from `takeLarge` has been written, deferred or requeued. */
  settleLarge(): void {
    this.#largeInProgress = null;
    this.#pausing = null;
  }

  takeReleased(): ReleasedTask[] {
    return this.released.take(maxWrittenResults);
  }

  /** Takes the results of runs that a server crash may have undone. */
  takeUnconfirmed(): OwnedResult[] {
    const all = [...this.#results.takeAll(), ...this.#large.takeAll()];
    this.requeue(all.filter((result) => !mayBeUndoneByCrash(result)));
    return all.filter(mayBeUndoneByCrash);
  }

  requeue(results: readonly OwnedResult[]): void {
    this.#pausing = null;
    this.#results.requeue(results.filter(({ largeOutput }) => largeOutput === undefined));
    this.#large.requeue(results.filter(({ largeOutput }) => largeOutput !== undefined));
  }

  /** Puts these results last, because the server may reject some of them. */
  requeueLast(results: readonly OwnedResult[]): void {
    for (const result of results) this.#queueOf(result).requeueLast([result]);
  }

  defer(results: readonly OwnedResult[], until = 0, rejected = false): void {
    for (const result of results) this.#queueOf(result).defer([result], until, rejected);
  }

  requeueDeferred(now = performance.now()): void {
    this.#pausing = null;
    for (const queue of this.#queues) queue.requeueDeferred(now);
  }

  #queueOf({ largeOutput }: OwnedResult): WriteQueue<OwnedResult> {
    return largeOutput === undefined ? this.#results : this.#large;
  }
}

const sum = <Item>(items: readonly Item[], count: (item: Item) => number): number =>
  items.reduce((total, item) => total + count(item), 0);

/** Whether a crash of the server right after the run may undo the run's effect. */
export function mayBeUndoneByCrash({
  committed,
  unflushed,
  isRemote,
}: Pick<OwnedResult, "committed" | "unflushed" | "isRemote">): boolean {
  return isRemote !== true && (committed || unflushed === true);
}
