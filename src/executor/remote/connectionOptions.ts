import { defaultConnectTimeoutMs } from "../../shared/postgres/target/resolveTarget.js";
import type { ConnectionTarget } from "../../shared/postgres/target/target.js";
import { keywords, type KeywordName } from "../../shared/postgres/connectionString/keywords.js";
import { shownValue } from "../../shared/postgres/connectionString/mayShow.js";
import type { GivenOptions } from "../../shared/postgres/connectionString/parse.js";
import { ConnectionStringError } from "../../shared/postgres/errors.js";

/** What the resolution of a connection string depends on. */
export interface RemoteContext {
  /** The target of the manager's connection, which supplies what the connection string omits. */
  readonly managerTarget: ConnectionTarget;
  /**
   * Whether the manager's user is a superuser. Other users must give a password in the connection string, and must not
   * use any credentials of the machine that pg-task runs on.
   */
  readonly isSuperuser: boolean;
  readonly env: NodeJS.ProcessEnv;
  readonly warn: (message: string) => void;
}

/**
 * The options of a connection string. Defaults come from the manager's connection and from the PG* environment
 * variables.
 */
export class ConnectionOptions {
  readonly given: GivenOptions;
  readonly #managerDefaults: ReadonlyMap<KeywordName, string>;
  readonly #env: NodeJS.ProcessEnv;
  readonly #isSuperuser: boolean;

  /**
   * Checks the integer options, and refuses options that are not supported.
   *
   * @throws ConnectionStringError
   */
  constructor(given: GivenOptions, { managerTarget, env, isSuperuser }: RemoteContext) {
    this.given = given;
    this.#managerDefaults = managerDefaults(managerTarget, given, isSuperuser);
    this.#env = env;
    this.#isSuperuser = isSuperuser;
    this.integer("keepalives_interval");
    this.integer("keepalives_count");
    this.integer("tcp_user_timeout");
    this.#refuseUnsupported();
  }

  text(keyword: KeywordName): string | undefined {
    return this.given.get(keyword) ?? this.#managerDefaults.get(keyword) ?? this.#fromVariable(keyword);
  }

  /**
   * Returns an option's value as an integer, or undefined if the option is not set.
   *
   * @throws ConnectionStringError
   */
  integer(keyword: KeywordName): number | undefined {
    const text = this.text(keyword);
    if (text === undefined) return undefined;
    const value = parseInteger(text);
    if (value !== null) return value;
    throw new ConnectionStringError(
      `invalid integer value "${shownValue(keyword, text)}" for connection option "${keyword}"`,
    );
  }

  /**
   * Returns an option's value, which must be one of `choices`, or undefined if the option is not set.
   *
   * @throws ConnectionStringError
   */
  choice<T extends string>(keyword: KeywordName, choices: readonly T[]): T | undefined {
    const text = this.text(keyword);
    const known = choices.find((choice) => choice === text);
    if (text === undefined || known !== undefined) return known;
    throw new ConnectionStringError(`invalid ${keyword} value: "${shownValue(keyword, text)}"`);
  }

  /** Returns the elements of an option that is a comma-separated list. */
  list(keyword: KeywordName): string[] {
    return this.text(keyword)?.split(",") ?? [];
  }

  #fromVariable(keyword: KeywordName): string | undefined {
    const { variable, inherited } = keywords[keyword];
    const isSecret = keyword === "password" || keyword === "passfile";
    if (variable === undefined || inherited || (isSecret && !this.#isSuperuser)) return undefined;
    return this.#env[variable] || undefined;
  }

  #refuseUnsupported(): void {
    for (const keyword of ["service", "requirepeer", "sslcrldir"] as const) {
      if (this.text(keyword) === undefined) continue;
      const { variable } = keywords[keyword];
      throw new ConnectionStringError(`${variable} is not supported for remote tasks`);
    }
    if (this.choice("gssencmode", ["disable", "prefer", "require"]) === "require") {
      throw new ConnectionStringError('gssencmode value "require" invalid when GSSAPI support is not compiled in');
    }
    const versions = ["3.0", "3.2", "latest"] as const;
    const minVersion = this.choice("min_protocol_version", versions) ?? "3.0";
    this.choice("max_protocol_version", versions);
    if (minVersion !== "3.0") {
      throw new ConnectionStringError(`min_protocol_version "${minVersion}" is not supported`);
    }
  }
}

/**
 * Parses a decimal integer as C's `strtol` does. White space around it is allowed.
 *
 * @returns null for any other text, and for an integer of more than 32 bits
 */
export function parseInteger(text: string): number | null {
  const value = /^\s*[-+]?\d+\s*$/.test(text) ? Number(text) : Number.NaN;
  return Number.isInteger(value) && Math.abs(value) < 2 ** 31 ? value : null;
}

/** Returns the options that a remote connection inherits from the manager's connection. */
function managerDefaults(
  target: ConnectionTarget,
  given: GivenOptions,
  isSuperuser: boolean,
): Map<KeywordName, string> {
  const options = new Map<KeywordName, string>();
  const add = (keyword: KeywordName, value: string | number | undefined): void => {
    if (value !== undefined) options.set(keyword, String(value));
  };
  if (!given.has("hostaddr")) add("host", target.host);
  // The host name may have further addresses, which may lead to other servers.
  if (!given.has("host") && !given.has("hostaddr")) add("hostaddr", target.address);
  add("port", target.port);
  add("dbname", target.database);
  add("user", target.user);
  add("connect_timeout", Math.ceil((target.connectTimeoutMs || defaultConnectTimeoutMs) / 1000));
  if (given.get("sslrootcert") !== "system") add("sslmode", target.sslmode);
  add("sslrootcert", target.sslrootcert);
  if (!isSuperuser) return options;
  add("sslcert", target.sslcert);
  add("sslkey", target.sslkey);
  // The manager's password belongs to the manager's server and user, and must not be sent to other servers or for other
  // users.
  const elsewhere = (["host", "hostaddr", "port", "user"] as const).some((key) => given.has(key));
  // A remote connection reads the password file itself, so that it uses a password that has changed.
  const readsFile = target.passwordFile !== undefined && target.passwordHost === undefined;
  if (!elsewhere && !readsFile) add("password", target.password);
  return options;
}
