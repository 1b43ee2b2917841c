import { after } from "node:test";
import { connectManager } from "../../src/manager/connection.js";
import { loadConfiguration } from "../../src/shared/config/loadConfiguration.js";
import type { Client } from "../../src/shared/postgres/client.js";
import { only } from "./tasks.js";

/** A connection as the manager of a database's own task table has it, ended when the file has run. */
export async function openManagerConnection(url: string): Promise<Client> {
  const { entries } = await loadConfiguration({ cwd: "/", env: {}, control: url });
  const client = await connectManager(only(entries));
  after(() => client.end());
  return client;
}
