import { isIP } from "node:net";
import { authMethods, channelBindings, type AuthMethod } from "../auth/credentials.js";
import { shownValue } from "../connectionString/mayShow.js";
import { omitUndefined } from "../../omitUndefined.js";
import { tlsVersions, type TlsSettings } from "../transport/socketOptions.js";
import { chooseSslMode, sslModes } from "../transport/sslMode.js";
import { defaultSocketDirectory } from "./passwordFile.js";
import { sessionAttributes, type ConnectionTarget, type SessionAttributes, type TargetServer } from "./target.js";
import { keywords, refusedKeywords, type KeywordName } from "../connectionString/keywords.js";
import type { GivenOptions } from "../connectionString/parse.js";
import { ConnectionStringError } from "../errors.js";

export type ReadTarget = Omit<ConnectionTarget, "database" | "user" | "passwordFile" | "connectTimeoutMs"> & {
  readonly connectTimeoutMs?: number;
};

export type FindUserFile = (name: string) => string | undefined;

/**
 * Reads and checks what local and remote connections have in common.
 *
 * @param attributes the values that `target_session_attrs` can have
 * @throws ConnectionStringError
 */
export function readTarget(
  options: ConnectionOptions,
  userFile: FindUserFile,
  attributes: readonly SessionAttributes[] = sessionAttributes,
): ReadTarget {
  const [first, ...others] = readServers(options);
  const timeout = options.integer("connect_timeout");
  const random = options.choice("load_balance_hosts", ["disable", "random"]) === "random";
  const methods = readAuthMethods(options);
  return {
    ...(first ?? defaultServer),
    ...readTls(options, userFile),
    ...omitUndefined({
      otherServers: others.length > 0 ? others : undefined,
      // As in libpq, 0 or a negative number means no limit.
      connectTimeoutMs: timeout === undefined ? undefined : Math.max(0, timeout) * 1000,
      sessionAttributes: options.choice("target_session_attrs", attributes),
      loadBalance: random ? (true as const) : undefined,
      channelBinding: options.choice("channel_binding", channelBindings),
      authMethods: methods ?? undefined,
      keepAliveMs: readKeepAlive(options),
      options: options.text("options"),
    }),
  };
}

const defaultServer: TargetServer = {
  host: process.platform === "win32" ? "localhost" : defaultSocketDirectory,
  port: 5432,
};

function readServers(options: ConnectionOptions): TargetServer[] {
  const addresses = options.list("hostaddr");
  const hosts = options.list("host");
  const ports = options.list("port");
  const password = options.text("password");
  const count = addresses.length || hosts.length || 1;
  if (addresses.length > 0 && hosts.length > 0 && hosts.length !== addresses.length) {
    throw options.error(
      "hostaddr",
      `could not match ${hosts.length} host names to ${addresses.length} hostaddr values`,
    );
  }
  if (ports.length > 1 && ports.length !== count) {
    throw options.error("port", `could not match ${ports.length} port numbers to ${count} hosts`);
  }
  return Array.from({ length: count }, (_, index) => {
    const address = addresses[index] || undefined;
    if (address !== undefined && isIP(address) === 0) {
      throw options.error(
        "hostaddr",
        `could not parse network address "${shownValue("hostaddr", address)}": Name or service not known`,
      );
    }
    const host = hosts[index] || (address ?? defaultServer.host);
    return { host, port: readPort(options, ports[index] ?? ports[0] ?? ""), ...omitUndefined({ address, password }) };
  });
}

function readPort(options: ConnectionOptions, text: string): number {
  if (text === "") return defaultServer.port;
  const port = parseInteger(text);
  if (port === null) {
    throw options.error("port", `invalid integer value "${shownValue("port", text)}" for connection option "port"`);
  }
  if (port >= 1 && port <= 65_535) return port;
  throw options.error("port", `invalid port number: "${text}" (expected 1 to 65535)`);
}

function readTls(
  options: ConnectionOptions,
  userFile: FindUserFile,
): Pick<ConnectionTarget, "sslmode" | "sslrootcert" | "sslcert" | "sslkey" | "tls"> {
  const root = options.text("sslrootcert");
  const mode = chooseSslMode(options.choice("sslmode", sslModes), root);
  const direct = options.choice("sslnegotiation", ["postgres", "direct"]) === "direct";
  if (direct && ["disable", "allow", "prefer"].includes(mode)) {
    throw options.error(
      "sslnegotiation",
      `weak sslmode "${mode}" may not be used with sslnegotiation=direct (use "require", "verify-ca", or "verify-full")`,
    );
  }
  const certificateMode = options.choice("sslcertmode", ["disable", "allow", "require"]);
  if (certificateMode === "require") throw options.error("sslcertmode", 'sslcertmode "require" is not supported');
  const file = (keyword: "sslcert" | "sslkey" | "sslcrl", name: string): string | undefined =>
    options.text(keyword) ?? userFile(name);
  const sslrootcert = root === "system" ? undefined : (root ?? userFile("root.crt"));
  const sslcert = certificateMode === "disable" ? undefined : file("sslcert", "postgresql.crt");
  const tls: NonNullable<ConnectionTarget["tls"]> = omitUndefined({
    direct: direct ? true : undefined,
    crl: file("sslcrl", "root.crl"),
    keyPassword: options.text("sslpassword"),
    sni: options.text("sslsni") === "0" ? false : undefined,
    ...readTlsRange(options),
  });
  return {
    // As in libpq, a file of root certificates makes `require` also verify the certificate's issuer.
    sslmode: mode === "require" && sslrootcert !== undefined ? "verify-ca" : mode,
    ...omitUndefined({
      sslrootcert,
      sslcert,
      sslkey: sslcert === undefined ? undefined : file("sslkey", "postgresql.key"),
      tls: Object.keys(tls).length > 0 ? tls : undefined,
    }),
  };
}

function readTlsRange(options: ConnectionOptions): {
  minVersion: TlsSettings["minVersion"] | undefined;
  maxVersion: TlsSettings["minVersion"] | undefined;
} {
  const minVersion = options.choice("ssl_min_protocol_version", tlsVersions);
  const maxVersion = options.choice("ssl_max_protocol_version", tlsVersions);
  if (maxVersion !== undefined && tlsVersions.indexOf(maxVersion) < tlsVersions.indexOf(minVersion ?? "TLSv1.2")) {
    throw options.error("ssl_max_protocol_version", "invalid SSL protocol version range");
  }
  return { minVersion, maxVersion };
}

/**
 * Reads `require_auth`: the allowed methods, or, each after a "!", the forbidden ones. Returns null if all are allowed.
 */
function readAuthMethods(options: ConnectionOptions): ReadonlySet<AuthMethod> | null {
  const list = options.list("require_auth");
  if (list.length === 0) return null;
  const negated = list.map((each) => each.startsWith("!"));
  if (new Set(negated).size > 1) {
    const conflicting = shownValue("require_auth", list[negated.findIndex((each) => each !== negated[0])] ?? "");
    throw options.error(
      "require_auth",
      negated[0] === true
        ? `require_auth method "${conflicting}" cannot be mixed with negative methods`
        : `negative require_auth method "${conflicting}" cannot be mixed with non-negative methods`,
    );
  }
  const named = list.map((each) => {
    const method = authMethods.find((known) => known === each.replace(/^!/, ""));
    if (method !== undefined) return method;
    throw options.error("require_auth", `invalid require_auth value: "${shownValue("require_auth", list.join(","))}"`);
  });
  if (negated[0] !== true) return new Set(named);
  return new Set(authMethods.filter((method) => !named.includes(method)));
}

/** Reads the idle time before TCP keepalive probes, in ms. As in libpq, 0 or less means the system's default. */
function readKeepAlive(options: ConnectionOptions): number | null | undefined {
  if (options.integer("keepalives") === 0) return null;
  const idle = options.integer("keepalives_idle");
  return idle === undefined ? undefined : Math.max(0, idle) * 1000;
}

interface OptionDefaults {
  readonly env: NodeJS.ProcessEnv;
  /** Values that take precedence over the environment's. */
  readonly inherited?: ReadonlyMap<KeywordName, string>;
  /** Whether the environment variable of this keyword counts. By default, all do. */
  readonly reads?: (keyword: KeywordName) => boolean;
}

/** Messages about a value from the environment name the variable. */
export class ConnectionOptions {
  readonly given: GivenOptions;
  readonly #defaults: OptionDefaults;

  /**
   * Checks the options that have no other effect, and refuses those that are not supported.
   *
   * @throws ConnectionStringError
   */
  constructor(given: GivenOptions, defaults: OptionDefaults) {
    this.given = given;
    this.#defaults = defaults;
    this.integer("keepalives_interval");
    this.integer("keepalives_count");
    this.integer("tcp_user_timeout");
    this.#refuseUnsupported();
  }

  text(keyword: KeywordName): string | undefined {
    return this.given.get(keyword) ?? this.#defaults.inherited?.get(keyword) ?? this.#fromVariable(keyword);
  }

  integer(keyword: KeywordName): number | undefined {
    const text = this.text(keyword);
    if (text === undefined) return undefined;
    const value = parseInteger(text);
    if (value !== null) return value;
    throw this.error(
      keyword,
      `invalid integer value "${shownValue(keyword, text)}" for connection option "${keyword}"`,
    );
  }

  choice<T extends string>(keyword: KeywordName, choices: readonly T[]): T | undefined {
    const text = this.text(keyword);
    const known = choices.find((choice) => choice === text);
    if (text === undefined || known !== undefined) return known;
    throw this.error(
      keyword,
      `invalid ${keyword} value: "${shownValue(keyword, text)}" (expected ${choices.join(", ")})`,
    );
  }

  list(keyword: KeywordName): string[] {
    return this.text(keyword)?.split(",") ?? [];
  }

  error(keyword: KeywordName, message: string): ConnectionStringError {
    const isGiven = this.given.has(keyword) || this.#defaults.inherited?.has(keyword) === true;
    return new ConnectionStringError(isGiven ? message : `${keywords[keyword].variable}: ${message}`);
  }

  #fromVariable(keyword: KeywordName): string | undefined {
    const { env, reads } = this.#defaults;
    const { variable } = keywords[keyword];
    if (variable === undefined || reads?.(keyword) === false) return undefined;
    return env[variable] || undefined;
  }

  #refuseUnsupported(): void {
    for (const keyword of refusedKeywords) {
      if (this.text(keyword) === undefined) continue;
      throw this.error(keyword, `"${keyword}" is not supported: ${keywords[keyword].remedy}`);
    }
    if (this.choice("gssencmode", ["disable", "prefer", "require"]) === "require") {
      throw this.error("gssencmode", 'gssencmode value "require" invalid when GSSAPI support is not compiled in');
    }
    const versions = ["3.0", "3.2", "latest"] as const;
    const minVersion = this.choice("min_protocol_version", versions) ?? "3.0";
    this.choice("max_protocol_version", versions);
    if (minVersion !== "3.0") {
      throw this.error("min_protocol_version", `min_protocol_version "${minVersion}" is not supported`);
    }
  }
}

/** Parses a decimal integer of 32 bits as C's `strtol` does. White space around it is allowed. */
function parseInteger(text: string): number | null {
  const value = /^\s*[-+]?\d+\s*$/.test(text) ? Number(text) : Number.NaN;
  return Number.isInteger(value) && Math.abs(value) < 2 ** 31 ? value : null;
}
