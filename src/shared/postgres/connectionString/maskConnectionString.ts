import type { Pair } from "./keywords.js";
import { mask } from "../../logRedaction.js";
import { ConnectionStringError } from "../errors.js";
import { isSecret, mayShow } from "./mayShow.js";
import { parsePairs } from "./parse.js";
import { quoteValue } from "./parseKeyValues.js";
import { decode, isUri, splitUri } from "./parseUri.js";

/**
 * Returns a connection string with its secrets masked. One that cannot be parsed, or that probably has a part of a
 * password in another place, is masked as a whole.
 */
export function maskConnectionString(text: string): string {
  const pairs = parsed(text);
  if (pairs === null || !pairs.every((pair) => isSecret(pair[0]) || mayShow(pair))) return mask;
  if (isUri(text)) return maskUri(text);
  return pairs.some(([keyword]) => isSecret(keyword)) ? pairs.map(pairText).join(" ") : text;
}

function parsed(text: string): Pair[] | null {
  try {
    return parsePairs(text);
  } catch (error) {
    if (error instanceof ConnectionStringError) return null;
    throw error;
  }
}

function maskUri(uri: string): string {
  const { scheme, userinfo, rest } = splitUri(uri);
  // The last "@" ends the password if the URI was written without percent-encoding.
  if (rest.includes("@")) return mask;
  const shownParameters = rest.replace(/([?&])([^=&]*)=[^&]*/g, (parameter, separator: string, name: string) =>
    isSecret(decode(name)) ? `${separator}${name}=${mask}` : parameter,
  );
  return scheme + userinfo.replace(/:.*(?=@)/s, `:${mask}`) + shownParameters;
}

function pairText([keyword, value]: Pair): string {
  if (isSecret(keyword)) return `${keyword}=${mask}`;
  return `${keyword}=${/^[^\s'\\]+$/.test(value) ? value : quoteValue(value)}`;
}
