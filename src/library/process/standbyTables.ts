import { locateTable } from "../../manager/schema/locateTable.js";
import { taskTable } from "../../manager/schema/taskTable.js";
import { Backoff, sleep } from "../../shared/backoff.js";
import type { Entry } from "../../shared/config/types.js";
import { applicationNames } from "../../shared/postgres/applicationNames.js";
import { connectClient, disconnect } from "../../shared/postgres/client.js";
import { readTableExistence } from "../../tasks/queries/tableExistence.js";

/**
 * Waits until the leader has created the tables of these entries, or until `signal` is aborted. An entry whose tables
 * nobody creates (`"create": false`) is not waited for. Never rejects: the role or the database may be missing as well
 * until the leader has created them, so the next attempt follows any failure.
 */
export async function untilTablesExist(entries: readonly Entry[], signal: AbortSignal): Promise<void> {
  // One entry after another, so that a standby with many entries does not open many connections at once.
  for (const entry of entries) if (entry.create) await untilTableExists(entry, signal);
}

async function untilTableExists(entry: Entry, signal: AbortSignal): Promise<void> {
  const backoff = new Backoff({ firstMs: 50, maxMs: 500 });
  while (!signal.aborted) {
    if (await hasTable(entry, signal).catch(() => false)) return;
    await sleep(backoff.next(), signal);
  }
}

async function hasTable(entry: Entry, signal: AbortSignal): Promise<boolean> {
  const client = await connectClient(entry.target, { applicationName: applicationNames.check, signal });
  // On a half-open connection, the queries would never end.
  const abort = (): void => void client.connection.stream.destroy();
  signal.addEventListener("abort", abort);
  if (signal.aborted) abort();
  try {
    const { schema, table } = await locateTable(client, entry, () => {});
    return (await readTableExistence(client, taskTable(schema, table))) === "yes";
  } finally {
    signal.removeEventListener("abort", abort);
    await disconnect(client);
  }
}
