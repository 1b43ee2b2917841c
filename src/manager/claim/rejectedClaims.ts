import type { DatabaseError } from "pg";
import type { Client } from "../../shared/postgres/client.js";
import { toReport } from "../../shared/errors.js";
import type { ClaimComponents } from "./claimComponents.js";
import { allSlots, type ClaimConditions } from "./claimFull.sql.js";
import type { ClaimPlan } from "./claimPlan.js";
import { changeOne, tryInOrder, isLockTimeout, isRowError, RejectedRows } from "../sql/rejectedRows.js";
import { endUnrun } from "../groups/endUnrun.sql.js";
import { readColumnSet } from "../schema/columnSet.js";
import { lockTimeoutMs, recordLockTimeout } from "../sql/lockTimeout.js";
import { rejectedRepeatNote } from "../sql/omissions.js";
import { isUnreadable, readFirstDue, readTexts, tryClaims, type ClaimTrial } from "./tryClaims.sql.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { DueTask } from "../model/tasks.js";
import { isolationMs, singleClaimsAfterTrials, trialRetryMs, trialRoundMs, trialRoundSize } from "../model/tuning.js";

const message = "claim rejected by the server, retrying";

/**
 * Due tasks that the server refuses to start, because of a user's trigger or constraint. After a rejected claim, the
 * next tasks of the claimed groups are tried one by one within a single statement. A rejected task is then skipped
 * until its retry delay is over, while the other tasks run.
 */
export class RejectedClaims {
  readonly #table: TaskTable;
  readonly #owed: Pick<ClaimComponents["owed"], "touch">;
  /** All due tasks that claims skip because the server rejects starting or expiring them. */
  readonly rows: RejectedRows;
  #roundSize = trialRoundSize.initial;
  #singleClaims = 0;

  constructor({ table, owed, log }: Pick<ClaimComponents, "table" | "owed" | "log">) {
    this.#table = table;
    this.#owed = owed;
    this.rows = new RejectedRows(log);
  }

  get claimsSingly(): boolean {
    return this.#singleClaims > 0;
  }

  recordSuccess(claimed: readonly { readonly id: string }[]): void {
    if (this.#singleClaims > 0) this.#singleClaims -= 1;
    for (const { id } of claimed) this.rows.delete(id);
  }

  /**
   * Finds the tasks that caused a claim to be rejected.
   *
   * @param conditions.search whether to try more tasks than the claim could take
   * @returns hashes of the groups that have rejected tasks; if no rejected task was found, the hashes of all
   *   groups of the claim
   */
  async findRejected(
    client: Client,
    plan: ClaimPlan,
    error: unknown,
    { except, runningKeys = [], search, traced = false }: ClaimConditions & { readonly search: boolean },
  ): Promise<ReadonlySet<number>> {
    const { planned, dedicated } = plan;
    const hashes = planned.map(({ group }) => group.hash);
    const beyond = search ? this.#roundSize / hashes.length : 1;
    const most = Math.max(...planned.map((group) => group.maxTasks), beyond);
    const each = Math.max(1, Math.min(Math.ceil(most), Math.floor(trialRoundSize.max / hashes.length)));
    const due = await readFirstDue(client, this.#table, hashes, each, except, runningKeys);
    const slots = allSlots(plan);
    const anyStartsNow = dedicated.length > 0 || slots.some(({ startsNow }) => startsNow);
    const as = [
      ...(anyStartsNow ? ["current" as const] : []),
      ...(slots.some(({ startsNow }) => !startsNow) ? ["queued" as const] : []),
    ];
    const ids = due.map(({ id }) => id);
    if (isLockTimeout(error)) await recordLockTimeout(client);
    const tried = await this.#try(client, ids, as, lockTimeoutMs.isolating);
    const found = new Set([
      ...tried.rejected.keys(),
      ...(isUnreadable(error) ? await this.#failUnreadable(client, due, traced) : []),
    ]);
    if (found.size > 0) return new Set(due.flatMap(({ id, hash }) => (found.has(id) ? hash : [])));
    const [first] = due;
    if (this.claimsSingly && first !== undefined && !isUnreadable(error)) this.rows.add(first.id, error, message);
    this.#singleClaims = singleClaimsAfterTrials;
    return new Set(hashes);
  }

  async retry(client: Client): Promise<void> {
    const until = performance.now() + trialRetryMs;
    for (;;) {
      const due = this.rows.retryableIds.slice(0, this.#roundSize);
      if (due.length === 0) return;
      const { rejected, locked } = await this.#try(client, due, ["current"], lockTimeoutMs.reduced);
      for (const id of locked) this.rows.postpone(id);
      // The retries continue only if the cause of the rejections seems to be gone.
      if (rejected.size + locked.length > 0 || performance.now() >= until) return;
    }
  }

  /** Lets tasks with unreadable values fail, which trial claims do not detect. Returns their ids. */
  async #failUnreadable(client: Client, due: readonly DueTask[], traced: boolean): Promise<readonly string[]> {
    const unreadable = await this.#findUnreadable(client, due, traced, performance.now() + isolationMs);
    for (const { id, error } of unreadable) await this.#fail(client, id, error);
    return unreadable.map(({ id }) => id);
  }

  /** Finds at least one of the tasks with unreadable values, and all of them if there is time for it. */
  async #findUnreadable(
    client: Client,
    due: readonly DueTask[],
    traced: boolean,
    until: number,
  ): Promise<readonly { readonly id: string; readonly error: DatabaseError }[]> {
    const [task] = due;
    if (task === undefined) return [];
    const ids = due.map(({ id }) => id);
    try {
      await readTexts(client, this.#table, ids, traced);
      return [];
    } catch (error) {
      if (!isUnreadable(error)) throw error;
      if (due.length === 1) return [{ id: task.id, error }];
    }
    const middle = due.length >> 1;
    const found = await this.#findUnreadable(client, due.slice(0, middle), traced, until);
    if (found.length > 0 && performance.now() >= until) return found;
    return [...found, ...(await this.#findUnreadable(client, due.slice(middle), traced, until))];
  }

  async #fail(client: Client, id: string, error: DatabaseError): Promise<void> {
    const columnSet = await readColumnSet(client, this.#table);
    const failed = `ERROR:  task is not readable as UTF-8: ${toReport(error).message}`;
    const end = async (unrepeated: string | null): Promise<void> => {
      await endUnrun(client, this.#table, columnSet, [id], { failed, unrepeated });
    };
    try {
      await changeOne(() => end(null));
    } catch (refusal) {
      if (!isRowError(refusal)) throw refusal;
      const reason = await tryInOrder(refusal, [(last) => end(rejectedRepeatNote(last))]);
      if (reason === null) this.#owed.touch();
      else this.rows.add(id, reason, message);
    }
  }

  async #try(
    client: Client,
    ids: readonly string[],
    as: readonly ("current" | "queued")[],
    lockMs: number,
  ): Promise<ClaimTrial> {
    if (ids.length === 0) return { tried: [], rejected: new Map(), free: [], locked: [] };
    const since = performance.now();
    const outcome = await tryClaims(client, this.#table, ids, as, { forMs: trialRoundMs, lockMs });
    const { tried, rejected, free, locked } = outcome;
    const ms = Math.max(performance.now() - since, 1);
    const most = Math.floor((tried.length * trialRoundMs) / ms);
    this.#roundSize = Math.min(Math.max(most, trialRoundSize.min), 2 * this.#roundSize, trialRoundSize.max);
    const known = new Set([...rejected.keys(), ...free, ...locked]);
    for (const [id, error] of rejected) this.rows.add(id, error, message);
    for (const id of free) this.rows.allow(id);
    // The task was deleted or is no longer due.
    for (const id of tried) if (!known.has(id)) this.rows.delete(id);
    return outcome;
  }
}
