import { isKeyword, keywords, type KeywordName } from "./keywords.js";
import { parseKeyValues, type Pair } from "./parseKeyValues.js";
import { ConnectionStringError } from "./error.js";
import { isUri, parseUri } from "./parseUri.js";

/** What a connection string says, by keyword; what is empty counts as not said. */
export type ConnectionWords = ReadonlyMap<KeywordName, string>;

/**
 * Takes a libpq connection string apart: `key=value` pairs, or a URI. Of a keyword that stands
 * several times the last counts. A database name that is itself a connection string stands for what
 * that one says.
 *
 * @throws ConnectionStringProblem
 */
export function parseConnectionString(text: string): ConnectionWords {
  const words = new Map<KeywordName, string>();
  for (const pair of expand(pairsOf(text))) {
    const [keyword, value] = renamed(pair);
    if (!isKeyword(keyword)) throw unknown(keyword);
    if (value === "") words.delete(keyword);
    else words.set(keyword, value);
  }
  for (const keyword of words.keys()) {
    if (keywords[keyword].treatment === "refused") {
      throw new ConnectionStringError(`"${keyword}" is not supported in the connection string`);
    }
  }
  return words;
}

function pairsOf(text: string): Pair[] {
  if (isUri(text)) return parseUri(text, isAccepted);
  return parseKeyValues(text, (keyword, shown) => {
    if (!isAccepted(keyword)) throw unknown(shown);
  });
}

/** Only the first database name is looked at, as by libpq, and no deeper. */
function expand(pairs: readonly Pair[]): Pair[] {
  const place = pairs.findIndex(([keyword]) => keyword === "dbname");
  const [, name = ""] = pairs[place] ?? [];
  if (!isUri(name) && !name.includes("=")) return [...pairs];
  return [...pairs.slice(0, place), ...pairsOf(name), ...pairs.slice(place + 1)];
}

const isAccepted = (keyword: string): boolean => keyword === "requiressl" || isKeyword(keyword);

/** The name that sslmode had long ago. */
function renamed([keyword, value]: Pair): Pair {
  if (keyword !== "requiressl") return [keyword, value];
  return ["sslmode", value.startsWith("1") ? "require" : "prefer"];
}

function unknown(keyword: string): ConnectionStringError {
  return new ConnectionStringError(`invalid connection option "${keyword}"`);
}
