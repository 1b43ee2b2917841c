import { once } from "node:events";
import type { Server } from "node:net";
import { after } from "node:test";

/**
 * Lets a server listen on a free port of the loopback address, and returns the port. The server is closed after the file's
 * tests.
 */
export async function listen(server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  after(() => server.close());
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}
