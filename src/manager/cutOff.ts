import { pause } from "../shared/backoff.js";
import type { Client } from "../shared/database.js";
import type { Log } from "../shared/log.js";
import { isPassing } from "./passing.js";
import type { Sessions } from "./sessions.js";
import { idleOwners } from "./sql/idleOwners.js";
import { endOwners } from "./sql/rescue.js";
import type { TaskTable } from "./table.js";

/** How often the server is asked about sessions that run something, in ms. */
const everyMs = 150;
/** For how long nothing may come of a server process that has nothing to do any more, in ms. */
const silenceMs = 500;

interface Silence {
  /** What it had to run, and since when its server process has had nothing to do. */
  readonly what: string;
  /** Whether its thread, which was asked after that, has heard nothing of it. */
  confirmed: boolean;
}

/**
 * Finds sessions that a network has swallowed: their tasks have run, or their server process is gone,
 * and nothing of it ever reaches us. The session's own thread has to say that nothing comes, so that
 * one that is too busy to read is not taken for one that is cut off.
 */
export class CutOff {
  readonly #table: TaskTable;
  readonly #sessions: Sessions;
  readonly #excuse: (owner: string) => void;
  readonly #log: Log;
  /** By owner. */
  #silent: ReadonlyMap<string, Silence> = new Map();

  constructor(options: {
    readonly table: TaskTable;
    readonly sessions: Sessions;
    /** What this session runs is not to blame for its end. */
    readonly excuse: (owner: string) => void;
    readonly log: Log;
  }) {
    this.#table = options.table;
    this.#sessions = options.sessions;
    this.#excuse = options.excuse;
    this.#log = options.log;
  }

  /** Its thread says that nothing comes of this session. */
  hear(owner: string): void {
    const silence = this.#silent.get(owner);
    if (silence !== undefined) silence.confirmed = true;
  }

  /** Looks, for as long as something runs, until `signal` is aborted. */
  async watch(client: Client, signal: AbortSignal): Promise<void> {
    while (await pause(everyMs, signal)) {
      if (this.#sessions.busy === 0) continue;
      try {
        await this.#look(client);
      } catch (error) {
        if (!isPassing(error)) throw error;
      }
    }
  }

  async #look(client: Client): Promise<void> {
    const running = this.#sessions.running();
    // The first of each session is the one that runs.
    const runs = new Map(running.toReversed().map(({ id, owner }) => [owner, id]));
    const silent = new Map<string, Silence>();
    const lost: string[] = [];
    for (const { owner, since } of await idleOwners(client, this.#table, running)) {
      const what = `${runs.get(owner)} ${since}`;
      const before = this.#silent.get(owner);
      if (before?.what !== what) silent.set(owner, { what, confirmed: false });
      else if (before.confirmed) lost.push(owner);
      else silent.set(owner, before);
    }
    this.#silent = silent;
    this.#sessions.listen([...silent.keys()], silenceMs);
    if (lost.length === 0) return;
    for (const owner of lost) {
      this.#log.warn({ id: runs.get(owner), owner }, "session is cut off from its server");
      this.#excuse(owner);
    }
    await endOwners(client, lost);
    this.#sessions.drop(lost);
  }
}
