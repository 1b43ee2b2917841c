import type { Configuration, Entry } from "../../shared/config/types.js";
import { applicationNames } from "../../shared/postgres/applicationNames.js";
import { connectClient, disconnect } from "../../shared/postgres/client.js";
import { PgTaskError } from "../../shared/errors.js";
import { isPasswordRefused } from "../../shared/postgres/connectionErrors.js";
import { identifier } from "../../shared/postgres/quoting.js";
import {
  missingRoleOrDatabaseError,
  readRoleAndDatabase,
  type RoleAndDatabase,
} from "../../supervisor/roleAndDatabase.js";

/**
 * Explains why the server refused an entry's connection. A server that asks for passwords refuses an unknown role as if
 * the password were wrong, so this asks over the control connection whether role and database exist.
 *
 * @returns SCHEMA_MISSING if the role or the database is missing; CONNECTION_REJECTED with the reason if pg-task start
 * would set the password that was refused; otherwise the given error
 */
export async function explainRefusal(error: unknown, { control }: Configuration, entry: Entry): Promise<unknown> {
  if (!(error instanceof PgTaskError) || error.code !== "CONNECTION_REJECTED" || entry.elsewhere) return error;
  const found = await tryToReadRoleAndDatabase(control, entry);
  if (found === null) return error;
  if (found.role && found.database) return setsPassword(entry, found, error) ? passwordLater(error, entry) : error;
  return missingRoleOrDatabaseError(entry, found);
}

/** Whether pg-task start would set the password that the server refuses. */
const setsPassword = ({ ownPassword, create }: Entry, { isOwnRole }: RoleAndDatabase, error: PgTaskError): boolean =>
  isOwnRole && ownPassword && create && isPasswordRefused(error);

function passwordLater(error: PgTaskError, { target }: Entry): PgTaskError {
  const remedy = "pg-task created the role, and sets the entry's password when it starts or reloads the file";
  return new PgTaskError(
    "CONNECTION_REJECTED",
    `the role ${identifier(target.user)} has another password than its entry: ${remedy}`,
    { cause: error, remedy, ...(error.sqlState === undefined ? {} : { sqlState: error.sqlState }) },
  );
}

/** Returns null if the control connection fails too. A user of one table may not be allowed to use it. */
async function tryToReadRoleAndDatabase(
  control: Configuration["control"],
  { target }: Entry,
): Promise<RoleAndDatabase | null> {
  try {
    const client = await connectClient(control, { applicationName: applicationNames.check });
    try {
      return await readRoleAndDatabase(client, target);
    } finally {
      await disconnect(client);
    }
  } catch (error) {
    if (error instanceof PgTaskError) return null;
    throw error;
  }
}
