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

/** A connection to the local server, where the sessions are. */
export const admin = await localDatabase.connect();

/** The second server. */
export const server = await startRemoteServer();

// The objects that sessions need beside the table, for tests that open sessions there.
await recreateObjects(server.admin, taskTable("public", "task"), ["task_ledger_1", "task_ledger_2", "task_reset"]);
for (const client of [admin, server.admin]) await client.query("GRANT INSERT ON task_ledger_1 TO PUBLIC");

/** Connection string to it: unencrypted, as its superuser; options can be appended. */
export const remoteString = `host=127.0.0.1 port=${server.port} dbname=postgres user=postgres sslmode=disable`;

export const passwordOption = `password=${quoteValue(password)}`;

/** An executor with session 1 open. */
export async function openDriver(parameters: Partial<ExecutorParameters> = {}): Promise<ExecutorDriver> {
  const driver = new ExecutorDriver(localDatabase.target, admin, parameters);
  await driver.open(1);
  return driver;
}

/** The error text of a task that failed with these lines. */
export function errorText(input: string, ...lines: readonly string[]): string {
  return [`ERROR:  ${lines.join("\n")}`, `STATEMENT:  ${input}`].join("\n");
}

/** A TCP server that calls `meet` for each connection and does nothing else. */
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
