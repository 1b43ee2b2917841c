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

const firstHash = -2_147_483_649;
/** How many ids, up to the largest known one, are read again: transactions need not commit in the order of the ids. */
const overlap = 64n;

export interface ScanResult {
  /** Hashes of groups whose head is late, except paused ones, whose tasks do not expire. */
  readonly lateGroups: readonly number[];
  readonly again: boolean;
}

/**
 * Keeps the heads (the first due task of each group) up to date. Each scan visits the next groups in the order of their
 * hashes, until all have been visited and the round is complete. With more groups than one scan visits, each also reads
 * newly inserted rows. After any other change of the table, scans follow each other until a whole round is complete.
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
  #hasManyGroups = false;
  #lastId: bigint | null = null;
  #scanMs = 0;
  #scannedAt = 0;
  /** When inserted rows were last read, and how long that took. */
  #readAt = 0;
  #readMs = 0;
  /** When the next task becomes due, on the process's clock. Null if no planned task is known. */
  #planAt: number | null = 0;
  #planReadAt = 0;
  readonly #rejected: RejectedRows;
  /** Tasks that were rejected together. There was no time left to find out which of them the server rejects. */
  #suspects: readonly string[] = [];
  readonly #pausedGroups: PausedGroups;
  #hasTasksToLookUp = false;
  #isAloneDue = false;
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

  markChanged(): void {
    this.#changed = true;
  }

  /** The manager itself has planned tasks, of which it is not notified. The next look need not follow at once. */
  markPlanned(): void {
    this.#hasPlanned = true;
  }

  restart(): void {
    this.#after = firstHash;
    this.#changed = true;
    this.#lastId = null;
    this.#scannedAt = 0;
    this.#planAt = 0;
    this.#planReadAt = 0;
  }

  get hasTasksToLookUp(): boolean {
    return this.#hasTasksToLookUp;
  }

  get isAloneDue(): boolean {
    return this.#isAloneDue;
  }

  get rejectedIds(): readonly string[] {
    return this.#rejected.ids;
  }

  /** Time until the next task becomes due or paused groups have to be searched again, in ms. Null if never. */
  get nextDueMs(): number | null {
    const planMs = this.#planAt === null ? Infinity : Math.max(0, this.#planAt - performance.now());
    const ms = Math.min(planMs, this.#pausedGroups.nextLookMs);
    return ms === Infinity ? null : ms;
  }

  needsScan(sweepMs: number): boolean {
    if (this.#changed || this.#hasPlanned || this.#isUrgent || this.#hasManyGroups) return true;
    return performance.now() - this.#scannedAt >= sweepMs;
  }

  /** A small claim reads neither rejected tasks nor more groups than a scan visits. */
  get canUseSmallClaim(): boolean {
    return !this.#hasManyGroups && this.#rejected.ids.length === 0;
  }

  /** Begins a round that a small claim completes. */
  beginSmallClaim(): void {
    if (this.#changed) this.#pausedGroups.markChanged();
    this.#changed = false;
    this.#hasPlanned = false;
    this.#groups.beginRound();
  }

  /** If the small claim has not read everything, a scan has to follow. */
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

  /** Marks planned tasks whose time has come as due. Returns whether more tasks may have to be marked. */
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

  /** Marks tasks as due after a rejection, and finds out which tasks the server rejects. Returns as `markDue`. */
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
      (id, error) => void this.#rejected.add(id, error, "marking due rejected by the server, retrying"),
    );
    // The next attempt does not try suspects before tasks that have become due in the meantime.
    const tried = new Set(ids);
    this.#suspects = [...left, ...this.#suspects.filter((id) => !tried.has(id))];
    return left.length > 0 || ids.length === maxMarkedDue;
  }

  /** Finds the tasks that wait with these keys, which claims and scans have skipped while others with them ran. */
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
   */
  async scan(
    client: Client,
    request: { readonly isSaturated: boolean; readonly watch: boolean; readonly except: readonly string[] },
  ): Promise<ScanResult> {
    this.#changed ||= request.watch;
    const now = performance.now();
    const isResting = now - this.#scannedAt < Math.max(minScanIntervalMs, this.#scanMs * scanRestFactor);
    const knowsMore = request.isSaturated || (!request.watch && this.#groups.startable.size > 0);
    if (knowsMore && isResting && !(request.watch && this.#canReadInserted)) return { lateGroups: [], again: false };
    const rests = knowsMore && isResting;
    const [scanned, inserted] = await Promise.all([
      rests ? [] : this.#scanNext(client, request),
      this.#hasManyGroups ? this.#readInserted(client) : [],
    ]);
    this.#readAt = performance.now();
    this.#readMs = this.#readAt - now;
    if (!rests) [this.#scannedAt, this.#scanMs] = [this.#readAt, this.#readMs];
    const lateGroups = [...scanned, ...inserted].filter(({ late, paused }) => late && !paused).map(({ hash }) => hash);
    return { lateGroups: [...new Set(lateGroups)], again: !request.isSaturated && this.#isUrgent };
  }

  /** With shares, a task of another share may come before all that are known, and does not wait for the next scan. */
  get #canReadInserted(): boolean {
    if (this.#groups.shares === null || !this.#hasManyGroups) return false;
    return performance.now() - this.#readAt >= Math.max(minScanIntervalMs, this.#readMs * scanRestFactor);
  }

  async updateNextPlan(client: Client, isSaturated: boolean): Promise<void> {
    const now = performance.now();
    if (isSaturated && now - this.#planReadAt < planReadIntervalMs) return;
    this.#planReadAt = now;
    this.#hasPlanned = false;
    // Rejected rows whose retry delay is over are included, because they may be replanned while this query is running.
    this.#acceptNextPlan(await nextPlan(client, this.#table, this.#rejected.delayedIds));
  }

  #acceptNextPlan({ ms, mustLookUp, isAloneDue, clockMs }: NextPlan): void {
    if (clockMs !== null) this.#clockSteps?.observe(clockMs);
    this.#hasTasksToLookUp = mustLookUp;
    this.#isAloneDue = isAloneDue;
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
