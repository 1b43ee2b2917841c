import type { Client } from "../../shared/postgres/client.js";
import { beforeFirst, type Head } from "./activeGroup.js";
import { firstUnpaused } from "./heads.sql.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { HeadRow } from "../sql/fragments.sql.js";
import { maxPausedSearch, pausedRestMs, scanRestFactor } from "../model/tuning.js";

interface Search {
  /** The position behind which the search continues. */
  from: Head;
  found: HeadRow | null;
  /** When the group can be searched again, on the process's clock. */
  restUntil: number;
  /** The value of the change counter when the search last started at the beginning of the group. */
  changes: number;
  /** Whether the head of the group was paused in this scan round. */
  seen: boolean;
}

/**
 * Groups are identified by a hash, but pauses apply to names. Two names can have the same hash, so paused groups are
 * searched for due tasks of another name, in several steps if they are long. A group in which nothing was found is
 * searched again only after a second, because two names hardly ever have the same hash.
 */
export class PausedGroups {
  readonly #table: TaskTable;
  readonly #now: () => number;
  readonly #searches = new Map<number, Search>();
  #changes = 0;
  #restUntil = 0;

  constructor(table: TaskTable, now: () => number = () => performance.now()) {
    this.#table = table;
    this.#now = now;
  }

  /** Tasks of any group may have been inserted or become due. */
  markChanged(): void {
    this.#changes += 1;
  }

  /** Time until the next search, in ms. Infinity if every group has been searched to its end. */
  get nextLookMs(): number {
    for (const { from, changes } of this.#searches.values())
      if (from !== beforeFirst || changes !== this.#changes) return pausedRestMs;
    return Infinity;
  }

  /**
   * Searches some of the paused groups.
   *
   * @param paused hashes of groups with a paused head
   * @returns the first unpaused task of each of these groups for which one is known
   */
  async findUnpaused(
    client: Client,
    paused: readonly number[],
    except: readonly string[],
    keys: readonly string[] = [],
  ): Promise<readonly HeadRow[]> {
    for (const hash of paused) {
      const search = this.#searches.get(hash);
      if (search !== undefined) search.seen = true;
      else this.#searches.set(hash, { from: beforeFirst, found: null, restUntil: 0, changes: -1, seen: true });
    }
    const next = this.#next(new Set(paused));
    if (next.length > 0) await this.#searchIn(client, next, except, keys);
    return paused.flatMap((hash) => this.#searches.get(hash)?.found ?? []);
  }

  /** Ends a scan round, and forgets groups that were not reported as paused during the round. */
  endRound(): void {
    for (const [hash, search] of this.#searches) {
      if (!search.seen) this.#searches.delete(hash);
      search.seen = false;
    }
  }

  /**
   * Returns the groups to search now, the least recently searched group first. A group in which a task was found is
   * searched each time, because the task may have been claimed by now.
   */
  #next(paused: ReadonlySet<number>): (readonly [number, Search])[] {
    const now = this.#now();
    return [...this.#searches]
      .filter(([hash, { found, restUntil }]) => {
        const rests = Math.max(this.#restUntil, restUntil) > now;
        return paused.has(hash) && (!rests || found !== null);
      })
      .slice(0, maxPausedSearch.groups);
  }

  async #searchIn(
    client: Client,
    next: readonly (readonly [number, Search])[],
    except: readonly string[],
    keys: readonly string[],
  ): Promise<void> {
    const limit = Math.ceil(maxPausedSearch.tasks / next.length);
    const groups = next.map(([hash, { from }]) => ({ hash, ...from }));
    const since = this.#now();
    const changes = this.#changes;
    const rows = await firstUnpaused(client, this.#table, groups, limit, except, keys);
    const now = this.#now();
    this.#restUntil = now + (now - since) * scanRestFactor;
    const heads = new Map(rows.map((row) => [row.hash, row]));
    for (const [hash, search] of next) {
      this.#searches.delete(hash);
      const row = heads.get(hash);
      this.#searches.set(hash, {
        ...search,
        ...advance(search, row),
        restUntil: row === undefined ? now + pausedRestMs : 0,
        changes: search.from === beforeFirst ? changes : search.changes,
      });
    }
  }
}

/** @param row undefined if the search has reached the end of the group */
function advance({ found }: Search, row: HeadRow | undefined): Pick<Search, "from" | "found"> {
  if (row === undefined) return { from: beforeFirst, found: null };
  const at = { max: row.max, id: BigInt(row.id) };
  if (row.paused) return { from: at, found };
  // The search found the same task again, so the task has not started yet. An unpaused task may have been inserted
  // before it in the meantime, so the next search starts at the beginning of the group.
  if (found !== null && String(found.id) === String(row.id)) return { from: beforeFirst, found: row };
  return { from: { ...at, id: at.id - 1n }, found: row };
}
