import type { Run } from "../../shared/ipc/run.js";
import type { BackendIdentity } from "../../shared/postgres/backendIdentity.js";
import type { ServerError } from "../../shared/postgres/protocol/decode.js";
import type { ProtocolConnection } from "../../shared/postgres/protocol/connection.js";
import { identifier, literal } from "../../shared/postgres/quoting.js";
import { lockNotAvailable } from "../../shared/postgres/sqlStates.js";

/** How long to wait for the lock on the task's row, in ms. */
const rowLockWaitMs = 10;

/**
 * Records a remote run's location in the ledger before the run starts. If this process dies, its successor then knows
 * which server to ask about the run.
 *
 * @param ledger name of the ledger, quoted and schema-qualified
 * @param location the run's location as JSON; empty if no server needs to be asked about the run any more
 * @returns the server's error, or null on success
 */
export async function recordLocation(
  wire: ProtocolConnection,
  ledger: string,
  { id, claimedAt }: Pick<Run, "id" | "claimedAt">,
  location: string,
): Promise<ServerError | null> {
  const { error, status } = await wire.query(
    "BEGIN READ WRITE; SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0; " +
      `INSERT INTO ${ledger} (id, take, running, place) VALUES (${id}, ${claimedAt}, false, ${literal(location)}); COMMIT`,
  );
  if (status !== "I") await wire.query("ROLLBACK");
  return error;
}

/**
 * Writes the pid of the remote backend to the task's row before the run starts. Waits only briefly for the row's lock.
 * An error in a user's trigger does not keep the task from running.
 *
 * @returns null on success, `locked` if the row is locked, or the server's error if the update failed for another
 * reason
 */
export async function writePid(
  { wire, backend }: { readonly wire: ProtocolConnection; readonly backend: BackendIdentity },
  { schema, table, id }: { readonly schema: string; readonly table: string; readonly id: string },
  pid: number,
): Promise<"locked" | ServerError | null> {
  const { error, status } = await wire.query(
    `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout = ${rowLockWaitMs}; SET LOCAL statement_timeout = 0; ` +
      "SET LOCAL synchronous_commit = off; " +
      `UPDATE ${identifier(schema)}.${identifier(table)} SET pid = ${pid} ` +
      `WHERE id OPERATOR(pg_catalog.=) ${id} AND owner OPERATOR(pg_catalog.=) ${literal(backend.owner)}; COMMIT`,
  );
  if (status !== "I") await wire.query("ROLLBACK");
  return error?.code === lockNotAvailable ? "locked" : error;
}
