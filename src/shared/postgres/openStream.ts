import { PgTaskError } from "../errors.js";
import { LoginRefused } from "./auth/login.js";
import { missingPasswordError, rejectedError, unreachableError } from "./connectionErrors.js";
import { MissingPassword } from "./errors.js";
import { encryptionsAt, openAddress, type OpenStream } from "./openAddress.js";
import { socketAddress, type ConnectionTarget } from "./target/target.js";
import type { Encryption } from "./transport/sslMode.js";

export interface LoginOptions {
  readonly applicationName: string;
  /** The `options` of the startup packet, which take precedence over those of the target. */
  readonly options: string;
  /** Whether this is the control connection, which has its password from elsewhere than an entry. */
  readonly isControl?: boolean;
  /** Aborts the attempt, which then fails with CONNECTION_FAILED. */
  readonly signal?: AbortSignal;
}

/**
 * Connects to the only server of a target with the encryption that its `sslmode` asks for, and logs in. If the server
 * refuses the first attempt, a second one with TLS can follow. Unlike libpq, pg-task never falls back to plaintext if
 * the server offers TLS.
 *
 * @throws PgTaskError CONNECTION_FAILED if the server cannot be reached; CONNECTION_REJECTED if the server refuses the
 * connection; CONNECTION_POOLED if a pooler refuses it
 */
export async function openStream(server: ConnectionTarget, options: LoginOptions): Promise<OpenStream> {
  const [first = "none", second] = encryptionsAt(server.sslmode, socketAddress(server));
  try {
    return await tryOnce(server, options, first);
  } catch (error) {
    const isRejected = error instanceof PgTaskError && error.code === "CONNECTION_REJECTED";
    if (!isRejected || second === undefined || second === "none") throw error;
    return await tryOnce(server, options, second);
  }
}

async function tryOnce(
  server: ConnectionTarget,
  { applicationName, options: own, isControl, signal }: LoginOptions,
  encryption: Encryption,
): Promise<OpenStream> {
  const options = [server.options, own].filter(Boolean).join(" ");
  const startup: Record<string, string> = options === "" ? {} : { options };
  const attempt = {
    address: socketAddress(server),
    encryption,
    signal,
    applicationName,
    startup,
    passwordRequired: false,
  };
  try {
    return await openAddress(server, attempt, (opened) => opened);
  } catch (error) {
    if (error instanceof LoginRefused) throw rejectedError(server, error.error, error);
    if (error instanceof MissingPassword) throw missingPasswordError(server, error, isControl);
    throw unreachableError(server, error);
  }
}
