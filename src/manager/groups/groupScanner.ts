import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import type { ActiveGroups } from "./groups.js";
import { PausedGroups } from "./pausedGroups.js";
import { isRowError, RejectedRows, singleOut } from "../rejectedRows.js";
import type { DueTask } from "../claim/claimFull.sql.js";
import type { HeadRow } from "../sql/head.js";
import { insertedTasks, lastId, type InsertedTask } from "./insertedTasks.sql.js";
import { nextPlan } from "./nextPlan.sql.js";
import { maxMarkedDue, dueTaskIds, markDue, markTheseDue } from "./markDue.sql.js";
import { scanGroups } from "./scanGroups.sql.js";
import type { TaskTable } from "../schema/taskTable.js";

/** Before all hashes. */
const beginning = -2_147_483_649;
/** How many groups one look visits: few while sessions are busy anyway. */
const mostGroups = { pressed: 50, free: 1000 };
/** How many new rows one look reads; after more than that, the round finds them. */
const mostInserted = 500;
/** So many ids are read again, since they may be committed in another order. */
const overlap = 64n;
/** While it is known what to start next, looking may take a tenth of the time. */
const share = 10;

export interface ScanResult {
  /** Groups whose first due task is not worth running any more. */
  readonly gone: readonly number[];
  /** Whether to look again at once. */
  readonly again: boolean;
}

/**
 * Keeps the heads of groups fresh. Each look visits the next groups in the order of their hashes,
 * round and round: with few groups that is all of them. With more it also reads the rows that were
 * inserted since, so that these need not wait until their turn comes; when something else has
 * changed, one look follows the other until a whole round has been made.
 */
export class GroupScanner {
  readonly #table: TaskTable;
  readonly #groups: ActiveGroups;
  #after = beginning;
  /** Whether something has changed since the round began. */
  #changed = true;
  /** Whether the round under way is to be finished without a pause. */
  #wanted = false;
  /** Whether there are more groups than one look visits. */
  #many = false;
  #lastId: bigint | null = null;
  #lookMs = 0;
  #lookedAt = 0;
  /** When the next plan comes, on the process's clock; null when none is known. */
  #planAt: number | null = 0;
  #planAskedAt = 0;

  /** Tasks that cannot be marked as due. */
  readonly #refusals: RejectedRows;
  /** Of those that were refused together, the ones that there was no time to tell apart. */
  #suspects: readonly string[] = [];
  readonly #pausedNames: PausedGroups;

  constructor(options: {
    readonly table: TaskTable;
    readonly groups: ActiveGroups;
    readonly log: Log;
  }) {
    this.#table = options.table;
    this.#groups = options.groups;
    this.#refusals = new RejectedRows(options.log);
    this.#pausedNames = new PausedGroups(options.table);
  }

  /** Something was changed in a way that nobody tells. */
  change(): void {
    this.#changed = true;
  }

  /** Begins anew, as one that knows of no group and of no plan. */
  restart(): void {
    this.#after = beginning;
    this.#changed = true;
    this.#lastId = null;
    this.#lookedAt = 0;
    this.#planAt = 0;
    this.#planAskedAt = 0;
  }

  /** Tasks that the server refuses to mark as due. */
  get refused(): readonly string[] {
    return this.#refusals.ids;
  }

  /** Time until the next task becomes due, or may be found behind paused ones, in ms; null when there is none. */
  get nearestMs(): number | null {
    const planMs = this.#planAt === null ? Infinity : Math.max(0, this.#planAt - performance.now());
    const ms = Math.min(planMs, this.#pausedNames.pauseMs);
    return ms === Infinity ? null : ms;
  }

  /** Whether it is time to mark what became due. */
  get promotes(): boolean {
    return this.#planAt !== null && this.#planAt <= performance.now();
  }

  /** Marks what became due, if it is time; true when there may be more. */
  async promote(client: Client): Promise<boolean> {
    if (!this.promotes) return false;
    const except = this.#refusals.waiting;
    let more = false;
    try {
      const promoted = await markDue(client, this.#table, except);
      more = promoted.more;
      for (const task of promoted.due) this.offer(task);
    } catch (error) {
      if (!isRowError(error)) throw error;
      more = await this.#promoteEach(client);
    }
    if (!more) this.#refusals.deleteDue();
    return more;
  }

  /** True when there may be more. */
  async #promoteEach(client: Client): Promise<boolean> {
    const known = [...this.#suspects, ...this.#refusals.ids];
    const others = await dueTaskIds(client, this.#table, known);
    // What may well be refused again comes last, so that it holds up nothing else.
    const all = [...new Set([...others, ...this.#suspects, ...this.#refusals.due])];
    const ids = all.slice(0, maxMarkedDue);
    const left = await singleOut(
      client,
      ids,
      async (some) => {
        for (const task of await markTheseDue(client, this.#table, some)) this.offer(task);
      },
      (id, error) => {
        this.#refusals.add(id, error, "becoming due refused by the server, it is tried again");
      },
    );
    // Those that were not tried stay behind the others: else they would come before what has become due since.
    const tried = new Set(ids);
    this.#suspects = [...left, ...this.#suspects.filter((id) => !tried.has(id))];
    return left.length > 0 || ids.length === maxMarkedDue;
  }

  /** A task is due. */
  offer({ id, hash, max }: DueTask): void {
    this.#pausedNames.change();
    this.#groups.offer(hash, { max, id: BigInt(id) });
  }

  /**
   * @param request.pressed whether there is more due already than sessions can take.
   * @param request.watch whether somebody may have changed something.
   * @param request.except tasks not to look at.
   */
  async look(
    client: Client,
    request: {
      readonly pressed: boolean;
      readonly watch: boolean;
      readonly except: readonly string[];
    },
  ): Promise<ScanResult> {
    this.#changed ||= request.watch;
    const now = performance.now();
    const rests = now - this.#lookedAt < Math.max(2, this.#lookMs * share);
    const knowsMore = request.pressed || (!request.watch && this.#groups.startable > 0);
    if (knowsMore && rests) return { gone: [], again: false };
    const [swept, fresh] = await Promise.all([
      this.#sweep(client, request),
      this.#many ? this.#inserted(client) : [],
    ]);
    this.#lookedAt = performance.now();
    this.#lookMs = this.#lookedAt - now;
    const gone = [...swept, ...fresh].filter((row) => row.gone).map((row) => row.hash);
    return { gone: [...new Set(gone)], again: !request.pressed && this.#wanted };
  }

  /** Asks for the nearest plan, unless that was just done and sessions are busy anyway. */
  async nearest(client: Client, pressed: boolean): Promise<void> {
    const now = performance.now();
    if (pressed && now - this.#planAskedAt < 10) return;
    this.#planAskedAt = now;
    // Those whose pause is over may be found to be none, and planned for later, while this is on its way.
    const ms = await nextPlan(client, this.#table, this.#refusals.waiting);
    const nearest = Math.min(ms ?? Infinity, this.#refusals.pauseMs);
    this.#planAt = nearest === Infinity ? null : performance.now() + nearest;
  }

  async #sweep(
    client: Client,
    { pressed, except }: { readonly pressed: boolean; readonly except: readonly string[] },
  ): Promise<readonly HeadRow[]> {
    const after = this.#after;
    if (this.#changed) this.#pausedNames.change();
    if (after === beginning) {
      this.#wanted = this.#changed;
      this.#changed = false;
      this.#groups.beginRound();
    }
    const limit = pressed ? mostGroups.pressed : mostGroups.free;
    const rows = await scanGroups(client, this.#table, { after, limit, except });
    for (const { hash, max, id, paused } of rows)
      this.#groups.see(hash, { max, id: BigInt(id) }, paused);
    const beside = await this.#pausedNames.look(
      client,
      rows.flatMap(({ hash, paused, all }) => (paused && !all ? hash : [])),
      except,
    );
    for (const { hash, max, id } of beside) this.#groups.see(hash, { max, id: BigInt(id) }, false);
    if (rows.length === limit) this.#after = rows.at(-1)?.hash ?? beginning;
    else {
      this.#after = beginning;
      this.#wanted = this.#changed;
      this.#groups.endRound();
      this.#pausedNames.endRound();
    }
    this.#many = rows.length === limit || after !== beginning;
    return [...rows, ...beside];
  }

  async #inserted(client: Client): Promise<readonly InsertedTask[]> {
    if (this.#lastId === null) {
      this.#lastId = await lastId(client, this.#table);
      this.#changed = true;
      return [];
    }
    const rows = await insertedTasks(client, this.#table, this.#lastId - overlap, mostInserted);
    const due = rows.filter((row) => row.due);
    for (const { id, hash, max, paused } of due)
      if (!paused) this.#groups.offer(hash, { max, id: BigInt(id) });
    for (const { id } of rows) if (BigInt(id) > this.#lastId) this.#lastId = BigInt(id);
    if (rows.length < mostInserted) return due;
    this.#lastId = await lastId(client, this.#table);
    this.#changed = true;
    return due;
  }
}
