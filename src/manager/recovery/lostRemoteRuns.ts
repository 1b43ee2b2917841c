import type { Log } from "../../shared/log.js";
import type { RemoteRun } from "./remoteRuns.sql.js";

/** Pauses between questions about one run, in ms. */
const pauseMs = { first: 200, longest: 5_000 };
/** How many servers are asked at the same moment, at most. */
const mostAtOnce = 8;

/** Asks a run's own server: whether the process is gone, null when that is not to be known. */
export type Seek = (run: RemoteRun) => Promise<boolean | null>;

interface Sought {
  readonly run: RemoteRun;
  /** When its server was last heard of. */
  heardAt: number;
  askAt: number;
  pauseMs: number;
  asking: boolean;
  /** Whether it said nothing when it was asked last. */
  silent: boolean;
  gone: boolean;
}

/**
 * Remote runs whose session here is gone, while they may go on where they run: their servers are
 * asked, each for itself and beside everything else, so that one that does not answer holds up nobody.
 *
 *   sought ──its server says that it is gone, or is not heard of for `reset`──▶ gone
 *     ▲ │
 *     └─┘ it is there, or the server cannot be asked
 */
export class LostRemoteRuns {
  readonly #seek: Seek;
  readonly #changed: () => void;
  readonly #resetMs: () => number;
  readonly #log: Log;
  readonly #now: () => number;
  /** By id and owner: another run of the same task is another one. */
  readonly #sought = new Map<string, Sought>();

  constructor(options: {
    readonly seek: Seek;
    /** One is found to be gone. */
    readonly changed: () => void;
    /** How long a server may be silent until its runs are given up. */
    readonly resetMs: () => number;
    readonly log: Log;
    readonly now?: () => number;
  }) {
    this.#seek = options.seek;
    this.#changed = options.changed;
    this.#resetMs = options.resetMs;
    this.#log = options.log;
    this.#now = options.now ?? (() => performance.now());
  }

  /**
   * Asks about these, which are all there are.
   *
   * @returns ids of those that may still run.
   */
  settle(runs: readonly RemoteRun[]): ReadonlySet<string> {
    const names = new Set(runs.map(nameOf));
    for (const name of this.#sought.keys()) if (!names.has(name)) this.#sought.delete(name);
    for (const run of runs) {
      if (!this.#sought.has(nameOf(run))) this.#begin(run);
    }
    for (const sought of this.#sought.values()) this.#giveUp(sought);
    this.#ask();
    const left = [...this.#sought.values()].filter(({ gone }) => !gone);
    return new Set(left.map(({ run }) => run.id));
  }

  /** When one of them is to be asked about, in ms. */
  get pauseMs(): number {
    const waiting = [...this.#sought.values()].filter(({ asking, gone }) => !asking && !gone);
    const nearest = Math.min(...waiting.map(({ askAt }) => askAt));
    return Math.max(0, nearest - this.#now());
  }

  #begin(run: RemoteRun): void {
    const now = this.#now();
    const pause = pauseMs.first;
    this.#sought.set(nameOf(run), {
      run,
      heardAt: now,
      askAt: now,
      pauseMs: pause,
      asking: false,
      silent: false,
      gone: false,
    });
    this.#log.info({ id: run.id }, "remote task may still run, its server is asked");
  }

  #giveUp(sought: Sought): void {
    if (sought.gone || !sought.silent || this.#now() - sought.heardAt < this.#resetMs()) return;
    sought.gone = true;
    this.#log.warn(
      { id: sought.run.id },
      "server of a remote task could not be asked whether it still runs, it may run twice",
    );
  }

  #ask(): void {
    const all = [...this.#sought.values()];
    const room = mostAtOnce - all.filter(({ asking }) => asking).length;
    const due = all.filter((each) => !each.asking && !each.gone && each.askAt <= this.#now());
    for (const sought of due.slice(0, room)) void this.#askAbout(sought);
  }

  async #askAbout(sought: Sought): Promise<void> {
    sought.asking = true;
    const gone = await this.#seek(sought.run);
    sought.asking = false;
    sought.silent = gone === null;
    if (!sought.silent) sought.heardAt = this.#now();
    sought.askAt = this.#now() + sought.pauseMs;
    sought.pauseMs = Math.min(2 * sought.pauseMs, pauseMs.longest);
    if (gone !== true) return;
    sought.gone = true;
    this.#changed();
  }
}

const nameOf = ({ id, owner }: RemoteRun): string => `${id} ${owner}`;
