import type { Configuration, Entry } from "../../shared/config/types.js";
import { applicationNames } from "../../shared/postgres/applicationNames.js";
import { connectClient, disconnect } from "../../shared/postgres/client.js";
import { PgTaskError } from "../../shared/errors.js";
import {
  missingRoleOrDatabaseError,
  readRoleAndDatabase,
  type RoleAndDatabase,
} from "../../supervisor/roleAndDatabase.js";

/**
 * Explains why the server refused an entry's connection. A server that asks for passwords refuses an unknown role as if
 * the password were wrong, so this asks over the control connection whether role and database exist.
 *
 * @returns SCHEMA_MISSING if the role or the database is missing; otherwise the given error
 */
export async function explainRefusal(error: unknown, { control }: Configuration, entry: Entry): Promise<unknown> {
  if (!(error instanceof PgTaskError) || error.code !== "CONNECTION_REJECTED" || entry.elsewhere) return error;
  const found = await tryToReadRoleAndDatabase(control, entry);
  if (found === null || (found.role && found.database)) return error;
  return missingRoleOrDatabaseError(entry, found);
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
