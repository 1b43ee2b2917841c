import { sqlState } from "../../shared/postgres/client.js";
import type { OwnedResult } from "./completeFull.sql.js";

/** Character not in repertoire, untranslatable character. */
const unstorable = new Set(["22021", "22P05"]);

/**
 * What can be written of a result whose characters the table's database refused, a LATIN1 one for
 * example: its ASCII, and an error that says so. Null when `error` is another one, or when there is
 * nothing in the result but ASCII.
 */
export function replaceUnencodable(result: OwnedResult, error: unknown): OwnedResult | null {
  if (!(error instanceof Error) || !unstorable.has(sqlState(error) ?? "")) return null;
  const { large, error: own, ...rest } = result;
  const output = large === undefined ? rest.output : Buffer.from(large.buffer).toString();
  if ([output, own].every((text) => text === null || ascii(text) === text)) return null;
  const said = `ERROR:  result has characters that the database cannot store, all but plain ASCII became "?": ${error.message}`;
  const stored = ascii(output ?? "");
  return {
    ...rest,
    ...(large === undefined ? { output: stored } : { large: new Uint8Array(Buffer.from(stored)) }),
    error: ascii(own === null ? said : `${own}\n${said}`),
  };
}

function ascii(text: string): string {
  return text.replaceAll(/[^\t\n\r -~]/gu, "?");
}
