import { createServer } from "node:net";
import { PgTaskError, systemErrorCode, errorMessage } from "../shared/errors.js";

/** The only address that the embedded server listens on. */
export const loopback = "127.0.0.1";

/** Returns a port that is free now. */
export async function freePort(): Promise<number> {
  return await listenBriefly(0);
}

/**
 * Checks that a port is free.
 *
 * @throws PgTaskError EMBEDDED_PORT_TAKEN if a program already listens on the port.
 */
export async function requireFree(port: number): Promise<void> {
  try {
    await listenBriefly(port);
  } catch (error) {
    if (systemErrorCode(error) === "EADDRINUSE") throw portTaken(port);
    throw new PgTaskError(
      "EMBEDDED_FAILED",
      `the embedded server cannot listen on port ${port}: ${errorMessage(error)}`,
      { cause: error },
    );
  }
}

export function portTaken(port: number): PgTaskError {
  return new PgTaskError(
    "EMBEDDED_PORT_TAKEN",
    `port ${port} on ${loopback} is in use by another program: give another port for the embedded server, or none`,
  );
}

async function listenBriefly(port: number): Promise<number> {
  const server = createServer();
  return await new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, loopback, () => {
      const address = server.address();
      const found = address !== null && typeof address === "object" ? address.port : port;
      server.close(() => resolve(found));
    });
  });
}
