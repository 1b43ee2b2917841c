import type { Run } from "../../shared/ipc/run.js";
import { literal } from "../../shared/postgres/quoting.js";

type ProvenRun = Pick<Run, "id" | "claimedAt" | "ledger" | "input">;

/** How runs write their proofs, in the database in which they take effect. */
export interface Proof {
  /**
   * Returns SQL that writes the proof if the transaction has written anything. Its one value is null if it has not,
   * otherwise whether the task's row is still in state WORK, as far as is known.
   */
  readonly sql: (run: ProvenRun) => string;
  /** SQL that lets `sql` arrive intact in any client_encoding. Null if its text is ASCII. */
  readonly encodingSql: string | null;
}

/** Undoes what the task may have set: a role without privileges on the ledger, or timeouts. */
const undoSettings =
  "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; " +
  "SET LOCAL SESSION AUTHORIZATION DEFAULT; SET LOCAL role TO DEFAULT; ";

/** @param names what the SQL contains that may not be ASCII */
export function createProof(names: string, sql: Proof["sql"]): Proof {
  const isAscii = /^[\x20-\x7e]*$/.test(names);
  return {
    sql: (run) => undoSettings + sql(run),
    encodingSql: isAscii ? null : "SET LOCAL client_encoding = 'UTF8'",
  };
}

/**
 * The proof in the task's own database: a call of `finish` (src/manager/schema/migration.sql).
 *
 * @param finishFunction quoted and schema-qualified
 */
export const localProof = (finishFunction: string, owner: string): Proof =>
  createProof(
    finishFunction,
    ({ id, claimedAt, ledger }) =>
      `SELECT ${finishFunction}(${id}::pg_catalog.int8, ${claimedAt}::pg_catalog.int8, ${literal(owner)}::pg_catalog.text, ${ledger}::pg_catalog.int4)`,
  );
