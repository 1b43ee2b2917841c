import type { Configuration, Entry } from "../../shared/config/types.js";
import { applicationNames } from "../../shared/postgres/applicationNames.js";
import { connectClient, disconnect } from "../../shared/postgres/client.js";
import { PgTaskError } from "../../shared/errors.js";
import { missingAccountError, readAccount, type Account } from "../../supervisor/account.js";

/**
 * Explains why the server refused an entry's connection. A server that asks for passwords refuses an unknown role as if
 * the password were wrong, so this asks over the control connection whether role and database exist.
 *
 * @returns SCHEMA_MISSING if the role or the database is missing; otherwise the given error
 */
export async function explainRefusal(error: unknown, { control }: Configuration, entry: Entry): Promise<unknown> {
  if (!(error instanceof PgTaskError) || error.code !== "CONNECTION_REJECTED" || entry.elsewhere) return error;
  const account = await tryToReadAccount(control, entry);
  if (account === null || (account.role && account.database)) return error;
  return missingAccountError(entry, account);
}

/** Returns null if the control connection fails too. A user of one table may not be allowed to use it. */
async function tryToReadAccount(control: Configuration["control"], { target }: Entry): Promise<Account | null> {
  try {
    const client = await connectClient(control, { applicationName: applicationNames.check });
    try {
      return await readAccount(client, target);
    } finally {
      await disconnect(client);
    }
  } catch (error) {
    if (error instanceof PgTaskError) return null;
    throw error;
  }
}
