import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
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

/** Starts a TCP server that calls `meet` for each connection and does nothing else. Returns its port. */
export async function startRawServer(meet: (socket: Socket) => void): Promise<number> {
  const sockets = new Set<Socket>();
  const stranger = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    meet(socket);
  });
  after(() => {
    for (const socket of sockets) socket.destroy();
  });
  return await listen(stranger);
}
