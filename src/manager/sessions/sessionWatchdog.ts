import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import { WakeSignal } from "../../shared/wakeSignal.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import type { SessionPool } from "./sessionPool.js";
import { idleOwners } from "./idleOwners.sql.js";
import { endOwners } from "../recovery/rescue.sql.js";
import type { TaskTable } from "../schema/taskTable.js";

/** How often the server is asked about sessions that run something, in ms, and how often it looks for some. */
const everyMs = 150;
const lookMs = 300;
/** How often that is without any session, unless it is told of one, in ms. */
const restMs = 60_000;
/**
 * For how long nothing may come of a server process that has nothing to do any more, in ms: long enough for a
 * lost packet to be sent again.
 */
const silenceMs = 400;
/** One that has had nothing to do for less is not asked about, in ms. */
const leastIdleMs = 100;

interface Silence {
  /** What it had to run, and since when its server process has had nothing to do. */
  readonly what: string;
  /** Since when on our own clock. */
  readonly idleFrom: number;
  /** Whether its thread, which was asked after that, has heard nothing of it. */
  confirmed: boolean;
}

/**
 * Finds sessions that a network has swallowed: their tasks have run, or their server process is gone,
 * and nothing of it ever reaches us. The session's own thread has to say that nothing comes, so that
 * one that is too busy to read is not taken for one that is cut off.
 */
export class SessionWatchdog {
  readonly #table: TaskTable;
  readonly #sessions: SessionPool;
  readonly #excuse: (owner: string) => void;
  readonly #log: Log;
  readonly #bell = new WakeSignal();
  #resting = false;
  /** By owner. */
  #silent: ReadonlyMap<string, Silence> = new Map();

  constructor(options: {
    readonly table: TaskTable;
    readonly sessions: SessionPool;
    /** What this session runs is not to blame for its end. */
    readonly excuse: (owner: string) => void;
    readonly log: Log;
  }) {
    this.#table = options.table;
    this.#sessions = options.sessions;
    this.#excuse = options.excuse;
    this.#log = options.log;
  }

  /** Its thread says that nothing has come of this session for `ms`. */
  hear(owner: string, ms: number): void {
    const silence = this.#silent.get(owner);
    if (silence === undefined) return;
    const leftMs = silenceMs - Math.min(ms, performance.now() - silence.idleFrom);
    if (leftMs <= 0) {
      silence.confirmed = true;
      this.#bell.notify();
    } else if (leftMs < everyMs) setTimeout(() => this.#bell.notify(), leftMs).unref();
  }

  /** There may be sessions again. */
  wake(): void {
    if (!this.#resting || this.#sessions.size === 0) return;
    this.#resting = false;
    this.#bell.notify();
  }

  /** Looks, for as long as something runs, until `signal` is aborted. */
  async watch(client: Client, signal: AbortSignal): Promise<void> {
    signal.addEventListener("abort", () => this.#bell.notify(), { once: true });
    for (;;) {
      const { busy, size } = this.#sessions;
      this.#resting = size === 0;
      await this.#bell.wait(this.#resting ? restMs : busy === 0 ? lookMs : everyMs);
      if (signal.aborted) return;
      if (this.#sessions.busy === 0) continue;
      try {
        await this.#look(client);
      } catch (error) {
        if (!isTransient(error)) throw error;
      }
    }
  }

  async #look(client: Client): Promise<void> {
    const running = this.#sessions.awaited();
    const runs = new Map(running.map(({ id, owner }) => [owner, id]));
    const silent = new Map<string, Silence>();
    const lost: string[] = [];
    const idle = await idleOwners(client, this.#table, running);
    const now = performance.now();
    for (const { owner, since, idleMs } of idle) {
      const what = `${runs.get(owner)} ${since}`;
      const before = this.#silent.get(owner);
      if (before?.what !== what) {
        silent.set(owner, { what, idleFrom: now - (idleMs ?? 0), confirmed: false });
      } else if (before.confirmed) lost.push(owner);
      else silent.set(owner, before);
    }
    this.#silent = silent;
    const long = [...silent].filter(([, { idleFrom }]) => now - idleFrom >= leastIdleMs);
    this.#sessions.listen(long.map(([owner]) => owner));
    if (lost.length === 0) return;
    for (const owner of lost) {
      this.#log.warn({ id: runs.get(owner), owner }, "session is cut off from its server");
      this.#excuse(owner);
    }
    await endOwners(client, lost);
    this.#sessions.drop(lost);
  }
}
