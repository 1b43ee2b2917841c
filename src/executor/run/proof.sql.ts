import type { Run } from "../../shared/ipc/run.js";
import { literal } from "../../shared/postgres/quoting.js";

/**
 * Returns SQL that calls `finish` (src/manager/schema/migration.sql), which writes the proof into the ledger if the
 * transaction has written anything. Yields null if it has not, otherwise whether the task's row is still in state WORK.
 * It first undoes what the task may have set: a role without privileges on the ledger, or timeouts.
 */
export function finishSql(run: Pick<Run, "id" | "claimedAt" | "ledger">, context: FinishContext): string {
  const { finishFunction, owner } = context;
  const call = `${finishFunction}(${run.id}::pg_catalog.int8, ${run.claimedAt}::pg_catalog.int8, ${literal(owner)}::pg_catalog.text, ${run.ledger}::pg_catalog.int4)`;
  return (
    "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; " +
    "SET LOCAL SESSION AUTHORIZATION DEFAULT; SET LOCAL role TO DEFAULT; " +
    `SELECT ${call}`
  );
}

export interface FinishContext {
  /** Quoted and schema-qualified. */
  readonly finishFunction: string;
  readonly owner: string;
}

/** Returns SQL that lets `finishSql` arrive intact in any client_encoding. Null if its text is ASCII. */
export function finishEncodingSql({ finishFunction }: FinishContext): string | null {
  return /^[\x20-\x7e]*$/.test(finishFunction) ? null : "SET LOCAL client_encoding = 'UTF8'";
}
