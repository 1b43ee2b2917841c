import { applicationNames } from "../../shared/postgres/applicationNames.js";
import { connectClient, type Client } from "../../shared/postgres/client.js";
import type { ConnectionTarget } from "../../shared/postgres/target/target.js";
import { errorMessage, PgTaskError } from "../../shared/errors.js";

/**
 * Connects, runs `action` and disconnects.
 *
 * @param isControl whether this is the control connection
 * @throws PgTaskError as `connectClient` does
 */
export async function withConnection<T>(
  target: ConnectionTarget,
  action: (client: Client) => Promise<T>,
  isControl = false,
): Promise<T> {
  const client = await connectClient(target, {
    applicationName: applicationNames.check,
    isControl,
  });
  try {
    return await action(client);
  } finally {
    await client.end();
  }
}

/**
 * Converts an error to a PgTaskError. If it is not a PgTaskError already, it means that the connection was lost during
 * a query.
 */
export function toPgTaskError(error: unknown): PgTaskError {
  if (error instanceof PgTaskError) return error;
  return new PgTaskError("CONNECTION_LOST", `connection lost: ${errorMessage(error)}`, {
    cause: error,
  });
}
