import { userInfo } from "node:os";
import { type GivenOptions, parseConnectionUri } from "../connectionString/parse.js";
import { ConnectionStringError } from "../errors.js";
import { findUserFile } from "../transport/sslMode.js";
import { ConnectionOptions, readTarget, type FindUserFile, type ReadTarget } from "./readTarget.js";
import { findPassword, passwordFilePath, readPasswordFile } from "./passwordFile.js";
import { serversOf, withServers, type ConnectionTarget, type TargetServer, writableAttributes } from "./target.js";
import { isAbsolute } from "node:path";
import { unstorablePart } from "../../storableText.js";
import { keywords } from "../connectionString/keywords.js";

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
  const passwordFile = options.text("passfile") ?? passwordFilePath(env);
  if (options.text("password") !== undefined) return { ...target, othersPasswordFile: passwordFile };
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

/** The PG* variables that can name a server or how to connect to it. The others change only how sessions behave. */
export const connectionVariables = Object.entries(keywords).flatMap(([name, { variable }]) =>
  variable === undefined || ["client_encoding", "options"].includes(name) ? [] : variable,
);

/** If a URL does not match, its password is probably not percent-encoded, so no part of it is shown. */
const urlPattern =
  /^postgres(?:ql)?:\/\/(?:[^:@/]*(?::[^@/]*)?@)?(?:\[[^\]]*\]|[^:/?,]*)(?::\d*)?(?:,(?:\[[^\]]*\]|[^:/?,]*)(?::\d*)?)*(?:\/[^?@/]*)?(?:\?.*)?$/s;

/** Checks a URL in which every component is optional. Throws ConnectionStringError. */
export function parseTargetUrl(url: string): GivenOptions {
  // The server would end the connection because of a NUL, and the driver would replace a lone surrogate.
  const problem = unstorablePart(url);
  if (problem !== null) throw new ConnectionStringError(`expected a URL without ${problem}`);
  if (!urlPattern.test(url)) {
    throw new ConnectionStringError(
      "expected a URL like postgresql://user:password@host:port/database (special characters in a name or password are percent-encoded)",
    );
  }
  const given = parseConnectionUri(url);
  readLocalTarget(new ConnectionOptions(given, { env: {} }), () => undefined);
  return given;
}

function readLocalTarget(options: ConnectionOptions, userFile: FindUserFile): ReadTarget {
  options.list("host").forEach(checkHost);
  return readTarget(options, userFile, writableAttributes);
}

function checkHost(text: string): void {
  if (text.includes("@")) {
    throw new ConnectionStringError('expected a host name, got one with "@" (in user and password it is written %40)');
  }
  if (/[\\/\s]/.test(text) && !isAbsolute(text)) {
    throw new ConnectionStringError(
      `expected a host name, an address or the absolute path of a socket's directory, got ${JSON.stringify(text)}`,
    );
  }
}
