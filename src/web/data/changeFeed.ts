import { Backoff, sleep } from "../../shared/backoff.js";
import type { ConnectionTarget } from "../../shared/config/types.js";
import { connectClient, disconnect, type Client } from "../../shared/postgres/client.js";
import { listen } from "../../manager/connection.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import { changeCount } from "../../tasks/queries/changeCounter.js";
import { webApplicationName, webSettings } from "./connectionPool.js";
import { cutOffAt, limited } from "./timeLimit.js";

/** How often the server is asked whether rows were written of which no wake-up told, in ms. */
const lookMs = 2_000;
/** Watchers are told so often at most, in ms. */
const tellMs = 250;
/** How long the server may take to answer, in ms; it ends a statement before. */
const answerMs = 6_000;

/** Somebody who watches a table. */
export interface Watcher {
  /** Something was written, or may have been. */
  changed(): void;
  /** Changes are heard of from now on, or not any more. */
  live(live: boolean): void;
}

/**
 * Tells of changes to a table for as long as somebody watches it, on a connection of its own: that
 * hears the table's wake-ups, and asks now and then what was written without one. With nobody
 * watching there is neither connection nor query.
 */
export class ChangeFeed {
  readonly #target: ConnectionTarget;
  readonly #table: TaskTable;
  readonly #watchers = new Set<Watcher>();
  #attempt: AbortController | null = null;
  #work: Promise<void> = Promise.resolve();
  #timer: NodeJS.Timeout | null = null;
  #live = false;

  constructor(target: ConnectionTarget, table: TaskTable) {
    this.#target = target;
    this.#table = table;
  }

  /** Tells `watcher`, first whether changes are heard of; the function returned ends that. */
  add(watcher: Watcher): () => void {
    this.#watchers.add(watcher);
    if (this.#watchers.size === 1) this.#begin();
    watcher.live(this.#live);
    return () => {
      if (this.#watchers.delete(watcher) && this.#watchers.size === 0) void this.#end();
    };
  }

  /** Something changed, says somebody who knows. */
  touch(): void {
    if (this.#watchers.size === 0) return;
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      for (const watcher of this.#watchers) watcher.changed();
    }, tellMs);
  }

  async close(): Promise<void> {
    this.#watchers.clear();
    await this.#end();
  }

  #begin(): void {
    const attempt = new AbortController();
    this.#attempt = attempt;
    this.#work = this.#work.then(() => this.#watchUntil(attempt.signal));
  }

  async #end(): Promise<void> {
    this.#attempt?.abort();
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    await this.#work;
  }

  #setLive(live: boolean): void {
    if (live === this.#live) return;
    this.#live = live;
    for (const watcher of this.#watchers) watcher.live(live);
    if (live) this.touch();
  }

  /** Comes back after every loss of its connection; never rejects. */
  async #watchUntil(signal: AbortSignal): Promise<void> {
    const backoff = new Backoff({ firstMs: 200, maxMs: 5_000 });
    while (!signal.aborted) {
      try {
        await this.#watch(signal, () => backoff.reset());
      } catch {
        // What is wrong with the connection is what those who ask for tasks are told.
      }
      await sleep(backoff.next(), signal);
    }
  }

  async #watch(signal: AbortSignal, heard: () => void): Promise<void> {
    const client = await limited(answerMs, signal, (attempt) =>
      connectClient(this.#target, {
        applicationName: webApplicationName,
        settings: webSettings,
        signal: attempt,
      }),
    );
    const over = new AbortController();
    const end = (): void => over.abort();
    client.once("end", end);
    signal.addEventListener("abort", end);
    client.on("notification", () => this.touch());
    try {
      await answered(client, signal, () => listen(client, this.#table));
      let before: string | null = null;
      do {
        const now = await answered(client, signal, () => changeCount(client, this.#table));
        heard();
        this.#setLive(true);
        if (before !== null && now !== before) this.touch();
        before = now;
      } while (await sleep(lookMs, over.signal));
    } finally {
      signal.removeEventListener("abort", end);
      this.#setLive(false);
      await disconnect(client);
    }
  }
}

/** A question that is cut off with its connection when it is not answered in time. */
async function answered<T>(
  client: Client,
  signal: AbortSignal,
  question: () => Promise<T>,
): Promise<T> {
  return await limited(answerMs, signal, (limit) => cutOffAt(limit, client, question));
}
