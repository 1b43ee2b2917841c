import type { DatabaseError } from "pg";
import type { Client } from "../../shared/postgres/client.js";
import { toReport } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import type { ClaimPlan } from "./claimPlanner.js";
import { attemptEach, isLocked, isRowError, RejectedRows } from "../rejectedRows.js";
import { readColumnSet } from "../schema/columnSet.js";
import type { DueTask } from "./claimFull.sql.js";
import { failUnreadable, isUnreadable, readTexts } from "./failUnreadable.sql.js";
import { lockWaitMs, waitedInVain } from "../sql/lockWait.js";
import { withoutRepeat } from "../results/withoutRepeat.sql.js";
import { firstDue, tryClaims, type ClaimTrial } from "./tryClaims.sql.js";
import type { TaskTable } from "../schema/taskTable.js";

/** How long one round of tries may take, in ms: all others wait meanwhile. */
const roundMs = 50;
/** How long such rounds may follow each other as long as nothing is refused any more, in ms. */
const retryMs = 200;
/** How many tasks one round tries: so many at first, and within these bounds as time allows. */
const tries = { first: 64, least: 8, most: 1_000 };
/** How many claims of a single task follow when tries did not tell which one is refused. */
const carefulClaims = 50;

const message = "start refused by the server, it is tried again";

/**
 * Tasks whose start the server refuses, by a trigger of the user's on that row. After a claim was
 * refused, the tasks that come next in its groups are tried one by one in a single statement; those that
 * are refused are left out for a while, and the others run.
 */
export class RejectedClaims {
  readonly #table: TaskTable;
  /** All due tasks that are left out, whatever is refused of them. */
  readonly refusals: RejectedRows;
  #most = tries.first;
  #carefulClaims = 0;

  constructor(table: TaskTable, log: Log) {
    this.#table = table;
    this.refusals = new RejectedRows(log);
  }

  /** Whether only one task is to be claimed at a time. */
  get careful(): boolean {
    return this.#carefulClaims > 0;
  }

  /** A claim succeeded with these. */
  passed(claimed: readonly { readonly id: string }[]): void {
    if (this.#carefulClaims > 0) this.#carefulClaims -= 1;
    for (const { id } of claimed) this.refusals.delete(id);
  }

  /**
   * Finds out what a claim was refused for.
   *
   * @param options.except tasks that it did not look at.
   * @param options.search whether to look beyond the tasks that it could have claimed.
   * @param options.traced whether claims read `data`.
   * @returns hashes of the groups whose tasks are refused; all of its groups where it is not known.
   */
  async find(
    client: Client,
    { chosen, groups, places, kept }: ClaimPlan,
    error: unknown,
    {
      except,
      search,
      traced,
    }: { readonly except: readonly string[]; readonly search: boolean; readonly traced: boolean },
  ): Promise<ReadonlySet<number>> {
    const hashes = chosen.map(({ group }) => group.hash);
    const beyond = search ? this.#most / hashes.length : 1;
    const most = Math.max(...chosen.map((group) => group.most), beyond);
    const each = Math.max(1, Math.min(Math.ceil(most), Math.floor(tries.most / hashes.length)));
    const due = await firstDue(client, this.#table, hashes, each, except);
    const all = [...places, ...groups.flatMap((group) => group.places ?? [])];
    const fronts = kept.length > 0 || all.some(({ front }) => front);
    const as = [
      ...(fronts ? ["front" as const] : []),
      ...(all.some(({ front }) => !front) ? ["behind" as const] : []),
    ];
    const ids = due.map(({ id }) => id);
    if (isLocked(error)) await waitedInVain(client);
    const tried = await this.#try(client, ids, as, lockWaitMs.apart);
    const found = new Set([
      ...tried.refused.keys(),
      ...(isUnreadable(error) ? await this.#endUnreadable(client, due, traced) : []),
    ]);
    if (found.size > 0) return new Set(due.flatMap(({ id, hash }) => (found.has(id) ? hash : [])));
    const [first] = due;
    if (this.careful && first !== undefined && !isUnreadable(error))
      this.refusals.add(first.id, error, message);
    this.#carefulClaims = carefulClaims;
    return new Set(hashes);
  }

  /** Tries those again whose pause is over; the others go on being left out. */
  async retry(client: Client): Promise<void> {
    const until = performance.now() + retryMs;
    for (;;) {
      const due = this.refusals.due.slice(0, this.#most);
      if (due.length === 0) return;
      const { refused, locked } = await this.#try(client, due, ["front"], lockWaitMs.wary);
      for (const id of locked) this.refusals.putOff(id);
      // As long as what was wrong is put right.
      if (refused.size + locked.length > 0 || performance.now() >= until) return;
    }
  }

  /**
   * Ends those of these tasks whose texts the server cannot tell, which no try shows: the first of each group.
   *
   * @returns their ids.
   */
  async #endUnreadable(
    client: Client,
    due: readonly DueTask[],
    traced: boolean,
  ): Promise<ReadonlySet<string>> {
    const ended = new Set<string>();
    let rest = due;
    for (;;) {
      const found = await this.#firstUnreadable(client, rest, traced);
      if (found === null) return ended;
      await this.#fail(client, found.task.id, found.error);
      ended.add(found.task.id);
      rest = rest.filter(({ hash }) => hash !== found.task.hash);
    }
  }

  async #firstUnreadable(
    client: Client,
    due: readonly DueTask[],
    traced: boolean,
  ): Promise<{ readonly task: DueTask; readonly error: DatabaseError } | null> {
    const [task] = due;
    if (task === undefined) return null;
    const ids = due.map(({ id }) => id);
    try {
      await readTexts(client, this.#table, ids, traced);
      return null;
    } catch (error) {
      if (!isUnreadable(error)) throw error;
      if (due.length === 1) return { task, error };
    }
    const middle = due.length >> 1;
    return (
      (await this.#firstUnreadable(client, due.slice(0, middle), traced)) ??
      (await this.#firstUnreadable(client, due.slice(middle), traced))
    );
  }

  async #fail(client: Client, id: string, error: DatabaseError): Promise<void> {
    const shape = await readColumnSet(client, this.#table);
    const task = { id, reason: toReport(error).message };
    try {
      await failUnreadable(client, this.#table, shape, task);
    } catch (refusal) {
      if (!isRowError(refusal)) throw refusal;
      const reason = await attemptEach(refusal, [
        (last) => failUnreadable(client, this.#table, shape, task, withoutRepeat(last)),
      ]);
      if (reason !== null) this.refusals.add(id, reason, message);
    }
  }

  async #try(
    client: Client,
    ids: readonly string[],
    as: readonly ("front" | "behind")[],
    lockMs: number,
  ): Promise<ClaimTrial> {
    if (ids.length === 0) return { tried: [], refused: new Map(), free: [], locked: [] };
    const since = performance.now();
    const outcome = await tryClaims(client, this.#table, ids, as, { forMs: roundMs, lockMs });
    const { tried, refused, free, locked } = outcome;
    const ms = Math.max(performance.now() - since, 1);
    const most = Math.floor((tried.length * roundMs) / ms);
    this.#most = Math.min(Math.max(most, tries.least), 2 * this.#most, tries.most);
    const known = new Set([...refused.keys(), ...free, ...locked]);
    for (const [id, error] of refused) this.refusals.add(id, error, message);
    for (const id of free) this.refusals.release(id);
    // Deleted, or not due any more.
    for (const id of tried) if (!known.has(id)) this.refusals.delete(id);
    return outcome;
  }
}
