import { mask } from "../../logRedaction.js";
import { isKeyword, keywords, type Pair } from "./keywords.js";

export const isSecret = (keyword: string): boolean => isKeyword(keyword) && keywords[keyword].secret === true;

/**
 * Whether a value may be shown. It may not if it is a secret, or has characters that hardly ever belong to such a value:
 * then it probably contains a password that was not quoted or percent-encoded.
 */
export function mayShow([keyword, value]: Pair): boolean {
  if (isSecret(keyword)) return false;
  if (keyword === "port") return !/[^\d,\s+-]/.test(value);
  if (keyword === "options") return !/pass|secret|token|key|:\/\/|@/i.test(value);
  if (keyword === "user") return !/[=;&?:/]/.test(value);
  return !/[=;&?@]|:\/\/|PRIVATE KEY/.test(value);
}

/** Returns what messages may show of a value. */
export const shownValue = (keyword: string, value: string): string => (mayShow([keyword, value]) ? value : mask);

/**
 * Returns what messages may show of an unknown keyword. It may be the rest of a password, most likely after a secret or
 * a value that looks as if it contained one.
 */
export const shownKeyword = (keyword: string, before: readonly Pair[]): string =>
  before.every(mayShow) && /^[a-z_]*$/i.test(keyword) ? keyword : mask;
