import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import { headPrecedes, type Head } from "./activeGroup.js";
import type { ActiveGroups } from "./groups.js";
import { PausedGroups } from "./pausedGroups.js";
import { isRowError, RejectedRows, changeRows } from "../sql/rejectedRows.js";
import { insertedTasks, lastId, type InsertedTask, dueWithKeys, scanGroups } from "./heads.sql.js";
import { nextPlan, type NextPlan, readMarkable, markDue, markListedDue } from "./plannedTasks.sql.js";
import type { ClockSteps } from "../upkeep/clockSteps.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { DueTask } from "../model/tasks.js";
import type { HeadRow } from "../sql/fragments.sql.js";
import {
  maxInsertedRows,
  maxMarkedDue,
  maxScannedGroups,
  minScanIntervalMs,
  planReadIntervalMs,
  scanRestFactor,
} from "../model/tuning.js";

/** What a small claim has read besides the tasks that it claimed. */
export interface UnclaimedTasks {
  /** Due tasks that were not claimed because of the limit of their group. */
  readonly waiting: readonly DueTask[];
  /**
   * Whether every due task was either claimed or is among `waiting`. If not, a scan and a full claim have to follow,
   * and `waiting` is empty.
   */
  readonly isComplete: boolean;
  readonly nextPlan: NextPlan;
}

/** A value that precedes all hashes. */
const firstHash = -2_147_483_649;
/**
 * How many ids, up to the largest known one, are read again. A row with a smaller id may become visible later, because
 * transactions need not commit in the order of the row ids.
 */
const overlap = 64n;

export interface ScanResult {
  /** Hashes of groups whose head (first due task) is late, except paused ones, whose tasks do not expire. */
  readonly lateGroups: readonly number[];
  /** Whether to scan again at once. */
  readonly again: boolean;
}

/**
 * Keeps the heads (the first due task of each group) up to date. Each scan visits the next groups in the order of their
 * hashes. A round is complete when all groups have been visited; with few groups, one scan is a whole round. With more
 * groups, each scan also reads newly inserted rows, so that these tasks need not wait until their group is visited.
 * After any other change of the table, scans follow each other until a whole round is complete.
 */
export class GroupScanner {
  readonly #table: TaskTable;
  readonly #groups: ActiveGroups;
  #after = firstHash;
  /** Whether the table has changed since the current round began. */
  #changed = true;
  /** Whether the manager has planned tasks since the last scan or small claim was sent. */
  #hasPlanned = false;
  /** Whether to finish the current round without pauses between scans. */
  #isUrgent = false;
  /** Whether there are more groups than one scan visits. */
  #hasManyGroups = false;
  #lastId: bigint | null = null;
  #scanMs = 0;
  #scannedAt = 0;
  /** When the next task becomes due, on the process's clock. Null if no planned task is known. */
  #planAt: number | null = 0;
  #planReadAt = 0;
  /** Tasks that cannot be marked as due because the server rejects the change. */
  readonly #rejected: RejectedRows;
  /** Tasks that were rejected together. There was no time left to find out which of them the server rejects. */
  #suspects: readonly string[] = [];
  readonly #pausedGroups: PausedGroups;
  #hasTasksToLookUp = false;
  /** Told of the server's clock whenever it has been read. */
  readonly #clockSteps: Pick<ClockSteps, "observe"> | undefined;

  constructor(components: {
    readonly table: TaskTable;
    readonly groups: ActiveGroups;
    readonly log: Log;
    readonly clockSteps?: Pick<ClockSteps, "observe">;
  }) {
    const { table, groups, log, clockSteps } = components;
    this.#table = table;
    this.#groups = groups;
    this.#clockSteps = clockSteps;
    this.#rejected = new RejectedRows(log);
    this.#pausedGroups = new PausedGroups(table);
  }

  /** Records a change of the table that is not reported row by row. */
  markChanged(): void {
    this.#changed = true;
  }

  /**
   * Records that the manager itself has planned tasks, which it is not notified of. They are found by the next scan or
   * small claim, which need not follow at once.
   */
  markPlanned(): void {
    this.#hasPlanned = true;
  }

  /** Forgets everything that earlier scans have found. */
  restart(): void {
    this.#after = firstHash;
    this.#changed = true;
    this.#lastId = null;
    this.#scannedAt = 0;
    this.#planAt = 0;
    this.#planReadAt = 0;
  }

  /** Whether there are tasks whose predecessors have to be looked up. */
  get hasTasksToLookUp(): boolean {
    return this.#hasTasksToLookUp;
  }

  get rejectedIds(): readonly string[] {
    return this.#rejected.ids;
  }

  /**
   * Time in ms until the next task becomes due, or until paused groups have to be searched again, whichever comes first.
   * Null if neither is expected.
   */
  get nextDueMs(): number | null {
    const planMs = this.#planAt === null ? Infinity : Math.max(0, this.#planAt - performance.now());
    const ms = Math.min(planMs, this.#pausedGroups.nextLookMs);
    return ms === Infinity ? null : ms;
  }

  /**
   * Whether the heads have to be read again: the table may have changed, a round is not complete, or the last round was
   * more than `sweepMs` ms ago.
   */
  needsScan(sweepMs: number): boolean {
    if (this.#changed || this.#hasPlanned || this.#isUrgent || this.#hasManyGroups) return true;
    return performance.now() - this.#scannedAt >= sweepMs;
  }

  /** Whether a small claim can replace a scan. It reads neither rejected tasks nor more groups than a scan visits. */
  get canUseSmallClaim(): boolean {
    return !this.#hasManyGroups && this.#rejected.ids.length === 0;
  }

  /** Begins a round that a small claim completes. To be called when it is sent. */
  beginSmallClaim(): void {
    if (this.#changed) this.#pausedGroups.markChanged();
    this.#changed = false;
    this.#hasPlanned = false;
    this.#groups.beginRound();
  }

  /** Records what a small claim has found. If it has not read everything, a scan has to follow. */
  endSmallClaim(found: UnclaimedTasks | null): void {
    if (found?.isComplete !== true) {
      this.#changed = true;
      return;
    }
    const heads = new Map<number, Head>();
    for (const { hash, max, id } of found.waiting) {
      const task = { max, id: BigInt(id) };
      const head = heads.get(hash);
      if (head === undefined || headPrecedes(task, head)) heads.set(hash, task);
    }
    for (const [hash, head] of heads) this.#groups.setHead(hash, head, false);
    this.#groups.endRound();
    this.#pausedGroups.endRound();
    this.#isUrgent = false;
    this.#scannedAt = performance.now();
    this.#acceptNextPlan(found.nextPlan);
  }

  get shouldMarkDue(): boolean {
    return this.#planAt !== null && this.#planAt <= performance.now();
  }

  /**
   * Marks planned tasks as due once their planned time has come.
   *
   * @returns whether more tasks may have to be marked
   */
  async markDue(client: Client): Promise<boolean> {
    if (!this.shouldMarkDue) return false;
    const except = this.#rejected.delayedIds;
    let more = false;
    try {
      const marked = await markDue(client, this.#table, except);
      more = marked.more;
      for (const task of marked.due) this.addDue(task);
    } catch (error) {
      if (!isRowError(error)) throw error;
      more = await this.#markEachDue(client);
    }
    if (!more) this.#rejected.deleteRetryable();
    return more;
  }

  /**
   * Marks tasks as due after a rejection, and finds out which tasks the server rejects.
   *
   * @returns whether more tasks may have to be marked
   */
  async #markEachDue(client: Client): Promise<boolean> {
    const known = [...this.#suspects, ...this.#rejected.ids];
    const others = await readMarkable(client, this.#table, known);
    // Tasks that have been rejected before come last, so that retrying them does not delay the others.
    const all = [...new Set([...others, ...this.#suspects, ...this.#rejected.retryableIds])];
    const ids = all.slice(0, maxMarkedDue);
    const left = await changeRows(
      client,
      ids,
      async (some) => {
        for (const task of await markListedDue(client, this.#table, some)) this.addDue(task);
      },
      (id, error) => {
        this.#rejected.add(id, error, "marking due rejected by the server, retrying");
      },
    );
    // Tasks that were not tried become or stay suspects, so that the next attempt does not try them before tasks that
    // have become due in the meantime.
    const tried = new Set(ids);
    this.#suspects = [...left, ...this.#suspects.filter((id) => !tried.has(id))];
    return left.length > 0 || ids.length === maxMarkedDue;
  }

  /**
   * Finds the tasks that wait with these keys, which have just run in other tasks. While they ran, claims and scans have
   * skipped them.
   *
   * @returns whether there are such tasks
   */
  async offerWaiting(client: Client, keys: readonly string[]): Promise<boolean> {
    if (keys.length === 0) return false;
    try {
      const due = await dueWithKeys(client, this.#table, keys);
      for (const task of due) this.addDue(task);
      return due.length > 0;
    } catch (error) {
      this.#groups.runningKeys.putBack(keys);
      throw error;
    }
  }

  addDue({ id, hash, max }: DueTask): void {
    this.#pausedGroups.markChanged();
    this.#groups.addDue(hash, { max, id: BigInt(id) });
  }

  /**
   * Scans the next groups, unless the last scan was so recent that the next one has to wait.
   *
   * @param request.isSaturated whether all sessions are busy and more tasks are due
   * @param request.watch whether the table may have changed
   * @param request.except ids of tasks to skip
   */
  async scan(
    client: Client,
    request: { readonly isSaturated: boolean; readonly watch: boolean; readonly except: readonly string[] },
  ): Promise<ScanResult> {
    this.#changed ||= request.watch;
    const now = performance.now();
    const isResting = now - this.#scannedAt < Math.max(minScanIntervalMs, this.#scanMs * scanRestFactor);
    const knowsMore = request.isSaturated || (!request.watch && this.#groups.startable.size > 0);
    if (knowsMore && isResting) return { lateGroups: [], again: false };
    const [scanned, inserted] = await Promise.all([
      this.#scanNext(client, request),
      this.#hasManyGroups ? this.#readInserted(client) : [],
    ]);
    this.#scannedAt = performance.now();
    this.#scanMs = this.#scannedAt - now;
    const lateGroups = [...scanned, ...inserted].filter(({ late, paused }) => late && !paused).map(({ hash }) => hash);
    return { lateGroups: [...new Set(lateGroups)], again: !request.isSaturated && this.#isUrgent };
  }

  /**
   * Reads when the next task becomes due. While all sessions are busy, reads this at most once in `planReadIntervalMs`.
   */
  async updateNextPlan(client: Client, isSaturated: boolean): Promise<void> {
    const now = performance.now();
    if (isSaturated && now - this.#planReadAt < planReadIntervalMs) return;
    this.#planReadAt = now;
    this.#hasPlanned = false;
    // Rejected rows whose retry delay is over are included, because they may be replanned while this query is running.
    this.#acceptNextPlan(await nextPlan(client, this.#table, this.#rejected.delayedIds));
  }

  #acceptNextPlan({ ms, mustLookUp, clockMs }: NextPlan): void {
    if (clockMs !== null) this.#clockSteps?.observe(clockMs);
    this.#hasTasksToLookUp = mustLookUp;
    const nearest = Math.min(ms ?? Infinity, this.#rejected.nextRetryMs);
    this.#planAt = nearest === Infinity ? null : performance.now() + nearest;
  }

  async #scanNext(
    client: Client,
    { isSaturated, except }: { readonly isSaturated: boolean; readonly except: readonly string[] },
  ): Promise<readonly HeadRow[]> {
    const after = this.#after;
    if (this.#changed) this.#pausedGroups.markChanged();
    if (after === firstHash) {
      this.#isUrgent = this.#changed;
      this.#changed = false;
      this.#groups.beginRound();
    }
    const limit = isSaturated ? maxScannedGroups.saturated : maxScannedGroups.normal;
    const keys = this.#groups.runningKeys.all;
    const rows = await scanGroups(client, this.#table, { after, limit, except, keys });
    for (const row of rows) this.#groups.setHead(row.hash, toHead(row), row.paused);
    const unpaused = await this.#pausedGroups.findUnpaused(
      client,
      rows.flatMap(({ hash, paused, all }) => (paused && !all ? hash : [])),
      except,
      keys,
    );
    for (const row of unpaused) this.#groups.setHead(row.hash, toHead(row), false);
    if (rows.length === limit) this.#after = rows.at(-1)?.hash ?? firstHash;
    else {
      this.#after = firstHash;
      this.#isUrgent = this.#changed;
      this.#groups.endRound();
      this.#pausedGroups.endRound();
    }
    this.#hasManyGroups = rows.length === limit || after !== firstHash;
    return [...rows, ...unpaused];
  }

  async #readInserted(client: Client): Promise<readonly InsertedTask[]> {
    const after = this.#lastId;
    const rows = after === null ? [] : await insertedTasks(client, this.#table, after - overlap, maxInsertedRows);
    const due = rows.filter((row) => row.due);
    for (const row of due) if (!row.paused) this.#groups.addDue(row.hash, toHead(row));
    for (const { id } of rows) if (BigInt(id) > (this.#lastId ?? 0n)) this.#lastId = BigInt(id);
    if (after !== null && rows.length < maxInsertedRows) return due;
    this.#lastId = await lastId(client, this.#table);
    this.#changed = true;
    return due;
  }
}

const toHead = ({ max, id, gap_ms: gapMs }: HeadRow): Head => ({ max, id: BigInt(id), gapMs });
