import { isUtf8 } from "node:buffer";
import { readFile } from "node:fs/promises";
import type { z } from "zod";
import { PgTaskError, systemErrorCode } from "../errors.js";
import { JsonSyntaxError, parseJson } from "./parseJson.js";
import { describeIssues } from "./describeIssues.js";
import { invalidConfiguration, type ConfigDocument } from "./configDocument.js";
import { arraySchema, fileSchema, type RawEntry, type RawFile } from "./fileSchema.js";

/**
 * @throws PgTaskError CONFIG_FILE_UNREADABLE; CONFIG_SYNTAX and CONFIG_INVALID with one line for each problem
 */
export async function readDocument(file: string): Promise<ConfigDocument> {
  return toDocument(parse(file, decode(file, await read(file))), file);
}

/** @throws PgTaskError CONFIG_INVALID with one line for each problem */
export function toDocument(content: unknown, file: string): ConfigDocument {
  if (Array.isArray(content)) {
    check<readonly RawEntry[]>(arraySchema, content, file);
    return { values: {}, entries: content, entriesPath: [], isArray: true };
  }
  check<RawFile>(fileSchema, content, file);
  return {
    values: content,
    entries: content["pg_task.json"] ?? [],
    entriesPath: ["pg_task.json"],
    isArray: false,
  };
}

// oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- the schema implies T
function check<T>(schema: z.ZodType, content: unknown, file: string): asserts content is T {
  const { error } = schema.safeParse(content);
  if (error) throw invalidConfiguration(file, describeIssues(error.issues, content));
}

async function read(file: string): Promise<Buffer> {
  try {
    return await readFile(file);
  } catch (error) {
    const reason = readErrors[systemErrorCode(error)] ?? String(error);
    throw new PgTaskError("CONFIG_FILE_UNREADABLE", `${file}: cannot read the configuration file: ${reason}`, {
      cause: error,
    });
  }
}

const readErrors: Readonly<Record<string, string>> = {
  ENOENT: "no such file",
  ENOTDIR: "not a directory",
  EISDIR: "is a directory",
  EACCES: "permission denied",
};

/** Other encodings are refused, because reading them as UTF-8 would silently change names and passwords. */
function decode(file: string, bytes: Buffer): string {
  const text = bytes.toString("utf8");
  if (isUtf8(bytes)) return text;
  const line = text.slice(0, text.indexOf("\u{fffd}")).split("\n").length;
  throw new PgTaskError("CONFIG_SYNTAX", `${file}:${line}: expected UTF-8, got other bytes: save the file as UTF-8`);
}

function parse(file: string, text: string): unknown {
  try {
    return parseJson(text);
  } catch (error) {
    if (!(error instanceof JsonSyntaxError)) throw error;
    throw new PgTaskError("CONFIG_SYNTAX", error.describe(file));
  }
}
