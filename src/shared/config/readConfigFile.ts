import { isUtf8 } from "node:buffer";
import { readFile } from "node:fs/promises";
import type { z } from "zod";
import { PgTaskError } from "../errors.js";
import { errorCode } from "./errorCode.js";
import { JsonProblem, parseJson } from "./parseJson.js";
import { describeIssues } from "./describeIssues.js";
import { arraySchema, fileSchema, type RawEntry, type RawFile } from "./fileSchema.js";

/** A file's content: of the right shape, nothing filled in. */
export interface Document {
  readonly values: RawFile;
  readonly entries: readonly RawEntry[];
  /** What stands before an entry's `[index]` in messages. */
  readonly entriesPath: readonly string[];
}

/** What there is without a file. */
export const emptyDocument: Document = { values: {}, entries: [], entriesPath: [] };

/**
 * Reads a configuration file in either form.
 *
 * @throws PgTaskError CONFIG_FILE_UNREADABLE, CONFIG_SYNTAX with line and column, or CONFIG_INVALID
 * with one line for each thing that is wrong.
 */
export async function readDocument(file: string): Promise<Document> {
  const content = parse(file, decode(file, await read(file)));
  if (Array.isArray(content)) {
    assertArray(content, file);
    return { values: {}, entries: content, entriesPath: [] };
  }
  assertFile(content, file);
  return { values: content, entries: content["pg_task.json"] ?? [], entriesPath: ["pg_task.json"] };
}

function assertArray(content: unknown, file: string): asserts content is readonly RawEntry[] {
  check(arraySchema, content, file);
}

function assertFile(content: unknown, file: string): asserts content is RawFile {
  check(fileSchema, content, file);
}

function check(schema: z.ZodType, content: unknown, file: string): void {
  const { error } = schema.safeParse(content);
  if (error) throw invalid(file, describeIssues(error.issues, content));
}

async function read(file: string): Promise<Buffer> {
  try {
    return await readFile(file);
  } catch (error) {
    const reason = readErrors[errorCode(error)] ?? String(error);
    throw new PgTaskError(
      "CONFIG_FILE_UNREADABLE",
      `${file}: expected a configuration file that can be read, got: ${reason}`,
      { cause: error },
    );
  }
}

const readErrors: Readonly<Record<string, string>> = {
  ENOENT: "no such file",
  ENOTDIR: "a part of the path is no folder",
  EISDIR: "it is a folder",
  EACCES: "permission denied",
};

/** JSON is UTF-8: of another encoding it would silently make other names and passwords. */
function decode(file: string, bytes: Buffer): string {
  const text = bytes.toString("utf8");
  if (isUtf8(bytes)) return text;
  const line = text.slice(0, text.indexOf("\u{fffd}")).split("\n").length;
  throw new PgTaskError(
    "CONFIG_SYNTAX",
    `${file}:${line}: expected text in UTF-8, got bytes that are none: save the file as UTF-8`,
  );
}

function parse(file: string, text: string): unknown {
  try {
    return parseJson(text);
  } catch (error) {
    if (!(error instanceof JsonProblem)) throw error;
    throw new PgTaskError(
      "CONFIG_SYNTAX",
      `${file}:${error.line}:${error.column}: not JSON: ${error.message}`,
    );
  }
}

/** One message out of several problems, each on its own line behind the file's name. */
export function invalid(file: string | null, problems: readonly string[]): PgTaskError {
  const prefix = file === null ? "" : `${file}: `;
  return new PgTaskError(
    "CONFIG_INVALID",
    problems.map((problem) => `${prefix}${problem}`).join("\n"),
  );
}
