import { createServer } from "node:net";
import { PgTaskError } from "../shared/errors.js";
import { errorCode, errorMessage } from "./systemError.js";

/** The one address the server listens on. */
export const loopback = "127.0.0.1";

/** A port that is free at the moment. */
export async function freePort(): Promise<number> {
  return await listenBriefly(0);
}

/** @throws PgTaskError EMBEDDED_PORT_TAKEN when something listens there. */
export async function requireFree(port: number): Promise<void> {
  try {
    await listenBriefly(port);
  } catch (error) {
    if (errorCode(error) === "EADDRINUSE") throw portTaken(port);
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
