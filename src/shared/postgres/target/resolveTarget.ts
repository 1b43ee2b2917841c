import { userInfo } from "node:os";
import { omitUndefined } from "../../omitUndefined.js";
import { ConnectionStringError } from "../errors.js";
import { chooseSslMode, findUserFile, withRootFile } from "../transport/sslMode.js";
import { readEnvironment, type PartialTarget } from "./parseTarget.js";
import { defaultSocketDirectory, findPassword, passwordFilePath, readPasswordFile } from "./passwordFile.js";
import type { ConnectionTarget } from "./target.js";

/** The environment that supplies what a partial target leaves out. */
export interface ConnectionContext {
  readonly env: NodeJS.ProcessEnv;
  /** Receives the reason why the password file is not used. */
  readonly warn: (message: string) => void;
}

/**
 * Default time limit for connecting, in ms. libpq has no default limit. pg-task has one, because a server that accepts
 * connections but never answers would block everything that waits for the connection.
 */
export const defaultConnectTimeoutMs = 10_000;

/**
 * Completes a target from the PG* variables and then from libpq's defaults. The password is looked up in the password
 * file if no other source gives it.
 *
 * @throws ConnectionStringError
 */
export async function resolveTarget(given: PartialTarget, context: ConnectionContext): Promise<ConnectionTarget> {
  const { env } = context;
  const known: PartialTarget = { ...readEnvironment(env), ...given };
  const host = known.host ?? (process.platform === "win32" ? "localhost" : defaultSocketDirectory);
  const user = known.user ?? systemUser();
  const target = {
    host,
    port: known.port ?? 5432,
    database: known.database ?? user,
    user,
    ...resolveTlsFiles(known, env),
    connectTimeoutMs: known.connectTimeoutMs ?? defaultConnectTimeoutMs,
  };
  if (target.sslmode === "verify-full" && given.host === undefined) refuseHostAndAddress(env);
  const password = known.password ?? (await findPasswordInFile(target, context));
  return password === null ? target : { ...target, password };
}

/**
 * Refuses PGHOST together with PGHOSTADDR. The target would keep only the address, but the server's certificate
 * contains the host name.
 */
function refuseHostAndAddress(env: NodeJS.ProcessEnv): void {
  if (!env["PGHOST"] || !env["PGHOSTADDR"]) return;
  throw new ConnectionStringError(
    "PGHOSTADDR: must not be set together with PGHOST if sslmode is verify-full, which checks the name in PGHOST",
  );
}

async function findPasswordInFile(
  target: Omit<ConnectionTarget, "password">,
  { env, warn }: ConnectionContext,
): Promise<string | null> {
  const text = await readPasswordFile(passwordFilePath(env), warn);
  if (text === null) return null;
  // As in libpq, the password is looked up by host name, even if PGHOSTADDR gives the address to connect to.
  const host = env["PGHOST"] && target.host === env["PGHOSTADDR"] ? env["PGHOST"] : target.host;
  return findPassword(text, { ...target, host });
}

/** Applies libpq's rules for `sslmode` and the certificate files. */
function resolveTlsFiles(
  given: PartialTarget,
  env: NodeJS.ProcessEnv,
): Pick<ConnectionTarget, "sslmode" | "sslrootcert" | "sslcert" | "sslkey"> {
  const mode = chooseSslMode(given.sslmode, given.sslrootcert);
  const system = given.sslrootcert === "system";
  const sslrootcert = system ? undefined : (given.sslrootcert ?? findUserFile(env, "root.crt"));
  const sslcert = given.sslcert ?? findUserFile(env, "postgresql.crt");
  const key = sslcert === undefined ? undefined : findUserFile(env, "postgresql.key");
  return {
    sslmode: withRootFile(mode, sslrootcert !== undefined),
    ...omitUndefined({ sslrootcert, sslcert, sslkey: given.sslkey ?? key }),
  };
}

function systemUser(): string {
  try {
    return userInfo().username;
  } catch {
    throw new ConnectionStringError(
      "expected a user in the URL or in PGUSER: the process's own user has no name on this system",
    );
  }
}
