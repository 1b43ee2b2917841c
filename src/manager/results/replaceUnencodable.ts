import { sqlState } from "../../shared/postgres/client.js";
import { characterNotInRepertoire, untranslatableCharacter } from "../../shared/postgres/sqlStates.js";
import type { OwnedResult } from "../model/tasks.js";

const unencodableStates: ReadonlySet<string> = new Set([characterNotInRepertoire, untranslatableCharacter]);

/**
 * Replaces the non-ASCII characters of a result by "?", and adds an error that says so. This is for databases whose
 * encoding (for example LATIN1) lacks some characters.
 * @returns null if `error` has another cause, or if the result is ASCII only.
 */
export function replaceUnencodable(result: OwnedResult, error: unknown): OwnedResult | null {
  if (!(error instanceof Error) || !unencodableStates.has(sqlState(error) ?? "")) return null;
  const { largeOutput, error: runError, ...rest } = result;
  const output = largeOutput === undefined ? rest.output : Buffer.from(largeOutput.buffer).toString();
  if ([output, runError].every((text) => text === null || toAscii(text) === text)) return null;
  const note = `ERROR:  result has characters that the database cannot store, all but plain ASCII became "?": ${error.message}`;
  const stored = toAscii(output ?? "");
  return {
    ...rest,
    ...(largeOutput === undefined ? { output: stored } : { largeOutput: new Uint8Array(Buffer.from(stored)) }),
    error: toAscii(runError === null ? note : `${runError}\n${note}`),
  };
}

function toAscii(text: string): string {
  return text.replaceAll(/[^\t\n\r -~]/gu, "?");
}
