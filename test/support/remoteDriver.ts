import { createServer, type Server, type Socket } from "node:net";
import { once } from "node:events";
import { after } from "node:test";
import type { ExecutorParameters } from "../../src/shared/ipc/messages.js";
import { quoteValue } from "../../src/shared/postgres/connectionString/parseKeyValues.js";
import { migrationText, render } from "../../src/manager/schema/migrations.js";
import { taskTable } from "../../src/manager/schema/taskTable.js";
import { createDatabase } from "./database.js";
import { ExecutorDriver } from "./executorDriver.js";
import { password, startRemoteServer } from "./remoteServer.js";

const home = await createDatabase();

/** A connection to the sessions' own server. */
export const admin = await home.connect();

/** The second server. */
export const server = await startRemoteServer();

// What sessions need beside a table, wherever a test's sessions are.
await server.admin.query(
  `CREATE TABLE task_ledger_1 (id bigint, take bigint, running boolean, place text);
   CREATE TABLE task_ledger_2 (LIKE task_ledger_1);
   ${[5, 12].map((version) => render(migrationText(version), taskTable("public", "task"))).join("\n")}`,
);
for (const client of [admin, server.admin])
  await client.query("GRANT INSERT ON task_ledger_1 TO PUBLIC");

/** Where it is; unencrypted and as its superuser, unless more is said behind it. */
export const place = `host=127.0.0.1 port=${server.port} dbname=postgres user=postgres sslmode=disable`;

export const secret = `password=${quoteValue(password)}`;

/** An executor with one session open, which is 1. */
export async function openDriver(
  parameters: Partial<ExecutorParameters> = {},
): Promise<ExecutorDriver> {
  const driver = new ExecutorDriver(home.target, admin, parameters);
  await driver.open(1);
  return driver;
}

/** The error of a task that failed for this reason; each further line of it begins with a tab. */
export function failure(input: string, ...lines: readonly string[]): string {
  return [`ERROR:  ${lines.join("\n")}`, `STATEMENT:  ${input}`].join("\n");
}

/** A server that does with each connection what it is told, and nothing more. */
export async function startStranger(meet: (socket: Socket) => void): Promise<number> {
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
