import { defaultConnectTimeoutMs } from "../../shared/postgres/target/resolveTarget.js";
import type { ConnectionTarget } from "../../shared/config/types.js";
import { keywords, type KeywordName } from "../../shared/postgres/connectionString/keywords.js";
import type { ConnectionWords } from "../../shared/postgres/connectionString/parse.js";
import { ConnectionStringError } from "../../shared/postgres/connectionString/error.js";

/** Who asks for a remote connection, and from where. */
export interface RemoteContext {
  /** The manager's own connection: what a string leaves open comes from it. */
  readonly own: ConnectionTarget;
  /** Whether its user is superuser there; who is not must bring a password and may use nothing of ours. */
  readonly superuser: boolean;
  readonly env: NodeJS.ProcessEnv;
  readonly warn: (message: string) => void;
}

/** What a connection string says, with what stands in for what it leaves open. */
export class ConnectionOptions {
  readonly said: ConnectionWords;
  readonly #own: ReadonlyMap<KeywordName, string>;
  readonly #env: NodeJS.ProcessEnv;
  readonly #superuser: boolean;

  constructor(said: ConnectionWords, { own, env, superuser }: RemoteContext) {
    this.said = said;
    this.#own = ownWords(own, said, superuser);
    this.#env = env;
    this.#superuser = superuser;
    this.integer("keepalives_interval");
    this.integer("keepalives_count");
    this.integer("tcp_user_timeout");
    this.#refuseWhatCannotBe();
  }

  text(keyword: KeywordName): string | undefined {
    return this.said.get(keyword) ?? this.#own.get(keyword) ?? this.#fromVariable(keyword);
  }

  integer(keyword: KeywordName): number | undefined {
    const text = this.text(keyword);
    if (text === undefined) return undefined;
    const value = readInteger(text);
    if (value !== null) return value;
    throw new ConnectionStringError(
      `invalid integer value "${text}" for connection option "${keyword}"`,
    );
  }

  choice<T extends string>(keyword: KeywordName, choices: readonly T[]): T | undefined {
    const text = this.text(keyword);
    const known = choices.find((choice) => choice === text);
    if (text === undefined || known !== undefined) return known;
    throw new ConnectionStringError(`invalid ${keyword} value: "${text}"`);
  }

  /** The parts of a list with commas. */
  list(keyword: KeywordName): string[] {
    return this.text(keyword)?.split(",") ?? [];
  }

  #fromVariable(keyword: KeywordName): string | undefined {
    const { variable } = keywords[keyword];
    const identity = keyword === "password" || keyword === "passfile";
    if (variable === undefined || (identity && !this.#superuser)) return undefined;
    return this.#env[variable] || undefined;
  }

  #refuseWhatCannotBe(): void {
    for (const keyword of ["service", "requirepeer", "sslcrldir"] as const) {
      if (this.text(keyword) === undefined) continue;
      const { variable } = keywords[keyword];
      throw new ConnectionStringError(`${variable} is not supported for remote tasks`);
    }
    const encryption = this.choice("gssencmode", ["disable", "prefer", "require"]);
    if (encryption === "require") {
      throw new ConnectionStringError(
        'gssencmode value "require" invalid when GSSAPI support is not compiled in',
      );
    }
    const versions = ["3.0", "3.2", "latest"] as const;
    const oldest = this.choice("min_protocol_version", versions) ?? "3.0";
    this.choice("max_protocol_version", versions);
    if (oldest !== "3.0") {
      throw new ConnectionStringError(`min_protocol_version "${oldest}" is not supported`);
    }
  }
}

/** As C's strtol reads it: within an int, blanks around it do no harm. */
export function readInteger(text: string): number | null {
  const value = /^\s*[-+]?\d+\s*$/.test(text) ? Number(text) : Number.NaN;
  return Number.isInteger(value) && Math.abs(value) < 2 ** 31 ? value : null;
}

/** The manager's own connection in the words of a connection string. */
function ownWords(
  own: ConnectionTarget,
  said: ConnectionWords,
  superuser: boolean,
): Map<KeywordName, string> {
  const words = new Map<KeywordName, string>();
  const add = (keyword: KeywordName, value: string | number | undefined): void => {
    if (value !== undefined) words.set(keyword, String(value));
  };
  if (!said.has("hostaddr")) add("host", own.host);
  add("port", own.port);
  add("dbname", own.database);
  add("user", own.user);
  add("connect_timeout", Math.ceil((own.connectTimeoutMs || defaultConnectTimeoutMs) / 1000));
  if (!(said.get("sslrootcert") === "system")) add("sslmode", own.sslmode);
  add("sslrootcert", own.sslrootcert);
  if (!superuser) return words;
  add("sslcert", own.sslcert);
  add("sslkey", own.sslkey);
  // It is meant for that server and that user, and goes to nobody else.
  const elsewhere = (["host", "hostaddr", "port", "user"] as const).some((key) => said.has(key));
  if (!elsewhere) add("password", own.password);
  return words;
}
