import type { Client } from "../../shared/postgres/client.js";
import type { Head } from "./groups.js";
import { withGroupPauses } from "../claim/withGroupPauses.js";
import type { HeadRow } from "../sql/head.js";
import type { TaskTable } from "../schema/taskTable.js";

/** How many groups one look visits, and how many tasks in all. */
const most = { groups: 50, tasks: 5_000 };
/** Looking may take a tenth of the time. */
const share = 10;
/** A group in which nothing was found is left alone for so long, in ms. */
const restMs = 1_000;
/** Before every task of a group. */
const top: Head = { max: 2_147_483_647, id: -(2n ** 63n) };

interface Sought {
  /** The next look begins behind this. */
  from: Head;
  /** The first task found that is not paused, as far as is known. */
  found: HeadRow | null;
  /** Not to be looked at before, on the process's clock. */
  restUntil: number;
  /** How many changes there had been when it was last begun at the top. */
  changes: number;
  /** Whether its first task was paused in this round of looks. */
  seen: boolean;
}

/**
 * Groups are told apart by a hash, pauses are for names: where the first due task of a group is paused, one
 * of another name with the same hash may wait behind it. So paused groups are looked through, some of
 * their tasks at a time, and about once a second, since hardly any two names have the same hash.
 */
export class PausedGroups {
  readonly #table: TaskTable;
  readonly #now: () => number;
  readonly #sought = new Map<number, Sought>();
  #changes = 0;
  #restUntil = 0;

  /** @param now the process's clock, in ms. */
  constructor(table: TaskTable, now: () => number = () => performance.now()) {
    this.#table = table;
    this.#now = now;
  }

  /** Tasks may have come, or become due, in any group. */
  change(): void {
    this.#changes += 1;
  }

  /** Until another look is due though nothing else is, in ms; Infinity when all is known. */
  get pauseMs(): number {
    for (const { from, changes } of this.#sought.values())
      if (from !== top || changes !== this.#changes) return restMs;
    return Infinity;
  }

  /**
   * @param paused hashes of groups whose first due task is paused.
   * @param except tasks not to look at this time.
   * @returns the first tasks that are not paused, of those groups of which one is known.
   */
  async look(
    client: Client,
    paused: readonly number[],
    except: readonly string[],
  ): Promise<readonly HeadRow[]> {
    for (const hash of paused) {
      const sought = this.#sought.get(hash);
      if (sought !== undefined) sought.seen = true;
      else
        this.#sought.set(hash, { from: top, found: null, restUntil: 0, changes: -1, seen: true });
    }
    const next = this.#next(new Set(paused));
    if (next.length > 0) await this.#lookAt(client, next, except);
    return paused.flatMap((hash) => this.#sought.get(hash)?.found ?? []);
  }

  /** All groups have been visited of which something is due: the others are forgotten. */
  endRound(): void {
    for (const [hash, sought] of this.#sought) {
      if (!sought.seen) this.#sought.delete(hash);
      sought.seen = false;
    }
  }

  /** Those that were looked at go to the end; what was found is looked at each time, since it may be taken by now. */
  #next(paused: ReadonlySet<number>): (readonly [number, Sought])[] {
    const now = this.#now();
    const next: (readonly [number, Sought])[] = [];
    for (const [hash, sought] of this.#sought) {
      if (!paused.has(hash)) continue;
      const rests = Math.max(this.#restUntil, sought.restUntil) > now;
      if (rests && sought.found === null) continue;
      next.push([hash, sought]);
      if (next.length === most.groups) break;
    }
    return next;
  }

  async #lookAt(
    client: Client,
    next: readonly (readonly [number, Sought])[],
    except: readonly string[],
  ): Promise<void> {
    const limit = Math.ceil(most.tasks / next.length);
    const groups = next.map(([hash, { from }]) => ({ hash, ...from }));
    const since = this.#now();
    const changes = this.#changes;
    const rows = await withGroupPauses(client, this.#table, groups, limit, except);
    const now = this.#now();
    this.#restUntil = now + (now - since) * share;
    const heads = new Map(rows.map((row) => [row.hash, row]));
    for (const [hash, sought] of next) {
      this.#sought.delete(hash);
      const row = heads.get(hash);
      this.#sought.set(hash, {
        ...sought,
        ...follow(sought, row),
        restUntil: row === undefined ? now + restMs : 0,
        changes: sought.from === top ? changes : sought.changes,
      });
    }
  }
}

/** What is known after a look that came to this row. */
function follow({ found }: Sought, row: HeadRow | undefined): Pick<Sought, "from" | "found"> {
  if (row === undefined) return { from: top, found: null };
  const at = { max: row.max, id: BigInt(row.id) };
  if (row.paused) return { from: at, found };
  // Met again: it cannot start, and something that can may have come before it.
  if (found !== null && String(found.id) === String(row.id)) return { from: top, found: row };
  return { from: { ...at, id: at.id - 1n }, found: row };
}
