import type { DatabaseError } from "pg";
import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import type { LostRemoteRuns } from "./lostRemoteRuns.js";
import type { ActiveGroups } from "../groups/groups.js";
import type { DeferredPauses } from "../groups/deferredPauses.js";
import { tryInOrder, RejectedRows, changeRows } from "../sql/rejectedRows.js";
import { readColumnSet } from "../schema/columnSet.js";
import type { RescueOutcome } from "../model/tasks.js";
import { readClaimedRows, rescueTasks, type OwnedRow, type RescuedTask } from "./rescue.sql.js";
import { findDeadOwners, terminateOwners } from "../sql/ownerBackends.sql.js";
import { noOmissions, rejectedRepeatNote, type Omissions } from "../sql/omissions.js";
import { readRemoteRuns } from "./remoteRuns.sql.js";
import type { OwedSuccessors } from "../upkeep/owedSuccessors.js";
import type { TaskTable } from "../schema/taskTable.js";
import { orphanCheckMs } from "../model/tuning.js";

const maxLoggedIds = 5;

const outcomes: readonly (readonly [RescueOutcome, string])[] = [
  ["planned", "they run again"],
  ["replaced", "another task waits with the same key: they are GONE"],
  ["done", "their effect was committed: they are DONE, without their output"],
  ["kept", "they keep the state that another client has set"],
];

interface Orphan extends OwnedRow {
  isBlamed: boolean;
  /** Whether the session belonged to this manager. If so, no more results of the session are received. */
  readonly isOwnSession: boolean;
  readonly reason: string | null;
  /** Whether the group counts the task as running. It no longer does once the backend is gone, even if the row is locked. */
  isCounted: boolean;
}

interface CheckRequest {
  readonly crashes: number;
  readonly batch: number;
  readonly isKnown: (row: OwnedRow) => boolean;
}

type Rescue = (orphans: readonly Orphan[], omissions: Pick<Omissions, "pause" | "repetition">) => Promise<void>;

interface OrphanRescuerOptions {
  readonly table: TaskTable;
  readonly groups: ActiveGroups;
  readonly deferredPauses: DeferredPauses;
  readonly lostRemoteRuns: LostRemoteRuns;
  readonly owed: Pick<OwedSuccessors, "touch">;
  readonly log: Log;
}

/**
 * Rescues orphans: claimed tasks whose session this manager has lost, or whose session belongs to an earlier manager.
 *
 *   running elsewhere ──backend gone──▶ orphan ──row writable──▶ rescued: PLAN, DONE or FAIL
 *          │           (of a remote task: both backends)
 *          └──its owner completes or releases it──▶ forgotten
 *
 * Orphans are counted as running in their groups until their backends are gone.
 */
export class OrphanRescuer {
  readonly #options: OrphanRescuerOptions;
  readonly #orphans = new Map<string, Orphan>();
  /** Owners of sessions whose connection failed. Their tasks are not to blame for the loss. */
  readonly #excusedOwners = new Set<string>();
  /** Owners of the sessions that existed when the manager's connection was last lost. */
  #disconnectedOwners: ReadonlySet<string> = new Set();
  /** Since the last scan. Sessions that are lost now were probably lost with it. */
  #isConnectionLost = false;
  #recentlyLost = 0;
  readonly #outcomes: RescueOutcome[] = [];
  #pauseMs: number = orphanCheckMs.first;
  readonly #rejected: RejectedRows;

  constructor(options: OrphanRescuerOptions) {
    this.#options = options;
    this.#rejected = new RejectedRows(options.log);
  }

  get size(): number {
    return this.#orphans.size;
  }

  /** The group hash of each orphan that is counted as running. */
  get hashes(): number[] {
    return [...this.#orphans.values()].flatMap(({ isCounted, hash }) => (isCounted ? hash : []));
  }

  get ids(): string[] {
    return [...this.#orphans.keys()];
  }

  get runningIds(): string[] {
    return [...this.#orphans.values()].flatMap(({ isCounted, id }) => (isCounted ? id : []));
  }

  get keys(): string[] {
    return [...this.#orphans.values()].flatMap(({ isCounted, key }) => (isCounted ? (key ?? []) : []));
  }

  get pauseMs(): number {
    return this.#pending.length === 0 ? this.#rejected.nextRetryMs : this.#pauseMs;
  }

  /** All orphans, except rejected ones that wait for their next attempt. */
  get #pending(): Orphan[] {
    const delayedIds = new Set(this.#rejected.delayedIds);
    return [...this.#orphans.values()].filter(({ id }) => !delayedIds.has(id));
  }

  /** Returns how many tasks were lost with sessions since the last call. They soon need other sessions. */
  takeLostCount(): number {
    const count = this.#recentlyLost;
    this.#recentlyLost = 0;
    return count;
  }

  takeOutcomes(): readonly RescueOutcome[] {
    return this.#outcomes.splice(0);
  }

  /**
   * Adds a task of one of this manager's sessions, so that its group already counts it as running.
   *
   * @param ran whether the task was the session's current task. Queued tasks are not to blame for the loss.
   */
  add(run: OwnedRow, ran = true, reason: string | null = null): void {
    // If the task was rescued, claimed and lost again before the next check, the group still counts its first run.
    this.#remove(run.id);
    this.#orphans.set(run.id, {
      ...run,
      isBlamed:
        ran &&
        !this.#isConnectionLost &&
        !this.#excusedOwners.has(run.owner) &&
        !this.#disconnectedOwners.has(run.owner),
      isOwnSession: true,
      isCounted: true,
      reason,
    });
    this.#recentlyLost += 1;
    this.#pauseMs = orphanCheckMs.first;
  }

  /** This owner's tasks are not to blame for the end of its session, which will be reported later. */
  excuse(owner: string): void {
    this.#excusedOwners.add(owner);
  }

  /**
   * The server or the network failed. Until the next scan, no task is to blame for a lost session.
   *
   * @param owners owners of the current sessions. Their loss may be reported even after the scan.
   */
  clearBlame(owners: readonly string[]): void {
    this.#isConnectionLost = true;
    this.#disconnectedOwners = new Set(owners);
    for (const orphan of this.#orphans.values()) orphan.isBlamed = false;
  }

  async scan(client: Client, isKnown: (row: OwnedRow) => boolean): Promise<void> {
    for (const row of await readClaimedRows(client, this.#options.table, null)) {
      if (this.#orphans.get(row.id)?.owner === row.owner || isKnown(row)) continue;
      this.#addForeign(row);
    }
    this.#isConnectionLost = false;
    this.#excusedOwners.clear();
  }

  #addForeign(row: OwnedRow): void {
    this.#remove(row.id);
    this.#orphans.set(row.id, { ...row, isBlamed: false, isOwnSession: false, isCounted: true, reason: null });
    this.#options.groups.addOrphan(row.hash, row.key);
    this.#pauseMs = orphanCheckMs.first;
  }

  /** Rescues tasks whose backends are gone, and forgets those that have another owner or none. Returns the number. */
  async check(client: Client, request: CheckRequest): Promise<number> {
    const pending = this.#pending;
    if (pending.length === 0) return 0;
    this.#pauseMs = Math.min(2 * this.#pauseMs, orphanCheckMs.max);
    const ids = pending.map(({ id }) => id);
    const claimed = await readClaimedRows(client, this.#options.table, ids);
    const rows = new Map(claimed.map((row) => [row.id, row]));
    for (const id of ids) {
      const row = rows.get(id);
      if (row?.owner === this.#orphans.get(id)?.owner) continue;
      this.#remove(id);
      // After a failover, the row can have an older owner than the one that is known here.
      if (row !== undefined && !request.isKnown(row)) this.#addForeign(row);
    }
    const dead = await findDeadOwners(client, this.#options.table, [...new Set(claimed.map(({ owner }) => owner))]);
    const gone = new Set(dead);
    await this.#terminateOwnSessions(client, gone);
    if (gone.size === 0) return 0;
    const remote = await readRemoteRuns(client, this.#options.table, {
      dead,
      ids: [...this.#orphans.keys()],
    });
    const { running, committed } = this.#options.lostRemoteRuns.inspect(remote);
    const rescuable = this.#pending.filter(({ id, owner }) => gone.has(owner) && !running.has(id));
    if (rescuable.length === 0) return 0;
    const columns = await readColumnSet(client, this.#options.table);
    let count = 0;
    for (const blame of [true, false]) {
      const orphans = rescuable.filter((orphan) => orphan.isBlamed === blame);
      for (let from = 0; from < orphans.length; from += request.batch) {
        const batch = orphans.slice(from, from + request.batch);
        const rescue: Rescue = async (some, omissions) => {
          const { rescued, paused } = await rescueTasks(client, this.#options.table, columns, {
            dead,
            ids: some.map(({ id }) => id),
            committed,
            blame,
            crashes: request.crashes,
            reasons: Object.fromEntries(some.flatMap(({ id, reason }) => (reason === null ? [] : [[id, reason]]))),
            omissions,
          });
          this.#options.deferredPauses.add(paused);
          for (const { id, verdict } of rescued) {
            this.#remove(id);
            this.#outcomes.push(verdict);
          }
          // The remaining rows are locked. Their tasks no longer run either.
          for (const { id } of some) this.#uncount(id);
          this.#logRescued(rescued, blame);
          count += rescued.length;
        };
        const left = await changeRows(
          client,
          batch,
          (some) => rescue(some, noOmissions),
          (orphan, error) => this.#rescueRejected(orphan, error, rescue),
        );
        if (left.length === 0) continue;
        // Orphans that may well be rejected again come last the next time.
        for (const orphan of left) this.#moveBack(orphan);
        this.#pauseMs = orphanCheckMs.first;
        return count;
      }
    }
    return count;
  }

  /** Retries a rejected rescue without the pause, then without the repetition, but never without the outcome. */
  async #rescueRejected(orphan: Orphan, error: DatabaseError, rescue: Rescue): Promise<void> {
    const reason = await tryInOrder(error, [
      () => rescue([orphan], { pause: true, repetition: null }),
      async (rejection) => {
        await rescue([orphan], { pause: true, repetition: rejectedRepeatNote(rejection) });
        this.#options.owed.touch();
      },
    ]);
    if (reason === null) return;
    this.#uncount(orphan.id);
    this.#moveBack(orphan);
    this.#rejected.add(orphan.id, reason, "rescue rejected by the server, retrying");
  }

  get foreignOwners(): string[] {
    const foreign = [...this.#orphans.values()].filter(({ isOwnSession }) => !isOwnSession);
    return [...new Set(foreign.map(({ owner }) => owner))];
  }

  /** Terminates the sessions of other processes that have tasks. Their tasks are then rescued. */
  async endForeignOwners(client: Client): Promise<void> {
    const dead = new Set(await findDeadOwners(client, this.#options.table, this.foreignOwners));
    const alive = this.foreignOwners.filter((owner) => !dead.has(owner));
    if (alive.length === 0) return;
    const ended = await terminateOwners(client, this.#options.table, { owners: alive, areOwn: false });
    const shown = { sessions: ended, left: alive.length - ended };
    this.#options.log.warn(shown, "sessions of a process that does not answer were ended");
    this.#pauseMs = orphanCheckMs.first;
  }

  #moveBack(orphan: Orphan): void {
    this.#orphans.delete(orphan.id);
    this.#orphans.set(orphan.id, orphan);
  }

  #logRescued(rescued: readonly RescuedTask[], blame: boolean): void {
    const reason = blame
      ? "the session that ran them died"
      : "the server, the process or the manager's connection was lost, and the sessions with it";
    for (const [verdict, outcome] of outcomes) {
      const ids = rescued.flatMap((each) => (each.verdict === verdict ? each.id : []));
      if (ids.length === 0) continue;
      this.#options.log.warn(
        { tasks: ids.length, ids: ids.slice(0, maxLoggedIds), reason, outcome },
        "orphaned tasks rescued",
      );
    }
    for (const { id, verdict, crash } of rescued) {
      if (verdict !== "failed") continue;
      this.#options.log.warn({ id, crash }, "crash limit reached, task failed");
    }
  }

  /** Terminates lost sessions. Before PostgreSQL 14, a busy backend does not notice that its client is gone. */
  async #terminateOwnSessions(client: Client, gone: ReadonlySet<string>): Promise<void> {
    const alive = [...this.#orphans.values()].filter((o) => o.isOwnSession && !gone.has(o.owner));
    const owners = alive.map(({ owner }) => owner);
    if (owners.length > 0) await terminateOwners(client, this.#options.table, { owners, areOwn: true });
  }

  #remove(id: string): void {
    this.#uncount(id);
    this.#orphans.delete(id);
    this.#rejected.delete(id);
  }

  /** The task no longer runs anywhere, so its group stops counting it. */
  #uncount(id: string): void {
    const orphan = this.#orphans.get(id);
    if (orphan?.isCounted !== true) return;
    this.#options.groups.removeOrphan(orphan.hash, orphan.key);
    orphan.isCounted = false;
  }
}
