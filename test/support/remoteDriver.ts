import { createServer, type Server, type Socket } from "node:net";
import { once } from "node:events";
import { after } from "node:test";
import type { ExecutorParameters } from "../../src/shared/ipc/executorMessages.js";
import { quoteValue } from "../../src/shared/postgres/connectionString/parseKeyValues.js";
import { recreateObjects } from "../../src/manager/schema/migrations.js";
import { taskTable } from "../../src/manager/schema/taskTable.js";
import { createDatabase } from "./database.js";
import { ExecutorDriver } from "./executorDriver.js";
import { password, startRemoteServer } from "./remoteServer.js";

const localDatabase = await createDatabase();

/** A connection to the local server, on which the executor's sessions are. */
export const admin = await localDatabase.connect();

/** The second server, on which remote tasks run. */
export const server = await startRemoteServer();

// Creates the objects other than the table that sessions need, for tests that open sessions on the second server.
await recreateObjects(server.admin, taskTable("public", "task"), ["task_ledger_1", "task_ledger_2", "task_reset"]);
for (const client of [admin, server.admin]) await client.query("GRANT INSERT ON task_ledger_1 TO PUBLIC");

/** Connection string for the second server, without TLS and for its superuser. Options can be appended. */
export const remoteString = `host=127.0.0.1 port=${server.port} dbname=postgres user=postgres sslmode=disable`;

export const passwordOption = `password=${quoteValue(password)}`;

/** Creates an executor with session 1 open. */
export async function openDriver(parameters: Partial<ExecutorParameters> = {}): Promise<ExecutorDriver> {
  const driver = new ExecutorDriver(localDatabase.target, admin, parameters);
  await driver.open(1);
  return driver;
}

/** Returns the text in the column `error` of a task that failed with these lines. */
export function errorText(input: string, ...lines: readonly string[]): string {
  return [`ERROR:  ${lines.join("\n")}`, `STATEMENT:  ${input}`].join("\n");
}

/** Starts a TCP server that calls `meet` for each connection and does nothing else. */
export async function startRawServer(meet: (socket: Socket) => void): Promise<number> {
  const sockets = new Set<Socket>();
  const stranger: Server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    meet(socket);
  });
  stranger.listen(0, "127.0.0.1");
  await once(stranger, "listening");
  after(() => {
    for (const socket of sockets) socket.destroy();
    stranger.close();
  });
  const address = stranger.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}
