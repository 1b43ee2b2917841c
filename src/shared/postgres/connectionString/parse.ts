import { mask } from "../../logRedaction.js";
import { ConnectionStringError } from "../errors.js";
import { foreignRemedy, isKeyword, type KeywordName, type Pair } from "./keywords.js";
import { shownKeyword } from "./mayShow.js";
import { parseKeyValues } from "./parseKeyValues.js";
import { isUri, parseUri } from "./parseUri.js";

export type GivenOptions = ReadonlyMap<KeywordName, string>;

export const noOptions: GivenOptions = new Map();

/**
 * Parses a libpq connection string, `key=value` pairs or a URI. The last value of a keyword applies, empty ones are
 * left out, and a `dbname` that is itself a connection string is replaced by the values of that string.
 */
export function parseConnectionString(text: string): GivenOptions {
  return collect(expandDatabase(parsePairs(text)));
}

/** Parses a connection URI. A name of a database is never taken for a connection string. */
export function parseConnectionUri(uri: string): GivenOptions {
  return collect(parsePairs(uri));
}

function collect(pairs: readonly Pair[]): GivenOptions {
  const given = new Map<KeywordName, string>();
  for (const pair of pairs) {
    const [keyword, value] = translateRequiressl(pair);
    if (!isKeyword(keyword)) throw invalidOption(shownKeyword(keyword, pairs));
    if (value === "") given.delete(keyword);
    else given.set(keyword, value);
  }
  return given;
}

/** Parses without looking into `dbname`. `quote` returns what messages may show of an unknown keyword. */
export function parsePairs(text: string, quote = (shown: string): string => shown): Pair[] {
  if (isUri(text)) {
    const foreign: string[] = [];
    const pairs = parseUri(text, (keyword, shown) => {
      if (isAccepted(keyword)) return;
      const remedy = quote(shown) === keyword ? foreignRemedy(keyword) : null;
      // The value of an unknown parameter may be a password with an "&" in it, so what follows is not shown.
      if (remedy === null) throw invalidParameters([...foreign, `"${quote(shown)}"`]);
      foreign.push(`"${keyword}" (${remedy})`);
    });
    if (foreign.length > 0) throw invalidParameters(foreign);
    return pairs;
  }
  return parseKeyValues(text, (keyword, shown) => {
    if (!isAccepted(keyword)) throw invalidOption(quote(shown));
  });
}

const invalidParameters = (names: readonly string[]): ConnectionStringError =>
  new ConnectionStringError(
    `invalid URI query parameter${names.length > 1 ? "s" : ""}: ${[...new Set(names)].join(", ")}`,
  );

/** As in libpq, only the first `dbname` is expanded, and only once. */
function expandDatabase(pairs: readonly Pair[]): Pair[] {
  const index = pairs.findIndex(([keyword]) => keyword === "dbname");
  const [, name = ""] = pairs[index] ?? [];
  if (!isUri(name) && !name.includes("=")) return [...pairs];
  // In a wrong URI, what looks like a connection string can be the rest of a password.
  const expanded = parsePairs(name, () => mask);
  return [...pairs.slice(0, index), ...expanded, ...pairs.slice(index + 1)];
}

const isAccepted = (keyword: string): boolean => keyword === "requiressl" || isKeyword(keyword);

function translateRequiressl([keyword, value]: Pair): Pair {
  if (keyword !== "requiressl") return [keyword, value];
  return ["sslmode", value.startsWith("1") ? "require" : "prefer"];
}

function invalidOption(keyword: string): ConnectionStringError {
  return new ConnectionStringError(`invalid connection option "${keyword}"`);
}
