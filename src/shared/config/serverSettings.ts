import type { Client } from "../postgres/client.js";
import type { Log } from "../log.js";
import { findParameter, maxInt } from "./parameters.js";
import { parseSize } from "./sizeText.js";

/** Settings that somebody made for the session's role, database or server; an empty one counts as not made. */
export async function settingsMade(
  client: Pick<Client, "query">,
  names: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const { rows } = await client.query<{ name: string; value: string }>(
    `SELECT n.name, v.value FROM pg_catalog.unnest($1::pg_catalog.text[]) AS n(name),
       LATERAL (SELECT pg_catalog.current_setting(n.name, true) AS value) AS v WHERE v.value <> ''`,
    [names],
  );
  return new Map(rows.map((row) => [row.name, row.value]));
}

/** The whole number that a setting's text means for the parameter; null when it makes no sense there. */
export function settingNumber(name: string, text: string): number | null {
  const { type, min = 1, max = maxInt } = findParameter(name) ?? { type: "int" };
  const value = type === "size" ? parseSize(text) : Number(text);
  return value !== null && Number.isInteger(value) && value >= min && value <= max ? value : null;
}

/** Told of a setting of the server's that makes no sense, and of what is used instead. */
export type RefuseSetting = (setting: string, value: string, used: unknown) => void;

/** Says so in the log. */
export const refuseTo =
  (log: Log): RefuseSetting =>
  (setting, value, used) =>
    log.warn({ setting, value, used }, "setting of the server makes no sense, file's is used");
