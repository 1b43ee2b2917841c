import { Backoff, pause } from "../shared/backoff.js";
import type { ConnectionTarget } from "../shared/config/types.js";
import { connect, disconnect, type Client } from "../shared/database.js";
import { listen } from "../manager/connection.js";
import type { TaskTable } from "../manager/table.js";
import { changeCount } from "../tasks/changeCount.js";
import { applicationName, webSettings } from "./connections.js";

/** How often the server is asked whether rows were written of which no wake-up told, in ms. */
const lookMs = 2_000;
/** Watchers are told so often at most, in ms. */
const tellMs = 250;

/**
 * Tells of changes to a table for as long as somebody watches it, on a connection of its own: that
 * hears the table's wake-ups, and asks now and then what was written without one. With nobody
 * watching there is neither connection nor query.
 */
export class Watch {
  readonly #target: ConnectionTarget;
  readonly #table: TaskTable;
  readonly #watchers = new Set<() => void>();
  #attempt: AbortController | null = null;
  #work: Promise<void> = Promise.resolve();
  #timer: NodeJS.Timeout | null = null;

  constructor(target: ConnectionTarget, table: TaskTable) {
    this.#target = target;
    this.#table = table;
  }

  /** Calls `watcher` after changes; the function returned ends that. */
  add(watcher: () => void): () => void {
    const own = (): void => watcher();
    this.#watchers.add(own);
    if (this.#watchers.size === 1) this.#begin();
    return () => {
      if (this.#watchers.delete(own) && this.#watchers.size === 0) void this.#end();
    };
  }

  /** Something changed, says somebody who knows. */
  touch(): void {
    if (this.#watchers.size === 0) return;
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      for (const watcher of this.#watchers) watcher();
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

  /** Comes back after every loss of its connection; never rejects. */
  async #watchUntil(signal: AbortSignal): Promise<void> {
    const backoff = new Backoff({ firstMs: 200, maxMs: 10_000 });
    while (!signal.aborted) {
      try {
        await this.#watch(signal, () => backoff.reset());
      } catch {
        // What is wrong with the connection is what those who ask for tasks are told.
      }
      await pause(backoff.next(), signal);
    }
  }

  async #watch(signal: AbortSignal, connected: () => void): Promise<void> {
    const client = await connect(this.#target, {
      applicationName,
      settings: webSettings,
      signal,
    });
    const over = new AbortController();
    client.once("end", () => over.abort());
    client.on("notification", () => this.touch());
    try {
      await listen(client, this.#table);
      connected();
      await this.#look(client, AbortSignal.any([signal, over.signal]));
    } finally {
      await disconnect(client);
    }
  }

  async #look(client: Client, signal: AbortSignal): Promise<void> {
    let before = "";
    do {
      const now = await changeCount(client, this.#table);
      // Also the first time: before, nobody listened.
      if (now !== before) this.touch();
      before = now;
    } while (await pause(lookMs, signal));
  }
}
