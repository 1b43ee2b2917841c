import { mask } from "../../logRedaction.js";
import { isKeyword, keywords, type Pair } from "./keywords.js";

export const isSecret = (keyword: string): boolean => isKeyword(keyword) && keywords[keyword].secret === true;

/** Whether a value may be shown: it is no secret, and does not look like a password that was not quoted or encoded. */
export function mayShow([keyword, value]: Pair): boolean {
  if (isSecret(keyword)) return false;
  if (keyword === "port") return !/[^\d,\s+-]/.test(value);
  if (keyword === "options") return !/pass|secret|token|key|:\/\/|@/i.test(value);
  if (keyword === "user") return !/[=;&?:/]/.test(value);
  return !/[=;&?@]|:\/\/|PRIVATE KEY/.test(value);
}

export const shownValue = (keyword: string, value: string): string => (mayShow([keyword, value]) ? value : mask);

/** Returns what messages may show of an unknown keyword. It may be the rest of a password. */
export const shownKeyword = (keyword: string, before: readonly Pair[]): string =>
  before.every(mayShow) && /^[a-z_]*$/i.test(keyword) ? keyword : mask;
