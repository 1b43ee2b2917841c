import { createServer } from "node:net";
import { PgTaskError, systemErrorCode } from "../shared/errors.js";
import { explainSystemError } from "../shared/systemErrors.js";

export const loopback = "127.0.0.1";

export const serverUrl = (port: number): string => `postgresql://postgres@${loopback}:${port}/postgres`;

/** The URL by which pg-task itself connects, without TLS, which PGSSLMODE may ask for. */
export const serverUrlWithoutTls = (port: number): string => `${serverUrl(port)}?sslmode=disable`;

export const freePort = async (): Promise<number> => await listenBriefly(0);

/** @throws PgTaskError EMBEDDED_PORT_TAKEN, EMBEDDED_PORT_DENIED */
export async function requireFree(port: number): Promise<void> {
  try {
    await listenBriefly(port);
  } catch (error) {
    if (systemErrorCode(error) === "EADDRINUSE") throw portTaken(port);
    if (systemErrorCode(error) === "EACCES") throw portDenied(port);
    throw new PgTaskError(
      "EMBEDDED_FAILED",
      `the embedded server cannot listen on port ${port}: ${explainSystemError(error)}`,
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

export function portDenied(port: number): PgTaskError {
  return new PgTaskError(
    "EMBEDDED_PORT_DENIED",
    `the embedded server may not listen on port ${port}, which the system reserves for root: give a port from 1024 on, or none`,
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
