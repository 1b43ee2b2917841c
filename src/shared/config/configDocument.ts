import { PgTaskError } from "../errors.js";
import type { RawEntry, RawFile } from "./fileSchema.js";

export interface ConfigDocument {
  readonly values: RawFile;
  readonly entries: readonly RawEntry[];
  /** Path of the array of entries in the file. In messages, `[index]` follows this path. */
  readonly entriesPath: readonly string[];
  /** Whether the file is an array of entries, as the extension pg_task takes it. */
  readonly isArray: boolean;
}

export const emptyDocument: ConfigDocument = { values: {}, entries: [], entriesPath: [], isArray: false };

/** Combines several problems into one error: first the file's name, then one line for each problem. */
export function invalidConfiguration(file: string | null, problems: readonly string[]): PgTaskError {
  const prefix = file === null ? "" : `${file}: `;
  return new PgTaskError("CONFIG_INVALID", problems.map((problem) => `${prefix}${problem}`).join("\n"));
}
