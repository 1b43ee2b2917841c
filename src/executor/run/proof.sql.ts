import type { Run } from "../../shared/ipc/run.js";
import { literal } from "../../shared/postgres/quoting.js";

/**
 * Returns SQL that calls `finish` (defined in src/manager/schema/migration.sql), which writes the proof into the ledger if the
 * transaction has written anything. (Pipelined runs call it through `PipelinedMessages.finishCall` instead.) The SQL
 * yields one value: null if the transaction has written nothing, otherwise whether the task's row is still in state
 * WORK. It first undoes what the task may have set, because the task's role may lack privileges on the ledger, and the
 * task's timeouts may have expired.
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
  /** Name of the function that writes the proof, quoted and schema-qualified. */
  readonly finishFunction: string;
  /** The session that runs the task, as stored in the column `owner`. */
  readonly owner: string;
}

/** Returns SQL that lets `finishSql` arrive intact in any client_encoding. Null if its text is ASCII. */
export function finishEncodingSql({ finishFunction }: FinishContext): string | null {
  return /^[\x20-\x7e]*$/.test(finishFunction) ? null : "SET LOCAL client_encoding = 'UTF8'";
}
