import type { Run } from "../../shared/ipc/run.js";
import type { BackendIdentity } from "../../shared/postgres/backendIdentity.js";
import type { ServerError } from "../../shared/postgres/protocol/decode.js";
import type { ProtocolConnection } from "../../shared/postgres/protocol/connection.js";
import { identifier, literal } from "../../shared/postgres/quoting.js";
import { lockNotAvailable } from "../../shared/postgres/sqlStates.js";

const rowLockWaitMs = 10;

/**
 * Records a remote run's location, as JSON, in the ledger before it starts: a successor of this process then knows
 * which server to ask. An empty location means that no server needs to be asked any more. Returns the server's error.
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
 * Writes the pid of the remote backend to the task's row. Waits only briefly for the row's lock, and an error in a
 * user's trigger does not keep the task from running.
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
