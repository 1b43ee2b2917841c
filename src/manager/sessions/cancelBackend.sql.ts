import type { Client } from "../../shared/postgres/client.js";

/** Cancels what the server process runs; nothing happens if it runs nothing or is gone. */
export async function cancelBackend(client: Client, pid: number): Promise<void> {
  await client.query({
    name: "cancel backend",
    text: "SELECT pg_cancel_backend($1)",
    values: [pid],
  });
}
