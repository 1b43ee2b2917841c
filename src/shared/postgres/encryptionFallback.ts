import { PgTaskError } from "../errors.js";
import type { ConnectionTarget } from "./target/target.js";
import { encryptionAttempts, type Encryption } from "./transport/sslMode.js";

/**
 * Connects with the encryption that the target's `sslmode` asks for. If the server refuses the first attempt, a second
 * attempt can follow. Unlike libpq, pg-task never falls back to plaintext if the server offers TLS.
 */
export async function connectWithFallback<Connection>(
  { host, sslmode }: ConnectionTarget,
  connect: (encryption: Encryption) => Promise<Connection>,
): Promise<Connection> {
  // Unix-domain sockets are not encrypted.
  const [first = "none", second] = encryptionAttempts[host.startsWith("/") ? "disable" : sslmode];
  try {
    return await connect(first);
  } catch (error) {
    const isRejected = error instanceof PgTaskError && error.code === "CONNECTION_REJECTED";
    if (!isRejected || second === undefined || second === "none") throw error;
    return await connect(second);
  }
}
