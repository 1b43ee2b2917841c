import { loadConfiguration } from "../../src/shared/config/loadConfiguration.js";
import { connectClient, type Client } from "../../src/shared/postgres/client.js";

/** Opens a connection by its url; the caller ends it. */
export async function connectTo(url: string): Promise<Client> {
  const { control } = await loadConfiguration({ cwd: "/", env: {}, control: url });
  return await connectClient(control, { applicationName: "test" });
}
