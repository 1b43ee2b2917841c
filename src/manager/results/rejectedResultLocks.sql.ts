import type { Client } from "../../shared/postgres/client.js";
import { lockClasses, maxRejectedResultLocks } from "../../shared/postgres/advisoryLocks.js";

/**
 * Shows other programs which results the server rejects: `why` and `doctor` could not tell their tasks from orphans, or
 * from tasks that are running. Each of these tasks, up to a maximum, has an advisory lock, which is lost with the
 * manager's connection.
 */
export class RejectedResultLocks {
  #client: Client | null = null;
  #held: ReadonlySet<string> = new Set();

  /** Shows the results of these tasks, and no others. Sends a statement only if they have changed. */
  async show(client: Client, tasks: Iterable<string>): Promise<void> {
    const held = client === this.#client ? this.#held : new Set<string>();
    const wanted = new Set([...tasks].slice(0, maxRejectedResultLocks));
    this.#client = client;
    this.#held = wanted;
    const added = [...wanted].filter((id) => !held.has(id));
    const removed = [...held].filter((id) => !wanted.has(id));
    if (added.length === 0 && removed.length === 0) return;
    await client.query({
      name: "rejected results",
      text: `
SELECT (SELECT count(pg_try_advisory_lock_shared($1, a.key)) FROM unnest($2::integer[]) AS a(key)),
  (SELECT count(pg_advisory_unlock_shared($1, r.key)) FROM unnest($3::integer[]) AS r(key))`,
      values: [lockClasses.rejectedResult, added.map(toLockKey), removed.map(toLockKey)],
    });
  }
}

/** Returns the lower half of a task's id as a signed number. */
const toLockKey = (id: string): number => Number(BigInt.asIntN(32, BigInt(id)));
