import { Backoff, sleep } from "../../shared/backoff.js";
import type { ConnectionTarget } from "../../shared/postgres/target/target.js";
import { applicationNames } from "../../shared/postgres/applicationNames.js";
import { connectClient, destroyOnAbort, disconnect, type Client } from "../../shared/postgres/client.js";
import { listenToTable } from "../../manager/schema/listen.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import { readChangeCounter } from "../../tasks/queries/counts.js";
import { webSettings } from "./connectionPool.js";
import { withTimeout } from "./timeLimit.js";

/** In ms. The write counters are read because not every write sends a notification. */
const pollMs = 2_000;
/** In ms. */
const notifyMs = 250;
/** For connecting and for each query, in ms. A slow statement ends earlier, because of `statement_timeout`. */
const queryMs = 6_000;

export interface ChangeListener {
  /** Called when rows were written, or when writes may have been missed. */
  changed(): void;
  liveChanged(live: boolean): void;
}

/**
 * Detects changes to a table while the feed has listeners. It uses its own connection, on which it receives the table's
 * notifications and polls the table's write counters. Without listeners, the feed has neither a connection nor a timer.
 *
 *     idle ──first listener──▶ connecting ──counters read──▶ live
 *      ▲                         │     ▲                      │
 *      │                         │     └──lost, after a pause─┤
 *      └──no listener left───────┴────────────────────────────┘
 */
export class ChangeFeed {
  readonly #target: ConnectionTarget;
  readonly #table: TaskTable;
  readonly #mayConnect: boolean;
  readonly #listeners = new Set<ChangeListener>();
  #watching: AbortController | null = null;
  #work: Promise<void> = Promise.resolve();
  #timer: NodeJS.Timeout | null = null;
  #live = false;

  constructor(target: ConnectionTarget, table: TaskTable, mayConnect: boolean) {
    this.#target = target;
    this.#table = table;
    this.#mayConnect = mayConnect;
  }

  /** Calls `listener.liveChanged` at once. Returns a function that removes the listener. */
  subscribe(listener: ChangeListener): () => void {
    this.#listeners.add(listener);
    if (this.#listeners.size === 1 && this.#mayConnect) this.#start();
    listener.liveChanged(this.#live);
    return () => {
      if (this.#listeners.delete(listener) && this.#listeners.size === 0) void this.#stop();
    };
  }

  noteChange(): void {
    if (this.#listeners.size === 0) return;
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      for (const listener of this.#listeners) listener.changed();
    }, notifyMs);
  }

  async close(): Promise<void> {
    this.#listeners.clear();
    await this.#stop();
  }

  #start(): void {
    const watching = new AbortController();
    this.#watching = watching;
    this.#work = this.#work.then(() => this.#watchUntil(watching.signal));
  }

  async #stop(): Promise<void> {
    this.#watching?.abort();
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    await this.#work;
  }

  #setLive(live: boolean): void {
    if (live === this.#live) return;
    this.#live = live;
    for (const listener of this.#listeners) listener.liveChanged(live);
    if (live) this.noteChange();
  }

  /** Reconnects when the connection is lost. Never rejects. */
  async #watchUntil(signal: AbortSignal): Promise<void> {
    const backoff = new Backoff({ firstMs: 200, maxMs: 5_000 });
    while (!signal.aborted) {
      try {
        await this.#watch(signal, () => backoff.reset());
      } catch {
        // The error is ignored here, because requests for the table's tasks fail with the same error and report it.
      }
      await sleep(backoff.next(), signal);
    }
  }

  async #watch(signal: AbortSignal, onAnswer: () => void): Promise<void> {
    const client = await withTimeout(queryMs, signal, (timeout) =>
      connectClient(this.#target, {
        applicationName: applicationNames.web,
        settings: webSettings,
        signal: timeout,
      }),
    );
    const ended = new AbortController();
    const end = (): void => ended.abort();
    client.once("end", end);
    signal.addEventListener("abort", end);
    client.on("notification", () => this.noteChange());
    try {
      await queryInTime(client, signal, () => listenToTable(client, this.#table));
      let previous: string | null = null;
      do {
        const count = await queryInTime(client, signal, () => readChangeCounter(client, this.#table));
        onAnswer();
        this.#setLive(true);
        if (previous !== null && count !== previous) this.noteChange();
        previous = count;
      } while (await sleep(pollMs, ended.signal));
    } finally {
      signal.removeEventListener("abort", end);
      this.#setLive(false);
      await disconnect(client);
    }
  }
}

async function queryInTime<T>(client: Client, signal: AbortSignal, query: () => Promise<T>): Promise<T> {
  return await withTimeout(queryMs, signal, (timeout) => destroyOnAbort(timeout, client, query));
}
