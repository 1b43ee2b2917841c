import { constants } from "node:buffer";
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { PgTaskError } from "../../shared/errors.js";
import { explainSystemError } from "../../shared/systemErrors.js";
import type { Terminal } from "../terminal/terminal.js";

/** Longest text, in bytes. PostgreSQL's limit of 1 GB is higher than that of Node's strings. */
const maxTextBytes = constants.MAX_STRING_LENGTH;

/** @param file `-` is standard input */
export async function readText(terminal: Terminal, file: string, what: string): Promise<string> {
  if (file === "-" && terminal.isInputTerminal) {
    throw new PgTaskError("USAGE", `expected ${what} on standard input, got a terminal`);
  }
  const name = file === "-" ? "standard input" : file;
  const bytes = file === "-" ? await terminal.readInput() : await readBytes(resolve(terminal.cwd, file), what);
  if (bytes.length > maxTextBytes) {
    throw new PgTaskError("USAGE", `${name} has ${bytes.length} bytes, and can have at most ${maxTextBytes}`);
  }
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new PgTaskError("USAGE", `${name} is not valid UTF-8`);
  }
  if (text.includes("\0")) throw new PgTaskError("USAGE", `${name} contains zero bytes`);
  return text;
}

async function readBytes(file: string, what: string): Promise<Buffer> {
  try {
    return await readFile(file);
  } catch (error) {
    throw new PgTaskError("USAGE", `cannot read the file with ${what}: ${explainSystemError(error)}`, { cause: error });
  }
}
