import type { Queryable } from "../postgres/client.js";
import type { Log } from "../log.js";
import { maxInt } from "../postgres/serverLimits.js";
import { characterParameters, findParameter } from "./parameters.js";
import { parseSize } from "./sizeText.js";

/** Empty settings are left out. */
export async function readServerSettings(
  client: Queryable,
  names: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const { rows } = await client.query<{ name: string; value: string }>(
    `SELECT n.name, v.value FROM pg_catalog.unnest($1::pg_catalog.text[]) AS n(name),
       LATERAL (SELECT pg_catalog.current_setting(n.name, true) AS value) AS v WHERE v.value <> ''`,
    [names],
  );
  return new Map(rows.map((row) => [row.name, row.value]));
}

export function parseSettingNumber(name: string, text: string): number | null {
  const { type, min = 1, max = maxInt } = findParameter(name) ?? { type: "int" };
  const value = type === "size" ? parseSize(text) : Number(text);
  return value !== null && Number.isInteger(value) && value >= min && value <= max ? value : null;
}

/** The server silently uses only the first byte of such settings. */
export const longCharacterSettings = (settings: ReadonlyMap<string, string>): [setting: string, value: string][] =>
  [...settings].filter(([name, value]) => characterParameters.includes(name) && value.length > 1);

export type OnInvalidSetting = (setting: string, value: string, used: unknown) => void;

export const logInvalidSettings =
  (log: Log): OnInvalidSetting =>
  (setting, value, used) =>
    log.warn({ setting, value, used }, "invalid server setting ignored, file's value used");
