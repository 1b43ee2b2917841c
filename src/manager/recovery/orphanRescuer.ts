import type { DatabaseError } from "pg";
import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import type { LostRemoteRuns } from "./lostRemoteRuns.js";
import type { ActiveGroups } from "../groups/groups.js";
import type { DeferredPauses } from "../groups/deferredPauses.js";
import { attemptEach, RejectedRows, singleOut } from "../rejectedRows.js";
import { readColumnSet } from "../schema/columnSet.js";
import {
  deadOwners,
  endOwners,
  ownedRows,
  rescue,
  stillOwned,
  type OwnedRow,
  type Rescued,
} from "./rescue.sql.js";
import { nothingSpared, withoutRepeat, type Spared } from "../results/withoutRepeat.sql.js";
import { remoteRuns } from "./remoteRuns.sql.js";
import type { TaskTable } from "../schema/taskTable.js";

/** Pauses between questions whether a server process is gone, in ms: soon after a death it mostly is. */
const checkMs = { first: 10, longest: 200 };
/** Most ids that one line of the log names. */
const mostNamed = 5;

/** What a rescued task comes to, and why, as the log says it. */
const outcomes: readonly (readonly [Rescued["verdict"], string])[] = [
  ["planned", "they run again"],
  ["done", "their effect was committed: they are DONE, without their output"],
  ["kept", "they stay as somebody has set them"],
];

interface Orphan extends OwnedRow {
  /** Whether its own run is what ended its session. */
  blame: boolean;
  /** Whether its session was ours: nobody hears any more what comes out of it. */
  readonly ours: boolean;
  /** Whether its group counts it: not once it is known to be gone, though its row may be locked or refused. */
  counts: boolean;
}

type Settle = (orphans: readonly Orphan[], spared: Omit<Spared, "deletion">) => Promise<void>;

/**
 * Tasks that a session has of which this manager hears nothing: its own sessions that were lost,
 * and those of a manager before it. They count as running in their groups until their server
 * process is gone; then they are rescued, remote ones when their own server says so too.
 */
export class OrphanRescuer {
  readonly #table: TaskTable;
  readonly #groups: ActiveGroups;
  readonly #pauses: DeferredPauses;
  readonly #abroad: LostRemoteRuns;
  readonly #log: Log;
  readonly #orphans = new Map<string, Orphan>();
  /** Owners of sessions that the network took. */
  readonly #excused = new Set<string>();
  /** Sessions that were there when the manager's own connection was lost last. */
  #cutOff: ReadonlySet<string> = new Set();
  /** Whether sessions that are lost now go the way of the manager's own connection. */
  #forgiving = false;
  /** How many of ours were lost since it was last asked. */
  #lostLately = 0;
  #pauseMs: number = checkMs.first;
  readonly #refusals: RejectedRows;

  constructor(options: {
    readonly table: TaskTable;
    readonly groups: ActiveGroups;
    readonly pauses: DeferredPauses;
    readonly abroad: LostRemoteRuns;
    readonly log: Log;
  }) {
    this.#table = options.table;
    this.#groups = options.groups;
    this.#pauses = options.pauses;
    this.#abroad = options.abroad;
    this.#log = options.log;
    this.#refusals = new RejectedRows(options.log);
  }

  get size(): number {
    return this.#orphans.size;
  }

  /** Of each that its group counts, the hash of that. */
  get hashes(): number[] {
    return [...this.#orphans.values()].flatMap(({ counts, hash }) => (counts ? hash : []));
  }

  has(id: string): boolean {
    return this.#orphans.has(id);
  }

  /** When it wants to be asked again, in ms. */
  get pauseMs(): number {
    return this.#open.length === 0 ? this.#refusals.pauseMs : this.#pauseMs;
  }

  /** Those that were not refused, or whose pause after that is over. */
  get #open(): Orphan[] {
    const waiting = new Set(this.#refusals.waiting);
    return [...this.#orphans.values()].filter(({ id }) => !waiting.has(id));
  }

  /** How many tasks were lost with sessions of ours since the last call, and need another one soon. */
  takeLost(): number {
    const lost = this.#lostLately;
    this.#lostLately = 0;
    return lost;
  }

  /**
   * A session of ours was lost that had this task, which its group counts already.
   *
   * @param ran whether it was the one that ran: the others waited behind it, and are not to blame.
   */
  lost(run: OwnedRow, ran = true): void {
    // Rescued, started and lost again before the next check: its group still counts the first time.
    this.#forget(run.id);
    this.#orphans.set(run.id, {
      ...run,
      blame:
        ran && !this.#forgiving && !this.#excused.has(run.owner) && !this.#cutOff.has(run.owner),
      ours: true,
      counts: true,
    });
    this.#lostLately += 1;
    this.#pauseMs = checkMs.first;
  }

  /** Whatever this session of ours runs is not the reason of its end, of which is heard later. */
  excuse(owner: string): void {
    this.#excused.add(owner);
  }

  /**
   * The server or the network went, not the sessions by their own doing, until the next scan.
   *
   * @param owners sessions that were there then: that they are gone as well may be heard of later.
   */
  forgive(owners: readonly string[]): void {
    this.#forgiving = true;
    this.#cutOff = new Set(owners);
    for (const orphan of this.#orphans.values()) orphan.blame = false;
  }

  /** Looks through the whole table for tasks that nobody here knows of. */
  async scan(client: Client, known: (row: OwnedRow) => boolean): Promise<void> {
    for (const row of await ownedRows(client, this.#table)) {
      if (this.#orphans.has(row.id) || known(row)) continue;
      this.#orphans.set(row.id, { ...row, blame: false, ours: false, counts: true });
      this.#groups.begin(row.hash);
      this.#pauseMs = checkMs.first;
    }
    this.#forgiving = false;
    this.#excused.clear();
  }

  /** Rescues those whose server process is gone and forgets those that came out by themselves. */
  async check(client: Client, request: { crashes: number; batch: number }): Promise<number> {
    const open = this.#open;
    if (open.length === 0) return 0;
    this.#pauseMs = Math.min(2 * this.#pauseMs, checkMs.longest);
    const ids = open.map(({ id }) => id);
    const owned = await stillOwned(client, this.#table, ids);
    const owners = new Map(owned.map((row) => [row.id, row.owner]));
    for (const id of ids) {
      if (owners.get(id) !== this.#orphans.get(id)?.owner) this.#forget(id);
    }
    const dead = await deadOwners(client, [...new Set(owners.values())]);
    const gone = new Set(dead);
    await this.#endOurs(client, gone);
    if (gone.size === 0) return 0;
    const remote = await remoteRuns(client, this.#table, { dead, ids: [...this.#orphans.keys()] });
    const abroad = this.#abroad.settle(remote);
    const settled = this.#open.filter(({ id, owner }) => gone.has(owner) && !abroad.has(id));
    if (settled.length === 0) return 0;
    const shape = await readColumnSet(client, this.#table);
    let count = 0;
    for (const blame of [true, false]) {
      const lost = settled.filter((orphan) => orphan.blame === blame);
      for (let from = 0; from < lost.length; from += request.batch) {
        const some = lost.slice(from, from + request.batch);
        const settle: Settle = async (orphans, spared) => {
          const { rescued, paused } = await rescue(client, this.#table, shape, {
            dead,
            ids: orphans.map(({ id }) => id),
            blame,
            crashes: request.crashes,
            spared,
          });
          this.#pauses.add(paused);
          for (const { id } of rescued) this.#forget(id);
          // The rows of the others somebody has locked.
          for (const { id } of orphans) this.#discount(id);
          this.#say(rescued, blame);
          count += rescued.length;
        };
        const left = await singleOut(
          client,
          some,
          (orphans) => settle(orphans, nothingSpared),
          (orphan, error) => this.#settleRefused(orphan, error, settle),
        );
        if (left.length === 0) continue;
        // The others wait: what may well be refused again comes last the next time.
        for (const orphan of left) this.#moveBack(orphan);
        this.#pauseMs = checkMs.first;
        return count;
      }
    }
    return count;
  }

  /** What is beside the row's own outcome is left out until the server takes it. */
  async #settleRefused(orphan: Orphan, error: DatabaseError, settle: Settle): Promise<void> {
    const reason = await attemptEach(error, [
      () => settle([orphan], { pause: true, repetition: null }),
      (refusal) => settle([orphan], { pause: true, repetition: withoutRepeat(refusal) }),
    ]);
    if (reason === null) return;
    this.#discount(orphan.id);
    this.#moveBack(orphan);
    this.#refusals.add(orphan.id, reason, "rescue refused by the server, it is tried again");
  }

  #moveBack(orphan: Orphan): void {
    this.#orphans.delete(orphan.id);
    this.#orphans.set(orphan.id, orphan);
  }

  #say(rescued: readonly Rescued[], blame: boolean): void {
    const reason = blame
      ? "the session that ran them died"
      : "the server, the process or the manager's connection went, and their sessions with it";
    for (const [verdict, outcome] of outcomes) {
      const ids = rescued.flatMap((each) => (each.verdict === verdict ? each.id : []));
      if (ids.length === 0) continue;
      this.#log.warn(
        { tasks: ids.length, ids: ids.slice(0, mostNamed), reason, outcome },
        "orphaned tasks rescued",
      );
    }
    for (const { id, verdict, crash } of rescued) {
      if (verdict !== "failed") continue;
      this.#log.warn({ id, crash }, "task took its own session down too often, it is FAIL");
    }
  }

  /** By itself a server before 14 notices only at the end of a statement that its client is gone. */
  async #endOurs(client: Client, gone: ReadonlySet<string>): Promise<void> {
    const alive = [...this.#orphans.values()].filter((o) => o.ours && !gone.has(o.owner));
    if (alive.length > 0)
      await endOwners(
        client,
        alive.map((orphan) => orphan.owner),
      );
  }

  #forget(id: string): void {
    this.#discount(id);
    this.#orphans.delete(id);
    this.#refusals.delete(id);
  }

  /** Nothing of it runs any more. */
  #discount(id: string): void {
    const orphan = this.#orphans.get(id);
    if (orphan?.counts !== true) return;
    this.#groups.end(orphan.hash);
    orphan.counts = false;
  }
}
