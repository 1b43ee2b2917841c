import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";

/** Shows `why` and `doctor` what only the manager knows, by an advisory lock for each key. */
export class ShownLocks {
  readonly #lockClass: number;
  readonly #shown: string;
  readonly #log: Log;
  #client: Client | null = null;
  #held: ReadonlySet<number> = new Set();

  constructor(lockClass: number, shown: string, log: Log) {
    this.#lockClass = lockClass;
    this.#shown = shown;
    this.#log = log;
  }

  /** Shows these keys, and no others. Never rejects. */
  async show(client: Client, keys: Iterable<number>): Promise<void> {
    const held = client === this.#client ? this.#held : new Set<number>();
    const wanted = new Set(keys);
    this.#client = client;
    this.#held = wanted;
    const added = [...wanted].filter((key) => !held.has(key));
    const removed = [...held].filter((key) => !wanted.has(key));
    if (added.length === 0 && removed.length === 0) return;
    try {
      await client.query({
        name: this.#shown,
        text: `
SELECT (SELECT count(pg_try_advisory_lock_shared($1, a.key)) FROM unnest($2::integer[]) AS a(key)),
  (SELECT count(pg_advisory_unlock_shared($1, r.key)) FROM unnest($3::integer[]) AS r(key))`,
        values: [this.#lockClass, added, removed],
      });
    } catch (error) {
      // Without the locks, only the commands say less. If the connection is lost, other statements report it.
      this.#log.debug({ err: error }, `${this.#shown} not shown`);
    }
  }
}
