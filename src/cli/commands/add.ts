import { readFile } from "node:fs/promises";
import { Option, type Command } from "commander";
import { PgTaskError } from "../../shared/errors.js";
import { sqlState } from "../../shared/postgres/client.js";
import { addTask, missingGrants, taskOutcome } from "../../tasks/commands/addTask.js";
import { awaitEnd } from "./awaitEnd.js";
import { onTable, type OpenTable } from "../support/openTable.js";
import { withTableOptions, type CommandOptions } from "../support/options.js";
import type { CommandRun } from "../support/run.js";
import type { Terminal } from "../terminal/terminal.js";

export interface AddOptions extends CommandOptions {
  readonly file?: string;
  readonly in?: string;
  readonly set?: ReadonlyMap<string, string>;
  readonly wait?: true;
  readonly [column: string]: unknown;
}

/** Columns with a value of their own. */
const valued: readonly (readonly [name: string, value: string, meaning: string])[] = [
  ["plan", "time", "when it is to start, as PostgreSQL takes a time"],
  ["group", "name", "name of its group"],
  ["max", "n", "how many others of its group may run beside it; negative: pause in ms"],
  ["active", "interval", "how long after its plan it is still worth running"],
  ["timeout", "interval", "allowed run time, 0 is unlimited"],
  ["repeat", "interval", "repeat after this"],
  ["live", "interval", "how long one session lives"],
  ["count", "n", "tasks that one session runs before it goes"],
  ["keep", "interval", "how long its row is kept after its stop, 0 is for ever"],
  ["delimiter", "char", "between columns of output"],
  ["escape", "char", "escapes in output"],
  ["quote", "char", "quotes in output"],
  ["null", "text", "what stands for null in output"],
  ["data", "text", "your own"],
  ["remote", "string", "connection string of another database"],
  ["parent", "id", "the task that it is to belong to"],
];

const oneCharacter = new Set(["delimiter", "escape", "quote"]);

/** Columns that are true or false. */
const flags: readonly (readonly [name: string, meaning: string])[] = [
  ["delete", "delete the row when output and error are both null"],
  ["drift", "the next plan counts from the stop, not from the plan"],
  ["header", "column names in output"],
  ["string", "quote only strings"],
  ["save", "keep session state between the tasks of one session"],
  ["atomic", "effect and DONE in one transaction where the SQL allows it"],
];

export function declareAdd(program: Command, run: CommandRun): void {
  const command = program
    .command("add")
    .description("add a task; what is not given takes its default")
    .argument("[sql]", "the SQL to run; - reads standard input, as does no SQL at all")
    .option("-f, --file <file>", "read the SQL from a file, - is standard input")
    .option("-w, --wait", "wait for its end, print its output, and exit by its state")
    .option("--in <interval>", "start it that long from now");
  for (const [name, value, meaning] of valued) command.option(`--${name} <${value}>`, meaning);
  for (const [name, meaning] of flags) {
    command
      .option(`--${name}`, meaning)
      .addOption(new Option(`--no-${name}`, `the opposite of --${name}`));
  }
  command.option(
    "--set <column=value>",
    "any other column, such as one of your own; may be given again",
    parseSet,
  );
  withTableOptions(command).action((sql: string | undefined, options: AddOptions) =>
    run((terminal) => add(terminal, sql, options)),
  );
}

async function add(
  terminal: Terminal,
  sql: string | undefined,
  options: AddOptions,
): Promise<number> {
  if (options.in !== undefined && options["plan"] !== undefined) {
    throw new PgTaskError("USAGE", "expected one of --plan and --in, got both");
  }
  const given = givenColumns(options);
  requireOneCharacter(given);
  const columns = new Map([["input", await readSql(sql, options.file)], ...given]);
  return await onTable(options, "add", async (opened) => {
    const json = options.json === true;
    const wait = options.wait === true;
    const insertIt = () => insert(opened, columns, { in: options.in, wait });
    if (wait) return await awaitEnd(terminal, opened, insertIt, json);
    const id = await insertIt();
    if (json) terminal.write(`${JSON.stringify({ id })}\n`);
    else terminal.write(terminal.isTerminal ? `added task ${id}\n` : `${id}\n`);
    return 0;
  });
}

function givenColumns(options: AddOptions): [string, string][] {
  const given = [...valued, ...flags].flatMap(([name]): [string, string][] => {
    const value = options[name];
    return typeof value === "string" || typeof value === "boolean" ? [[name, String(value)]] : [];
  });
  // So that its end can be read: a task without output would be gone with it.
  const kept: [string, string][] =
    options.wait === true && options["delete"] === undefined ? [["delete", "false"]] : [];
  return [...given, ...kept, ...(options.set ?? [])];
}

/** The server would keep the first byte, and say nothing of the others. @throws PgTaskError USAGE */
function requireOneCharacter(columns: readonly (readonly [name: string, value: string])[]): void {
  for (const [name, value] of columns) {
    if (!oneCharacter.has(name) || Buffer.byteLength(value) <= 1) continue;
    throw new PgTaskError(
      "USAGE",
      `expected --${name} with one ASCII character, got ${JSON.stringify(value)}`,
    );
  }
}

/**
 * With `wait` the task is there only if its end can be read.
 *
 * @throws PgTaskError USAGE for what the table does not take, SCHEMA_NOT_ALLOWED with what to grant.
 */
async function insert(
  { client, table }: OpenTable,
  columns: ReadonlyMap<string, string>,
  options: { readonly in: string | undefined; readonly wait: boolean },
): Promise<string> {
  try {
    if (!options.wait) return await addTask(client, table, columns, options.in);
    await client.query("BEGIN");
    const id = await addTask(client, table, columns, options.in);
    await taskOutcome(client, table, id);
    await client.query("COMMIT");
    return id;
  } catch (error) {
    const state = sqlState(error);
    if (state === null) throw error;
    if (options.wait) await client.query("ROLLBACK");
    const words = `${error instanceof Error ? error.message : String(error)} (SQLSTATE ${state})`;
    // A check is not met, a column is not there, or a type has no such value.
    if (state.startsWith("22") || state.startsWith("23") || state === "42703") {
      throw new PgTaskError("USAGE", `${table.qualified} takes no such task: ${words}`, {
        cause: error,
      });
    }
    if (state !== "42501") throw error;
    const given = [...columns.keys(), ...(options.in === undefined ? [] : ["plan"])];
    const grants = await missingGrants(client, table, given, options.wait);
    if (grants.length === 0) throw error;
    throw new PgTaskError(
      "SCHEMA_NOT_ALLOWED",
      `not allowed on ${table.qualified}, and nothing was added: ${words}: ${grants.join("; ")}`,
      { cause: error, sqlState: state },
    );
  }
}

function parseSet(
  text: string,
  before: ReadonlyMap<string, string> = new Map(),
): ReadonlyMap<string, string> {
  const at = text.indexOf("=");
  if (at < 1)
    throw new PgTaskError("USAGE", `expected --set column=value, got ${JSON.stringify(text)}`);
  return new Map([...before, [text.slice(0, at), text.slice(at + 1)]]);
}

/** @throws PgTaskError USAGE unless there is exactly one text to read, that says something. */
async function readSql(sql: string | undefined, file: string | undefined): Promise<string> {
  if (sql !== undefined && file !== undefined) {
    throw new PgTaskError("USAGE", "expected the SQL as an argument or by --file, got both");
  }
  const from = file ?? (sql === undefined || sql === "-" ? "-" : null);
  const text = from === null ? (sql ?? "") : await readText(from);
  if (text.trim() === "") {
    throw new PgTaskError(
      "USAGE",
      "expected SQL: as an argument, by --file, or on standard input; got nothing",
    );
  }
  return text;
}

async function readText(file: string): Promise<string> {
  if (file === "-" && process.stdin.isTTY) {
    throw new PgTaskError(
      "USAGE",
      "expected SQL: as an argument, by --file, or on standard input; got nothing",
    );
  }
  const name = file === "-" ? "standard input" : file;
  const bytes = file === "-" ? await readStandardInput() : await readBytes(file);
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new PgTaskError("USAGE", `${name}: expected SQL in UTF-8, got other bytes`);
  }
  if (text.includes("\0"))
    throw new PgTaskError("USAGE", `${name}: expected SQL, got a text with zero bytes`);
  return text;
}

async function readBytes(file: string): Promise<Buffer> {
  try {
    return await readFile(file);
  } catch (error) {
    const words = error instanceof Error ? error.message : String(error);
    throw new PgTaskError("USAGE", `expected a file with SQL that can be read, got: ${words}`, {
      cause: error,
    });
  }
}

async function readStandardInput(): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const part of process.stdin) if (part instanceof Uint8Array) parts.push(part);
  return Buffer.concat(parts);
}
