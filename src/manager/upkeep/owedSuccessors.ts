import type { DatabaseError } from "pg";
import type { Client } from "../../shared/postgres/client.js";
import { uniqueViolation } from "../../shared/postgres/sqlStates.js";
import type { Log } from "../../shared/log.js";
import { changeRows, lastingReason, RejectedRows, tryInOrder } from "../sql/rejectedRows.js";
import { readColumnSet } from "../schema/columnSet.js";
import type { TaskTable } from "../schema/taskTable.js";
import { maxOwedTries, owedRestFactor, rejectedRowRetryMs } from "../model/tuning.js";
import { advanceIdSequence, insertOwed, readOwed, settleKept } from "./owedSuccessors.sql.js";

const rejectedMessage = "next run rejected by the server, retrying";

/**
 * Plans the successors that the server has rejected, for example because of a trigger, again at growing intervals. The
 * table of owed successors lists them, also after the end of the manager, and tasks for which the server has rejected
 * the time that the query of their rule returned. These queries run again. A sequence that is behind the ids of the
 * table, as on a logical replica, is set forward when the manager begins, and when an id is taken.
 */
export class OwedSuccessors {
  readonly #table: TaskTable;
  readonly #log: Log;
  readonly #rejected: RejectedRows;
  /** Whether the table of owed successors may have rows that are not known here. */
  #mustRead = true;
  #notBefore = 0;
  #mustCheckSequence = true;

  constructor(options: { readonly table: TaskTable; readonly log: Log }) {
    this.#table = options.table;
    this.#log = options.log;
    this.#rejected = new RejectedRows(options.log);
  }

  /** After a new connection: another manager may have served the table in between. */
  restart(): void {
    this.#mustCheckSequence = true;
    this.#notBefore = 0;
    this.touch();
  }

  get isSettled(): boolean {
    return !this.#mustRead && this.#rejected.ids.length === 0;
  }

  /** According to the last manager, none is owed, and the sequence is right. */
  settle(): void {
    this.#mustRead = false;
    this.#mustCheckSequence = false;
  }

  /** Notes that a successor is owed. It is tried soon, but not at once if the server has just rejected others. */
  touch(): void {
    this.#mustRead = true;
  }

  get pauseMs(): number {
    return Math.max(0, this.#notBefore - performance.now(), this.#mustRead ? 0 : this.#rejected.nextRetryMs);
  }

  /** Returns whether any was planned. Throws if the connection is lost or the error is transient. */
  async step(client: Client): Promise<boolean> {
    if (this.pauseMs > 0) return false;
    try {
      const since = performance.now();
      this.#notBefore = since + rejectedRowRetryMs.first;
      if (this.#mustCheckSequence) await this.#advanceSequence(client, "consecutive ids only");
      this.#mustCheckSequence = false;
      const { planned, rejected } = await this.#plan(client);
      const now = performance.now();
      // Rows that the server rejects for good must not take the time of the other tasks.
      if (rejected > 0) this.#notBefore = Math.max(this.#notBefore, now + owedRestFactor * (now - since));
      else if (planned > 0) this.#notBefore = 0;
      return planned > 0;
    } catch (error) {
      this.#mustRead = true;
      this.#log.warn({ reason: lastingReason(error) }, "cannot plan the next runs that the server has rejected");
      this.#notBefore = performance.now() + rejectedRowRetryMs.max;
      return false;
    }
  }

  async #plan(client: Client): Promise<{ readonly planned: number; readonly rejected: number }> {
    // A retry delay may end, and a successor may become owed, before the answer arrives. The next step handles these.
    const { delayedIds: except, retryableIds } = this.#rejected;
    this.#mustRead = false;
    const due = await readOwed(client, this.#table, { except, limit: maxOwedTries });
    if (due.length === maxOwedTries) this.#mustRead = true;
    else for (const id of retryableIds) if (!due.includes(id)) this.#rejected.delete(id);
    if (due.length === 0) return { planned: 0, rejected: 0 };
    const columns = await readColumnSet(client, this.#table);
    const open = new Set(due);
    let rejected = 0;
    const insert = async (ids: readonly string[], keepsRow = false): Promise<void> => {
      for (const { id, successor, reason } of await insertOwed(client, this.#table, columns, ids, keepsRow)) {
        open.delete(id);
        if (reason !== null) {
          // How often the query runs again depends on how often the server has rejected what it returned.
          this.#rejected.add(id, reason, rejectedMessage);
          continue;
        }
        this.#rejected.delete(id);
        if (successor !== null) this.#log.info({ id, next: successor }, "rejected next run planned");
      }
    };
    await changeRows(client, due, insert, async (id, error) => {
      const reason = await this.#insertRejected(client, id, error, insert);
      open.delete(id);
      if (reason === null) return;
      rejected += 1;
      this.#rejected.add(id, reason, rejectedMessage);
    });
    // What is left is locked, has just been changed, is running its query, or could not be tried in time.
    this.#mustRead ||= open.size > 0;
    return { planned: due.length - open.size - rejected, rejected };
  }

  /**
   * Tries a rejected successor again: with the next free id if its id was taken, and without a change of the ended row,
   * which a trigger may refuse. The row is then changed afterwards, if the server lets it be.
   */
  async #insertRejected(
    client: Client,
    id: string,
    error: DatabaseError,
    insert: (ids: readonly string[], keepsRow?: boolean) => Promise<void>,
  ): Promise<DatabaseError | null> {
    if (error.code === uniqueViolation) await this.#advanceSequence(client, "any");
    let isKept = false;
    const insertKeepingRow = async (): Promise<void> => {
      await insert([id], true);
      isKept = true;
    };
    const reason = await tryInOrder(error, [() => insert([id]), insertKeepingRow]);
    if (isKept) await tryInOrder(error, [() => settleKept(client, this.#table, id)]);
    return reason;
  }

  async #advanceSequence(client: Client, which: "any" | "consecutive ids only"): Promise<void> {
    try {
      const advanced = await advanceIdSequence(client, this.#table, which === "any");
      if (advanced !== null) this.#log.warn(advanced, "sequence was behind the ids of the table, set forward");
    } catch (error) {
      this.#log.warn({ reason: lastingReason(error) }, "cannot set the sequence of the ids forward");
    }
  }
}
