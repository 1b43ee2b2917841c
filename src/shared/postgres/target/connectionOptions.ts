import { keywords, refusedKeywords, type KeywordName } from "../connectionString/keywords.js";
import { shownValue } from "../connectionString/mayShow.js";
import type { GivenOptions } from "../connectionString/parse.js";
import { ConnectionStringError } from "../errors.js";

export interface OptionDefaults {
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
export function parseInteger(text: string): number | null {
  const value = /^\s*[-+]?\d+\s*$/.test(text) ? Number(text) : Number.NaN;
  return Number.isInteger(value) && Math.abs(value) < 2 ** 31 ? value : null;
}
