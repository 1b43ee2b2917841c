import { loadConfiguration } from "../../src/shared/config/loadConfiguration.js";
import { connectClient, type Client } from "../../src/shared/postgres/client.js";
import type { ConnectionTarget } from "../../src/shared/postgres/target/target.js";

/**
 * Options of a connection with the `search_path` of a user, which pg-task's own connections do not have. Tests send
 * several statements at once, which pg without `pipeline` warns of.
 */
export const testConnection = {
  applicationName: "test",
  settings: { search_path: '"$user", public' },
  pipeline: true,
};

/** Opens a connection to a URL or a target. The caller must end it. */
export async function connectTo(place: string | ConnectionTarget): Promise<Client> {
  if (typeof place !== "string") return await connectClient(place, testConnection);
  const { control } = await loadConfiguration({ cwd: "/", env: {}, control: place });
  return await connectClient(control, testConnection);
}

/** Calls `work` with a temporary connection. */
export async function withConnectionTo<T>(
  place: string | ConnectionTarget,
  work: (client: Client) => Promise<T>,
): Promise<T> {
  const client = await connectTo(place);
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}
