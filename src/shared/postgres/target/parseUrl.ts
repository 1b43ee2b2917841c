import { isAbsolute } from "node:path";
import type { SslMode } from "../../config/types.js";

/** What one source says about a connection; whatever it leaves open comes from the next one. */
export interface ConnectionParts {
  readonly host?: string;
  readonly port?: number;
  readonly database?: string;
  readonly user?: string;
  readonly password?: string;
  readonly sslmode?: SslMode;
  /** A path, or "system" for the certificates that come with Node. */
  readonly sslrootcert?: string;
  readonly sslcert?: string;
  readonly sslkey?: string;
  readonly connectTimeoutMs?: number;
}

/** A part that is not what it has to be; `reason` says what was expected and holds no secret. */
export class PartProblem extends Error {}

export const sslModes = [
  "disable",
  "allow",
  "prefer",
  "require",
  "verify-ca",
  "verify-full",
] as const satisfies readonly SslMode[];

type Read = (text: string) => ConnectionParts;

/** How the text of each key that a url may carry behind its "?" is read. */
const readers: Readonly<Record<string, Read>> = {
  host: (text) => ({ host: readHost(text) }),
  port: (text) => ({ port: readPort(text) }),
  dbname: (text) => ({ database: text }),
  user: (text) => ({ user: text }),
  password: (text) => ({ password: text }),
  sslmode: (text) => ({ sslmode: readSslMode(text) }),
  sslrootcert: (text) => ({ sslrootcert: text }),
  sslcert: (text) => ({ sslcert: text }),
  sslkey: (text) => ({ sslkey: text }),
  connect_timeout: (text) => ({ connectTimeoutMs: readTimeout(text) }),
};

/** Host name, address or folder of a socket. @throws PartProblem */
export function readHost(text: string): string {
  if (text.includes("@")) {
    throw new PartProblem(
      'expected a host name, got one with "@" (in user and password it is written %40)',
    );
  }
  if (text.includes(",")) {
    throw new PartProblem(`expected one host, got several: ${JSON.stringify(text)}`);
  }
  if (/[\\/\s]/.test(text) && !isAbsolute(text)) {
    throw new PartProblem(
      `expected a host name, an address or the absolute path of a socket's folder, got ${JSON.stringify(text)}`,
    );
  }
  return text;
}

/** @throws PartProblem */
export function readPort(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (text.includes(",")) throw new PartProblem(`expected one port, got several: "${text}"`);
  if (port < 1 || port > 65_535) {
    throw new PartProblem(`expected a port from 1 to 65535, got ${JSON.stringify(text)}`);
  }
  return port;
}

/** @throws PartProblem */
export function readSslMode(text: string): SslMode {
  const mode = sslModes.find((known) => known === text);
  if (mode !== undefined) return mode;
  throw new PartProblem(
    `expected sslmode one of ${sslModes.join(", ")}, got ${JSON.stringify(text)}`,
  );
}

/** Whole seconds; 0 and less is without limit, as libpq has it. In ms. @throws PartProblem */
export function readTimeout(text: string): number {
  if (!/^\s*-?\d{1,7}\s*$/.test(text)) {
    throw new PartProblem(
      `expected connect_timeout in whole seconds (0 is without limit), got ${JSON.stringify(text)}`,
    );
  }
  return Math.max(0, Number(text)) * 1000;
}

/**
 * Takes a connection url apart, as libpq reads it: `postgresql://user:password@host:port/database`,
 * each part optional, with further keys behind "?".
 *
 * @throws PartProblem
 */
export function parseConnectionUrl(url: string): ConnectionParts {
  const match =
    /^postgres(?:ql)?:\/\/(?:(?<user>[^:@/]*)(?::(?<password>[^@/]*))?@)?(?<server>[^/?]*)(?:\/(?<database>[^?]*))?(?:\?(?<query>.*))?$/s.exec(
      url,
    );
  if (match === null) throw new PartProblem(urlShape);
  const { user, password, server = "", database, query } = match.groups ?? {};
  // Most likely the rest of a password with a "/" in it: never repeat it.
  if (/[@/]/.test(database ?? "")) throw new PartProblem(urlShape);
  return {
    ...part("user", user),
    ...part("password", password),
    ...readServer(server),
    ...part("dbname", database),
    ...(query ? readQuery(query) : {}),
  };
}

function readServer(server: string): ConnectionParts {
  if (server.includes(",")) throw new PartProblem("expected one host in the url, got several");
  const match = /^(?:\[(?<address>[^\]]*)\]|(?<host>[^:]*))(?::(?<port>\d*))?$/.exec(server);
  if (match === null) throw new PartProblem(urlShape);
  const { address, host, port } = match.groups ?? {};
  return { ...part("host", address ?? host), ...part("port", port) };
}

const urlShape =
  "expected a url like postgresql://user:password@host:port/database (what is special in a name or password is percent-encoded)";

/** Nothing counts as left out. */
function part(key: string, encoded: string | undefined): ConnectionParts {
  const text = decode(encoded ?? "");
  return text === "" ? {} : (readers[key]?.(text) ?? {});
}

function readQuery(query: string): ConnectionParts {
  let parts: ConnectionParts = {};
  for (const pair of query.split("&")) {
    const [name = "", text, extra] = pair.split("=");
    const key = decode(name);
    if (text === undefined || extra !== undefined) {
      throw new PartProblem(`expected key=value pairs joined by "&" behind the url's "?"`);
    }
    // libpq takes this one from the JDBC driver's urls.
    if (key === "ssl" && text === "true") parts = { ...parts, sslmode: "require" };
    else if (Object.hasOwn(readers, key)) parts = { ...parts, ...part(key, text) };
    else {
      throw new PartProblem(
        `expected behind the url's "?" only ${Object.keys(readers).join(", ")}, got ${JSON.stringify(key)}, which is not supported here`,
      );
    }
  }
  return parts;
}

function decode(text: string): string {
  let decoded: string;
  try {
    decoded = decodeURIComponent(text);
  } catch {
    throw new PartProblem('expected two hexadecimal digits behind each "%" of the url, in UTF-8');
  }
  if (decoded.includes("\0")) throw new PartProblem("expected no zero byte (%00) in the url");
  return decoded;
}

/** A url for display: its password, wherever it stands, is `***`. */
export function maskUrl(url: string): string {
  return url
    .replace(/^([a-z][a-z0-9+.-]*:\/\/[^:@/]*):.*@/is, "$1:***@")
    .replace(/([?&]password=)[^&]*/gi, "$1***");
}
