import { sqlState, type Client } from "../../shared/postgres/client.js";
import { toReport } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import { emptyLedger, type Ledger } from "./emptyLedger.sql.js";
import type { TaskTable } from "../schema/taskTable.js";
import { ledgerRetryMs, ledgerSettleMs, maxLedgerUse } from "../model/tuning.js";

/**
 * Selects the ledger in which runs write their proofs, and empties the other one. Proofs that may still be needed are
 * moved, so it does not matter which runs are in progress, or what an earlier process left.
 *
 *     in use ──`maxLedgerUse`──▶ idle ──no run writes to it──▶ empty
 *       ▲                                                        │
 *       └───────────────the other one becomes idle───────────────┘
 */
export class LedgerRotation {
  readonly #table: TaskTable;
  readonly #log: Log;
  readonly #limits: { readonly runs: number; readonly ms: number; readonly settleMs: number };
  #inUse: Ledger = 1;
  #runs = 0;
  #since = performance.now();
  /** Null if the idle ledger is empty. At first it is not: an earlier process may have left proofs. */
  #emptyAt: number | null = performance.now();
  #isFailureLogged = false;

  constructor(options: {
    readonly table: TaskTable;
    readonly log: Log;
    readonly limits?: { readonly runs: number; readonly ms: number; readonly settleMs: number };
  }) {
    this.#table = options.table;
    this.#log = options.log;
    this.#limits = options.limits ?? { ...maxLedgerUse, settleMs: ledgerSettleMs };
  }

  /** Counts a new run, and returns the ledger that it has to use. */
  countRun(): Ledger {
    this.#runs += 1;
    return this.#inUse;
  }

  async rotate(client: Client): Promise<void> {
    const now = performance.now();
    if (this.#emptyAt !== null) {
      if (now < this.#emptyAt) return;
      if (!(await this.#empty(client))) {
        this.#emptyAt = now + ledgerRetryMs;
        return;
      }
      this.#emptyAt = null;
    }
    const isFull = this.#runs >= this.#limits.runs;
    if (!isFull && (this.#runs === 0 || now - this.#since < this.#limits.ms)) return;
    this.#inUse = other(this.#inUse);
    this.#runs = 0;
    this.#since = now;
    this.#emptyAt = now + this.#limits.settleMs;
  }

  /** Returns false if that has to be tried again, because a run is writing to the ledger or a client is reading it. */
  async #empty(client: Client): Promise<boolean> {
    const idle = other(this.#inUse);
    try {
      if (await emptyLedger(client, this.#table, idle)) this.#log.debug({ ledger: idle }, "ledger emptied");
      this.#isFailureLogged = false;
      return true;
    } catch (error) {
      // Transient errors are not logged. If the connection is lost, the next cycle fails anyway.
      if (isTransient(error) || sqlState(error) === null) return false;
      if (!this.#isFailureLogged)
        this.#log.warn({ ledger: idle, reason: toReport(error).message }, "ledger not emptied");
      this.#isFailureLogged = true;
      return false;
    }
  }
}

const other = (ledger: Ledger): Ledger => (ledger === 1 ? 2 : 1);
