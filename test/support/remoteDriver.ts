import type { ExecutorParameters } from "../../src/shared/ipc/executorMessages.js";
import type { Client } from "../../src/shared/postgres/client.js";
import { quoteValue } from "../../src/shared/postgres/connectionString/parseKeyValues.js";
import { recreateObjects } from "../../src/manager/schema/migrations.js";
import { taskTable } from "../../src/manager/schema/taskTable.js";
import { createDatabase } from "./database.js";
import { ExecutorDriver } from "./executorDriver.js";
import { password, startRemoteServer, type RemoteTestServer } from "./remoteServer.js";

export const passwordOption = `password=${quoteValue(password)}`;

/** What tests of remote tasks need. It is of one test file. */
export interface RemoteDriver {
  /** A connection to the local server, on which the executor's sessions are. */
  readonly admin: Client;
  /** The second server, on which remote tasks run. */
  readonly server: RemoteTestServer;
  /** Connection string for the second server, without TLS and for its superuser. Options can be appended. */
  readonly remoteString: string;
  /** Creates an executor with session 1 open. */
  readonly openDriver: (parameters?: Partial<ExecutorParameters>) => Promise<ExecutorDriver>;
}

/** Starts the second server. It is stopped after the file's tests. */
export async function startRemoteDriver(): Promise<RemoteDriver> {
  const localDatabase = await createDatabase();
  const admin = await localDatabase.connect();
  const server = await startRemoteServer();
  // Creates the objects other than the table that sessions need, for tests that open sessions on the second server.
  await recreateObjects(server.admin, taskTable("public", "task"), ["task_ledger_1", "task_ledger_2", "task_reset"]);
  for (const client of [admin, server.admin]) await client.query("GRANT INSERT ON task_ledger_1 TO PUBLIC");
  return {
    admin,
    server,
    remoteString: `host=127.0.0.1 port=${server.port} dbname=postgres user=postgres sslmode=disable`,
    openDriver: async (parameters = {}) => {
      const driver = new ExecutorDriver(localDatabase.target, admin, parameters);
      await driver.open(1);
      return driver;
    },
  };
}

/** Returns the text in the column `error` of a task that failed with these lines. */
export function errorText(input: string, ...lines: readonly string[]): string {
  return [`ERROR:  ${lines.join("\n")}`, `STATEMENT:  ${input}`].join("\n");
}
