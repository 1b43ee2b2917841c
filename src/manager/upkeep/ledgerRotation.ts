import { sqlState, type Client } from "../../shared/postgres/client.js";
import { toReport } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import { emptyLedger, type Ledger } from "./emptyLedger.sql.js";
import type { TaskTable } from "../schema/taskTable.js";

/** So many runs, or so long, and it is the other ledger's turn. */
const mostRuns = 20_000;
const longestMs = 5 * 60_000;
/** How long runs that were handed out with a ledger have before it is emptied the first time, in ms. */
const settleMs = 2_000;
/** Pause before an emptying that failed is tried again, in ms. */
const retryMs = 1_000;

/**
 * Which of the two ledgers runs enter their effect into, and the emptying of the other. What is left
 * of runs whose row still names an owner is carried over, so nothing has to be known of those: not
 * which runs are under way, nor what another process has left behind.
 *
 *   in use ──so many runs, or so long──▶ idle ──no run writes to it──▶ empty
 *     ▲                                                                 │
 *     └──────────────────the other one becomes idle─────────────────────┘
 */
export class LedgerRotation {
  readonly #table: TaskTable;
  readonly #log: Log;
  readonly #limits: { readonly runs: number; readonly ms: number; readonly settleMs: number };
  #inUse: Ledger = 1;
  #runs = 0;
  #since = performance.now();
  /** When the idle one may be emptied; null when it is empty. What another process left is in both. */
  #emptyAt: number | null = performance.now();
  #said = false;

  constructor(options: {
    readonly table: TaskTable;
    readonly log: Log;
    /** Other limits than the usual ones. */
    readonly limits?: { readonly runs: number; readonly ms: number; readonly settleMs: number };
  }) {
    this.#table = options.table;
    this.#log = options.log;
    this.#limits = options.limits ?? { runs: mostRuns, ms: longestMs, settleMs };
  }

  /** The ledger of one more run. */
  next(): Ledger {
    this.#runs += 1;
    return this.#inUse;
  }

  /** Empties and switches when it is time to; to be called after each turn. */
  async tend(client: Client): Promise<void> {
    const now = performance.now();
    if (this.#emptyAt !== null) {
      if (now < this.#emptyAt) return;
      if (!(await this.#empty(client))) {
        this.#emptyAt = now + retryMs;
        return;
      }
      this.#emptyAt = null;
    }
    const full = this.#runs >= this.#limits.runs;
    if (!full && (this.#runs === 0 || now - this.#since < this.#limits.ms)) return;
    this.#inUse = other(this.#inUse);
    this.#runs = 0;
    this.#since = now;
    this.#emptyAt = now + this.#limits.settleMs;
  }

  /** False when it has to be tried again: a run is just writing to it, or somebody reads it. */
  async #empty(client: Client): Promise<boolean> {
    const idle = other(this.#inUse);
    try {
      if (await emptyLedger(client, this.#table, idle))
        this.#log.debug({ ledger: idle }, "ledger emptied");
      this.#said = false;
      return true;
    } catch (error) {
      // A connection that is gone is told by the next turn.
      if (isTransient(error) || sqlState(error) === null) return false;
      if (!this.#said)
        this.#log.warn({ ledger: idle, reason: toReport(error).message }, "ledger not emptied");
      this.#said = true;
      return false;
    }
  }
}

const other = (ledger: Ledger): Ledger => (ledger === 1 ? 2 : 1);
