import type { Client } from "../shared/database.js";
import type { Log } from "../shared/log.js";
import { isPassing } from "./passing.js";
import type { Sessions } from "./sessions.js";
import { idleOwners } from "./sql/idleOwners.js";
import { endOwners } from "./sql/rescue.js";
import type { TaskTable } from "./table.js";

/** How often the server is asked about sessions that run something, in ms. */
const everyMs = 1_000;
/** How long the answer of a server process that has nothing to do any more may be on the way, in ms. */
const answerMs = 6_000;

interface Silence {
  /** What it had to run, and since when its server process has had nothing to do. */
  readonly what: string;
  readonly foundAt: number;
}

/**
 * Finds sessions that a network has swallowed: their tasks have run, or their server process is gone,
 * and nothing of it ever reaches us.
 */
export class CutOff {
  readonly #table: TaskTable;
  readonly #sessions: Sessions;
  readonly #excuse: (owner: string) => void;
  readonly #log: Log;
  #lookedAt = 0;
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

  /** When it wants to look again, in ms. */
  get pauseMs(): number {
    if (this.#sessions.busy === 0) return Infinity;
    return Math.max(0, this.#lookedAt + everyMs - performance.now());
  }

  /** To be called after each turn; looks if it is time to. */
  async look(client: Client): Promise<void> {
    if (this.pauseMs > 0) return;
    const now = (this.#lookedAt = performance.now());
    const running = this.#sessions.running();
    // The first of each session is the one that runs.
    const runs = new Map(running.toReversed().map(({ id, owner }) => [owner, id]));
    const idle = await idleOwners(client, this.#table, running).catch((error: unknown) => {
      if (isPassing(error)) return [];
      throw error;
    });
    const silent = new Map<string, Silence>();
    const lost: string[] = [];
    for (const { owner, since } of idle) {
      const what = `${runs.get(owner)} ${since}`;
      const before = this.#silent.get(owner);
      const found = before?.what === what ? before : { what, foundAt: now };
      if (now - found.foundAt >= answerMs) lost.push(owner);
      else silent.set(owner, found);
    }
    this.#silent = silent;
    if (lost.length === 0) return;
    for (const owner of lost) {
      this.#log.warn({ id: runs.get(owner), owner }, "session is cut off from its server");
      this.#excuse(owner);
    }
    await endOwners(client, lost);
    this.#sessions.drop(lost);
  }
}
