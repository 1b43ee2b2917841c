import type { Client } from "../shared/database.js";
import type { Groups } from "./groups.js";
import type { DueTask } from "./sql/claim.js";
import type { HeadRow } from "./sql/head.js";
import { inserted, lastId, type InsertedRow } from "./sql/inserted.js";
import { nearestPlan } from "./sql/nearestPlan.js";
import { promote } from "./sql/promote.js";
import { sweep } from "./sql/sweep.js";
import type { TaskTable } from "./table.js";

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

export interface Looked {
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
export class Lookout {
  readonly #table: TaskTable;
  readonly #groups: Groups;
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

  constructor(options: { readonly table: TaskTable; readonly groups: Groups }) {
    this.#table = options.table;
    this.#groups = options.groups;
  }

  /** Something was changed in a way that nobody tells. */
  change(): void {
    this.#changed = true;
  }

  /** Time until the next task becomes due, in ms, null when none is planned. */
  get nearestMs(): number | null {
    return this.#planAt === null ? null : Math.max(0, this.#planAt - performance.now());
  }

  /** Whether it is time to mark what became due. */
  get promotes(): boolean {
    return this.#planAt !== null && this.#planAt <= performance.now();
  }

  /** Marks what became due, if it is time; true when there may be more. */
  async promote(client: Client): Promise<boolean> {
    if (!this.promotes) return false;
    const { due, more } = await promote(client, this.#table);
    for (const task of due) this.offer(task);
    return more;
  }

  /** A task is due. */
  offer({ id, hash, max }: DueTask): void {
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
  ): Promise<Looked> {
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
    const ms = await nearestPlan(client, this.#table);
    this.#planAt = ms === null ? null : performance.now() + ms;
  }

  async #sweep(
    client: Client,
    { pressed, except }: { readonly pressed: boolean; readonly except: readonly string[] },
  ): Promise<readonly HeadRow[]> {
    const after = this.#after;
    if (after === beginning) {
      this.#wanted = this.#changed;
      this.#changed = false;
    }
    const limit = pressed ? mostGroups.pressed : mostGroups.free;
    const rows = await sweep(client, this.#table, { after, limit, except });
    for (const { hash, max, id, paused } of rows)
      this.#groups.see(hash, { max, id: BigInt(id) }, paused);
    if (rows.length === limit) this.#after = rows.at(-1)?.hash ?? beginning;
    else {
      this.#after = beginning;
      this.#wanted = this.#changed;
    }
    this.#many = rows.length === limit || after !== beginning;
    return rows;
  }

  async #inserted(client: Client): Promise<readonly InsertedRow[]> {
    if (this.#lastId === null) {
      this.#lastId = await lastId(client, this.#table);
      this.#changed = true;
      return [];
    }
    const rows = await inserted(client, this.#table, this.#lastId - overlap, mostInserted);
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
