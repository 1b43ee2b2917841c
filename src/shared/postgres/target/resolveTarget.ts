import { userInfo } from "node:os";
import { PgTaskError } from "../../errors.js";
import { omitUndefined } from "../../omitUndefined.js";
import { ConnectionStringError } from "../errors.js";
import { chooseSslMode, findUserFile, withRootFile } from "../transport/sslMode.js";
import { readEnvironment, type PartialTarget } from "./parseTarget.js";
import { defaultSocketDirectory, findPassword, passwordFilePath, readPasswordFile } from "./passwordFile.js";
import type { ConnectionTarget, TargetServer } from "./target.js";

/** The environment that supplies what a partial target leaves out. */
export interface ConnectionContext {
  readonly env: NodeJS.ProcessEnv;
  /** Receives the reason why the password file is not used. */
  readonly warn: (message: string) => void;
  /** Returns the content of the password file. By default, the file is read whenever it is needed. */
  readonly passwords?: () => Promise<string | null>;
  /** Returns the path of a TLS file of the user, if it exists. By default, this is looked up whenever it is needed. */
  readonly userFile?: (name: string) => string | undefined;
}

/** Returns a context that looks up each file of the user at most once, for many targets. */
export function sharedContext({ env, warn }: ConnectionContext): ConnectionContext {
  let content: Promise<string | null> | null = null;
  const files = new Map<string, string | undefined>();
  return {
    env,
    warn,
    passwords: () => (content ??= readPasswordFile(passwordFilePath(env), warn)),
    userFile: (name) => {
      if (!files.has(name)) files.set(name, findUserFile(env, name));
      return files.get(name);
    },
  };
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
  const user = known.user ?? systemUser();
  const account = { database: known.database ?? user, user };
  const tls = resolveTlsFiles(known, context);
  if (tls.sslmode === "verify-full" && given.hosts === undefined) refuseHostAndAddress(env);
  const fromFile = known.password === undefined;
  const servers = fromFile ? addPasswordHosts(resolveServers(known), env) : resolveServers(known);
  const [first, ...others] = await addPasswords(servers, { ...account, known, context });
  if (first === undefined) throw new PgTaskError("INTERNAL", "a target without a server");
  // Of several servers, usually only one can be written to.
  const defaultAttributes = others.length > 0 ? "read-write" : undefined;
  return {
    ...first,
    ...account,
    ...tls,
    connectTimeoutMs: known.connectTimeoutMs ?? defaultConnectTimeoutMs,
    ...(others.length > 0 ? { otherServers: others } : {}),
    ...omitUndefined({ sessionAttributes: known.sessionAttributes ?? defaultAttributes }),
    ...(known.loadBalance === true ? { loadBalance: true } : {}),
    ...(fromFile ? { passwordFile: passwordFilePath(env) } : {}),
  };
}

/**
 * Combines the hosts and ports to servers.
 *
 * @throws ConnectionStringError
 */
function resolveServers({ hosts = [], ports = [] }: PartialTarget): TargetServer[] {
  const count = hosts.length || 1;
  if (ports.length > 1 && ports.length !== count) {
    throw new ConnectionStringError(`could not match ${ports.length} port numbers to ${count} hosts`);
  }
  return Array.from({ length: count }, (_, index) => ({
    host: hosts[index] || (process.platform === "win32" ? "localhost" : defaultSocketDirectory),
    port: (ports.length > 1 ? ports[index] : ports[0]) || 5432,
  }));
}

interface PasswordSources {
  readonly database: string;
  readonly user: string;
  readonly known: PartialTarget;
  readonly context: ConnectionContext;
}

/** Adds the given password to all servers. If none is given, looks in the password file for each server's password. */
async function addPasswords(servers: readonly TargetServer[], sources: PasswordSources): Promise<TargetServer[]> {
  const { database, user, known, context } = sources;
  const { password } = known;
  if (password !== undefined) return servers.map((server) => ({ ...server, password }));
  const { env, warn, passwords = () => readPasswordFile(passwordFilePath(env), warn) } = context;
  const text = await passwords();
  if (text === null) return [...servers];
  return servers.map((server) => {
    const { host, port, passwordHost = host } = server;
    const found = findPassword(text, { host: passwordHost, port, database, user });
    return found === null ? server : { ...server, password: found };
  });
}

/** As in libpq, passwords are looked up by host name, even if PGHOSTADDR gives the addresses to connect to. */
function addPasswordHosts(servers: readonly TargetServer[], env: NodeJS.ProcessEnv): TargetServer[] {
  const names = env["PGHOST"]?.split(",") ?? [];
  const areNamed = env["PGHOSTADDR"] === servers.map(({ host }) => host).join(",") && names.length === servers.length;
  return servers.map((server, index) => (areNamed ? { ...server, passwordHost: names[index] ?? server.host } : server));
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

/** Applies libpq's rules for `sslmode` and the certificate files. */
function resolveTlsFiles(
  given: PartialTarget,
  { env, userFile = (name) => findUserFile(env, name) }: ConnectionContext,
): Pick<ConnectionTarget, "sslmode" | "sslrootcert" | "sslcert" | "sslkey"> {
  const mode = chooseSslMode(given.sslmode, given.sslrootcert);
  const system = given.sslrootcert === "system";
  const sslrootcert = system ? undefined : (given.sslrootcert ?? userFile("root.crt"));
  const sslcert = given.sslcert ?? userFile("postgresql.crt");
  const key = sslcert === undefined ? undefined : userFile("postgresql.key");
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
