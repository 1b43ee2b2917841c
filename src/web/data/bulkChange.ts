import { randomUUID } from "node:crypto";
import type { ChangeResult } from "../../tasks/commands/changeTasks.js";
import type { ChangeEffects } from "../../tasks/queries/changeEffects.js";
import { maxCounted } from "../../tasks/queries/counts.js";
import { ApiError, reasonOf } from "../errors.js";

/** What one request to the server changes. */
const batchSize = 500;
/** Of what came of tasks that were not changed: different texts, and ids for each. */
const maxOthers = 20;
const maxIds = 8;

export interface BulkSteps {
  /** Yields the ids of matching tasks, some at a time, as they are found. */
  readonly find: () => AsyncIterable<readonly string[]>;
  /** Given the first of them, and more than are examined if there are more. */
  readonly readEffects: (ids: readonly string[]) => Promise<ChangeEffects>;
  readonly change: (ids: readonly string[]) => Promise<readonly ChangeResult[]>;
  readonly describe: (result: ChangeResult) => string;
  /** Given how many tasks were changed. */
  readonly onEnd: (changed: number) => void;
}

/**
 * Changes all tasks that match a filter: exactly those that it has counted before. Until it ends, it can be stopped.
 *
 *     counting ──all found──▶ counted ──start──▶ running ──▶ done
 *         └───────────────────────┴─────stop────────┴──▶ stopped
 *         └──────────────error──────────────────────┴──▶ failed
 */
export class BulkChange {
  readonly id = randomUUID();
  readonly #steps: BulkSteps;
  /** Compact, because there can be millions. */
  #found: BigInt64Array[] = [];
  #phase: "counting" | "counted" | "running" | "done" | "stopped" | "failed" = "counting";
  #matched = 0;
  #done = 0;
  #changed = 0;
  #effects: ChangeEffects | null = null;
  #error: string | null = null;
  readonly #startsAtOnce: boolean;
  #stops = false;
  readonly #others = new Map<string, { tasks: number; readonly ids: string[] }>();

  /** @param starts whether it begins with the changes as soon as it has counted */
  constructor(steps: BulkSteps, starts: boolean) {
    this.#steps = steps;
    this.#startsAtOnce = starts;
    void this.#run(() => this.#count());
  }

  get isOver(): boolean {
    return this.#phase === "done" || this.#phase === "stopped" || this.#phase === "failed";
  }

  state() {
    return {
      id: this.id,
      phase: this.#phase,
      matched: this.#matched,
      done: this.#done,
      changed: this.#changed,
      others: [...this.#others].map(([text, { tasks, ids }]) => ({ text, tasks, ids: [...ids] })),
      effects: this.#effects,
      error: this.#error,
    };
  }

  /** @throws ApiError CONFLICT */
  start(): void {
    if (this.#phase !== "counted") throw new ApiError("CONFLICT", `expected counted tasks, it is ${this.#phase}`);
    this.#phase = "running";
    void this.#run(() => this.#change());
  }

  /** Takes effect after the batch that is under way. */
  stop(): void {
    if (this.#phase === "running") this.#stops = true;
    else if (!this.isOver) this.#end("stopped");
  }

  async #run(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (this.isOver) return;
      this.#error = reasonOf(error);
      this.#end("failed");
    }
  }

  async #count(): Promise<void> {
    for await (const ids of this.#steps.find()) {
      if (this.isOver) return;
      this.#found.push(BigInt64Array.from(ids, BigInt));
      this.#matched += ids.length;
    }
    if (!this.#startsAtOnce) this.#effects = await this.#steps.readEffects(this.#first(maxCounted + 1));
    if (this.isOver) return;
    this.#phase = "counted";
    if (this.#startsAtOnce) this.start();
  }

  #first(count: number): string[] {
    const first: string[] = [];
    for (const ids of this.#found) {
      if (first.length === count) break;
      first.push(...[...ids.subarray(0, count - first.length)].map(String));
    }
    return first;
  }

  async #change(): Promise<void> {
    for (const ids of this.#found) {
      for (let from = 0; from < ids.length; from += batchSize) {
        if (this.#stops) return this.#end("stopped");
        this.#note(await this.#steps.change([...ids.subarray(from, from + batchSize)].map(String)));
      }
    }
    this.#end("done");
  }

  #note(results: readonly ChangeResult[]): void {
    this.#done += results.length;
    for (const result of results) {
      if (result.outcome === "changed") this.#changed += 1;
      else this.#noteOther(result);
    }
  }

  #noteOther(result: ChangeResult): void {
    const text = this.#steps.describe(result);
    const known = this.#others.get(text) ?? { tasks: 0, ids: [] };
    if (this.#others.size >= maxOthers && known.tasks === 0) return;
    known.tasks += 1;
    if (known.ids.length < maxIds) known.ids.push(result.id);
    this.#others.set(text, known);
  }

  #end(phase: "done" | "stopped" | "failed"): void {
    this.#phase = phase;
    this.#found = [];
    this.#steps.onEnd(this.#changed);
  }
}

/** In ms. How long what came of a change can be asked for. */
const keepMs = 15 * 60_000;
const maxKept = 20;

/** Of one table. One runs at a time. */
export class BulkChanges {
  readonly #all = new Map<string, { readonly bulk: BulkChange; askedAt: number }>();

  /** @throws ApiError CONFLICT if one has not ended */
  add(steps: BulkSteps, starts: boolean): BulkChange {
    const now = performance.now();
    for (const [id, { bulk, askedAt }] of this.#all) {
      if (now - askedAt < keepMs && this.#all.size < maxKept) continue;
      bulk.stop();
      this.#all.delete(id);
    }
    // Those that nobody has confirmed are given up.
    for (const { bulk } of this.#all.values()) if (bulk.state().phase !== "running") bulk.stop();
    if ([...this.#all.values()].some(({ bulk }) => !bulk.isOver)) {
      throw new ApiError(
        "CONFLICT",
        "another change of many tasks of this table is running: wait for its end, or stop it",
      );
    }
    const bulk = new BulkChange(steps, starts);
    this.#all.set(bulk.id, { bulk, askedAt: now });
    return bulk;
  }

  /** @throws ApiError NOT_FOUND */
  get(id: string): BulkChange {
    const found = this.#all.get(id);
    if (found === undefined) {
      throw new ApiError(
        "NOT_FOUND",
        "there is no such change: it ended long ago, or pg-task was started anew meanwhile",
      );
    }
    found.askedAt = performance.now();
    return found.bulk;
  }
}
