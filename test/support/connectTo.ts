import { loadConfiguration } from "../../src/shared/config/loadConfiguration.js";
import { connectClient, type Client } from "../../src/shared/postgres/client.js";
import { testConnection } from "./testConnection.js";

/** Opens a connection to a URL. The caller must end it. */
export async function connectTo(url: string): Promise<Client> {
  const { control } = await loadConfiguration({ cwd: "/", env: {}, control: url });
  return await connectClient(control, testConnection);
}

export async function withConnectionTo<T>(url: string, work: (client: Client) => Promise<T>): Promise<T> {
  const client = await connectTo(url);
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}
