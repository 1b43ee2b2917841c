import { isAbsolute } from "node:path";
import { unstorablePart } from "../../storableText.js";
import { isIP } from "node:net";
import { keywords, type KeywordName } from "../connectionString/keywords.js";
import { parseConnectionUri } from "../connectionString/parse.js";
import { ConnectionStringError } from "../errors.js";
import { sslModes, type SslMode } from "../transport/sslMode.js";
import { sessionAttributes, writableAttributes, type ConnectionTarget, type WritableAttributes } from "./target.js";

/**
 * The part of a target that one source gives. Here `sslrootcert` can also be "system". An empty host or port stands for
 * libpq's default.
 */
export type PartialTarget = Partial<
  Omit<ConnectionTarget, "host" | "address" | "port" | "otherServers" | "loadBalance">
> & {
  readonly hosts?: readonly string[];
  readonly ports?: readonly (number | "")[];
  readonly loadBalance?: boolean;
};

type Reader = (text: string) => PartialTarget;

/** The keywords that are supported for connections in the configuration, and how the value of each is read. */
const readers: ReadonlyMap<KeywordName, Reader> = new Map<KeywordName, Reader>([
  ["host", (text) => ({ hosts: text.split(",").map(readHost) })],
  // `hostaddr` overrides `host`, so it comes later in this list.
  ["hostaddr", (text) => ({ hosts: text.split(",").map(readAddress) })],
  ["port", (text) => ({ ports: text.split(",").map(readPort) })],
  ["dbname", (text) => ({ database: text })],
  ["user", (text) => ({ user: text })],
  ["password", (text) => ({ password: text })],
  // `passfile` is read by `passwordFilePath`.
  ["passfile", () => ({})],
  ["sslmode", (text) => ({ sslmode: readSslMode(text) })],
  ["sslrootcert", (text) => ({ sslrootcert: text })],
  ["sslcert", (text) => ({ sslcert: text })],
  ["sslkey", (text) => ({ sslkey: text })],
  ["connect_timeout", (text) => ({ connectTimeoutMs: readTimeout(text) })],
  ["target_session_attrs", (text) => ({ sessionAttributes: readAttributes(text) })],
  ["load_balance_hosts", (text) => ({ loadBalance: readLoadBalance(text) })],
]);

const supported = [...readers.keys()];
const supportedInUrl = supported.filter((name) => name !== "hostaddr" && name !== "passfile");

/** The PG* environment variables that are read. An empty variable is treated as not set. */
export const connectionVariables = supported.flatMap((name) => keywords[name].variable ?? []);

/**
 * The form that each component of a URL must have. If a URL does not match, its password is probably not
 * percent-encoded, so no part of that URL is ever shown in a message.
 */
const urlPattern =
  /^postgres(?:ql)?:\/\/(?:[^:@/]*(?::[^@/]*)?@)?(?:\[[^\]]*\]|[^:/?,]*)(?::\d*)?(?:,(?:\[[^\]]*\]|[^:/?,]*)(?::\d*)?)*(?:\/[^?@/]*)?(?:\?.*)?$/s;

/**
 * Parses `postgresql://user:password@host:port/database?key=value&…` as libpq does. Every component is optional.
 *
 * @throws ConnectionStringError
 */
export function parseTargetUrl(url: string): PartialTarget {
  // The server would end the connection because of a NUL, and the driver would replace a lone surrogate.
  const problem = unstorablePart(url);
  if (problem !== null) throw new ConnectionStringError(`expected a URL without ${problem}`);
  if (!urlPattern.test(url)) {
    throw new ConnectionStringError(
      "expected a URL like postgresql://user:password@host:port/database (special characters in a name or password are percent-encoded)",
    );
  }
  let target: PartialTarget = {};
  for (const [keyword, text] of parseConnectionUri(url, supportedInUrl)) {
    target = { ...target, ...readers.get(keyword)?.(text) };
  }
  return target;
}

/**
 * Reads the PG* environment variables.
 *
 * @throws ConnectionStringError that names the variable
 */
export function readEnvironment(env: NodeJS.ProcessEnv): PartialTarget {
  if (env["PGSERVICE"]) {
    throw new ConnectionStringError(
      `PGSERVICE: expected it not to be set, got ${JSON.stringify(env["PGSERVICE"])}: service files are not supported; give a URL, or the service's settings as PGHOST, PGPORT, …`,
    );
  }
  let target: PartialTarget = {};
  for (const [keyword, read] of readers) {
    const { variable = "" } = keywords[keyword];
    const text = env[variable];
    if (!text) continue;
    try {
      target = { ...target, ...read(text) };
    } catch (error) {
      if (!(error instanceof ConnectionStringError)) throw error;
      throw new ConnectionStringError(`${variable}: ${error.message}`);
    }
  }
  return target;
}

function readHost(text: string): string {
  if (text.includes("@")) {
    throw new ConnectionStringError('expected a host name, got one with "@" (in user and password it is written %40)');
  }
  if (/[\\/\s]/.test(text) && !isAbsolute(text)) {
    throw new ConnectionStringError(
      `expected a host name, an address or the absolute path of a socket's directory, got ${JSON.stringify(text)}`,
    );
  }
  return text;
}

function readAddress(text: string): string {
  if (isIP(text) !== 0) return text;
  throw new ConnectionStringError(`expected an IP address, got ${JSON.stringify(text)}`);
}

function readPort(text: string): number | "" {
  if (text === "") return "";
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (port >= 1 && port <= 65_535) return port;
  throw new ConnectionStringError(`expected a port from 1 to 65535, got ${JSON.stringify(text)}`);
}

function readSslMode(text: string): SslMode {
  const mode = sslModes.find((known) => known === text);
  if (mode !== undefined) return mode;
  throw new ConnectionStringError(`expected sslmode one of ${sslModes.join(", ")}, got ${JSON.stringify(text)}`);
}

function readAttributes(text: string): WritableAttributes {
  const known = writableAttributes.find((attributes) => attributes === text);
  if (known !== undefined) return known;
  const reason = sessionAttributes.some((attributes) => attributes === text) ? " (pg-task writes to its server)" : "";
  throw new ConnectionStringError(
    `expected target_session_attrs one of ${writableAttributes.join(", ")}, got ${JSON.stringify(text)}${reason}`,
  );
}

function readLoadBalance(text: string): boolean {
  if (text === "disable" || text === "random") return text === "random";
  throw new ConnectionStringError(`expected load_balance_hosts disable or random, got ${JSON.stringify(text)}`);
}

/** Reads whole seconds and returns ms. As in libpq, 0 or a negative number means no limit. */
function readTimeout(text: string): number {
  if (!/^\s*-?\d{1,7}\s*$/.test(text)) {
    throw new ConnectionStringError(
      `expected connect_timeout in whole seconds (0 is no limit), got ${JSON.stringify(text)}`,
    );
  }
  return Math.max(0, Number(text)) * 1000;
}
