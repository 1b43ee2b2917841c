import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import { prune, type PruneStep } from "./prune.sql.js";
import type { TaskTable } from "../schema/taskTable.js";
import { lastingReason } from "../sql/rejectedRows.js";
import { pruneIntervalMs } from "../model/tuning.js";

/** Deletes finished rows that are older than their `keep`. A round of small steps goes through the table once. */
export class Pruner {
  readonly #table: TaskTable;
  readonly #log: Log;
  /** The next step continues after this id. "0" begins a new round. */
  #from = "0";
  #notBefore = 0;
  /** Whether tasks may have ended since the latest round began. */
  #touched = true;
  /** When the first row that the last round has left can be deleted, and the same for the present round so far. */
  #dueAt = Infinity;
  #roundDueAt = Infinity;
  /** When the last round ended. */
  #roundAt = performance.now();
  #deleted = 0;
  #isFailureLogged = false;

  constructor(options: { readonly table: TaskTable; readonly log: Log }) {
    this.#table = options.table;
    this.#log = options.log;
  }

  touch(): void {
    this.#touched = true;
  }

  /** The last manager has pruned the table. What ends soon is pruned in the same round. */
  settle(): void {
    this.#notBefore = performance.now() + pruneIntervalMs.min;
  }

  /** Nothing else is to be done. */
  hurry(): void {
    if (!this.#isFailureLogged) this.#notBefore = 0;
  }

  get pauseMs(): number {
    const now = performance.now();
    return Math.max(0, this.#notBefore - now, this.#touched ? 0 : this.#dueAt - now);
  }

  /** Returns whether the next step should follow at once. */
  async step(client: Client, limit: number): Promise<boolean> {
    if (this.pauseMs > 0 && performance.now() - this.#roundAt < pruneIntervalMs.max) return false;
    if (this.#from === "0") {
      this.#touched = false;
      this.#roundDueAt = Infinity;
    }
    const { deleted, next, dueMs } = await this.#prune(client, limit);
    this.#from = next;
    this.#roundDueAt = Math.min(this.#roundDueAt, performance.now() + (dueMs ?? Infinity));
    this.#deleted += deleted;
    if (deleted > 0 || next !== "0") return true;
    this.#roundAt = performance.now();
    this.#notBefore = this.#roundAt + pruneIntervalMs.min;
    this.#dueAt = this.#roundDueAt;
    if (this.#deleted > 0) this.#log.debug({ tasks: this.#deleted }, "finished tasks pruned");
    this.#deleted = 0;
    return false;
  }

  /** An error, for example because of a foreign key that refers to the row, does not stop the manager's cycle. */
  async #prune(client: Client, limit: number): Promise<PruneStep> {
    try {
      const step = await prune(client, this.#table, this.#from, limit);
      this.#isFailureLogged = false;
      return step;
    } catch (error) {
      this.#notBefore = performance.now() + pruneIntervalMs.min;
      // After a transient error, such as a lock timeout, the step is tried again.
      this.#touched ||= isTransient(error);
      const reason = lastingReason(error);
      if (!this.#isFailureLogged) this.#log.warn({ reason }, "cannot prune finished tasks");
      this.#isFailureLogged = true;
      return { deleted: 0, next: "0", dueMs: null };
    }
  }
}
