import type { Client } from "../../shared/postgres/client.js";
import { lockClasses, sqlStateToLockKey } from "../../shared/postgres/advisoryLocks.js";

/**
 * Shows other programs that tasks wait because the server refuses new sessions: `why`, `doctor` and `status` could not
 * tell such tasks from tasks that are about to start. The advisory lock is lost with the manager's connection.
 */
export class RefusalLock {
  #client: Client | null = null;
  #held: number | null = null;

  /**
   * Shows the refusal, or that there is none. Sends a statement only if this has changed.
   *
   * @param refusal null if the server refuses no sessions
   */
  async show(client: Client, refusal: { readonly sqlState?: string | undefined } | null): Promise<void> {
    const held = client === this.#client ? this.#held : null;
    const wanted = refusal === null ? null : sqlStateToLockKey(refusal.sqlState);
    this.#client = client;
    this.#held = wanted;
    if (wanted === held) return;
    await client.query({
      name: "refused sessions",
      text: `
SELECT CASE WHEN $2::integer IS NOT NULL THEN pg_try_advisory_lock_shared($1, $2) END,
  CASE WHEN $3::integer IS NOT NULL THEN pg_advisory_unlock_shared($1, $3) END`,
      values: [lockClasses.sessionsRefused, wanted, held],
    });
  }
}
