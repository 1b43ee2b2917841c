import { loadConfiguration } from "../../src/shared/config/loadConfiguration.js";
import { connectClient, type Client } from "../../src/shared/postgres/client.js";

/** Opens a connection by URL; the caller ends it. */
export async function connectTo(url: string): Promise<Client> {
  const { control } = await loadConfiguration({ cwd: "/", env: {}, control: url });
  return await connectClient(control, { applicationName: "test" });
}

/** Runs something on a temporary connection by URL. */
export async function withConnectionTo<T>(url: string, work: (client: Client) => Promise<T>): Promise<T> {
  const client = await connectTo(url);
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}
