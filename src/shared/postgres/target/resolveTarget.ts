import { userInfo } from "node:os";
import type { GivenOptions } from "../connectionString/parse.js";
import { ConnectionStringError } from "../errors.js";
import { findUserFile } from "../transport/sslMode.js";
import { ConnectionOptions } from "./connectionOptions.js";
import { readLocalTarget } from "./parseTarget.js";
import { findPassword, passwordFilePath, readPasswordFile } from "./passwordFile.js";
import { serversOf, withServers, type ConnectionTarget, type TargetServer } from "./target.js";

export interface ConnectionContext {
  readonly env: NodeJS.ProcessEnv;
  readonly warn: (message: string) => void;
  /** By default, the file is read whenever it is needed. */
  readonly passwords?: (path: string) => Promise<string | null>;
  /** By default, this is looked up whenever it is needed. */
  readonly userFile?: (name: string) => string | undefined;
}

/** Looks up each file of the user at most once, for many targets. */
export function sharedContext({ env, warn }: ConnectionContext): ConnectionContext {
  const passwords = new Map<string, Promise<string | null>>();
  const files = new Map<string, string | undefined>();
  return {
    env,
    warn,
    passwords: (path) => {
      const content = passwords.get(path) ?? readPasswordFile(path, warn);
      passwords.set(path, content);
      return content;
    },
    userFile: (name) => {
      if (!files.has(name)) files.set(name, findUserFile(env, name));
      return files.get(name);
    },
  };
}

/** Default time limit for connecting, in ms. libpq has none, but a server that never answers would block everything. */
export const defaultConnectTimeoutMs = 10_000;

/** Completes a target from the PG* variables, libpq's defaults and the password file. Throws ConnectionStringError. */
export async function resolveTarget(given: GivenOptions, context: ConnectionContext): Promise<ConnectionTarget> {
  const { env, warn, userFile = (name) => findUserFile(env, name) } = context;
  const options = new ConnectionOptions(given, {
    env,
    // An address in PGHOSTADDR does not belong to the host that the URL names.
    reads: (keyword) => keyword !== "hostaddr" || !given.has("host"),
  });
  const user = options.text("user") ?? systemUser();
  const read = readLocalTarget(options, userFile);
  // Of several servers, usually only one can be written to.
  const attributes = read.otherServers === undefined ? {} : ({ sessionAttributes: "read-write" } as const);
  const target: ConnectionTarget = {
    ...attributes,
    ...read,
    database: options.text("dbname") ?? user,
    user,
    connectTimeoutMs: read.connectTimeoutMs ?? defaultConnectTimeoutMs,
  };
  if (options.text("password") !== undefined) return target;
  const passwordFile = options.text("passfile") ?? passwordFilePath(env);
  const { passwords = (path) => readPasswordFile(path, warn) } = context;
  const file = await passwords(passwordFile);
  return { ...(file === null ? target : withServers(target, addPasswords(target, file))), passwordFile };
}

export function addPasswords(target: ConnectionTarget, file: string): readonly [TargetServer, ...TargetServer[]] {
  const { database, user } = target;
  const add = (server: TargetServer): TargetServer => {
    const password = findPassword(file, { host: server.host, port: server.port, database, user });
    return password === null ? server : { ...server, password };
  };
  const [first, ...others] = serversOf(target);
  return [add(first), ...others.map(add)];
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
