import { constants } from "node:buffer";
import { readFile } from "node:fs/promises";
import { Option, type Command } from "commander";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import { errorMessage, PgTaskError } from "../../shared/errors.js";
import { explainSystemError } from "../../shared/systemErrors.js";
import { sqlState, type Client } from "../../shared/postgres/client.js";
import { insufficientPrivilege } from "../../shared/postgres/sqlStates.js";
import { addTask, findLongCharacter, readMissingGrants, toAddError } from "../../tasks/commands/addTask.js";
import { readKeyHolder } from "../../tasks/queries/keyHolder.js";
import { readOutcomes } from "../../tasks/queries/taskOutcome.js";
import { waitForTask } from "./awaitEnd.js";
import { withTable, type OpenTable } from "../support/openTable.js";
import { readReasons } from "../support/readReasons.js";
import { printableLine } from "../../shared/printable.js";
import { addTableOptions, type CommandOptions, type RunCommand } from "../support/options.js";
import type { Terminal } from "../terminal/terminal.js";

interface AddOptions extends CommandOptions {
  readonly file?: string;
  readonly in?: string;
  readonly set?: ReadonlyMap<string, string>;
  readonly wait?: true;
  readonly [column: string]: unknown;
}

/** Columns that take a value, each of which is an option of the command. */
const valueColumns: readonly (readonly [name: string, value: string, meaning: string])[] = [
  ["args", "json", "values for the SQL: an array for $1, $2 …, or an object"],
  ["plan", "time", "when to start, in PostgreSQL's time syntax"],
  ["group", "name", "group name"],
  ["max", "n", "how many others of its group may run at the same time; negative: pause in ms"],
  ["active", "interval", "how late it may start before it expires"],
  ["timeout", "interval", "maximum run time, 0 is unlimited"],
  ["repeat", "interval", "repeat at this interval"],
  ["rule", "rule", "run by this schedule: cron, RFC 5545, or a query"],
  ["zone", "name", "time zone of the rule"],
  ["key", "text", "at most one task with this key waits, and at most one runs"],
  ["after", "ids", "older tasks for whose end it waits, such as {7,8}"],
  ["upon", "how", "how they have to end: done, fail or end"],
  ["retry", "n", "how often it is tried again after an error"],
  ["backoff", "interval", "pause before the first retry, doubled for each further one"],
  ["sqlstate", "codes", "errors that are tried again, such as {40,55P03}"],
  ["live", "interval", "maximum age of its session"],
  ["gap", "interval", "least time since the last start of its group"],
  ["count", "n", "how many tasks its session runs before it ends"],
  ["keep", "interval", "how long the finished row is kept, 0 is forever"],
  ["delimiter", "char", "separates output columns"],
  ["escape", "char", "escape character in output"],
  ["quote", "char", "quote character in output"],
  ["null", "text", "represents null in output"],
  ["data", "text", "free for your own use"],
  ["remote", "string", "connection string of another database"],
  ["parent", "id", "parent task"],
];

/** Longest input, in bytes. PostgreSQL's limit of 1 GB is higher than that of Node's strings. */
const maxTextBytes = constants.MAX_STRING_LENGTH;

/** Boolean columns, each of which is an option of the command. */
const booleanColumns: readonly (readonly [name: string, meaning: string])[] = [
  ["delete", "delete the finished row if output and error are null"],
  ["drift", "repeat relative to the end, not to the plan"],
  ["catchup", "make up for every missed time"],
  ["overlap", "plan the next run when this one starts"],
  ["header", "column names in output"],
  ["string", "quote only strings"],
  ["save", "keep session state between tasks"],
  ["atomic", "commit effect and DONE in one transaction if the SQL allows it"],
];

export function registerAdd(program: Command, run: RunCommand): void {
  const command = program
    .command("add")
    .description("add a task; omitted columns take their defaults")
    .argument("[sql]", "the SQL to run; omitted or -: read standard input")
    .option("-f, --file <file>", "read the SQL from a file; -: standard input")
    .option("-w, --wait", "wait until it ends, print its output, exit with a code for its state")
    .option("--in <interval>", "start after this interval");
  for (const [name, value, meaning] of valueColumns) command.option(`--${name} <${value}>`, meaning);
  for (const [name, meaning] of booleanColumns) {
    command.option(`--${name}`, meaning).addOption(new Option(`--no-${name}`, `the opposite of --${name}`));
  }
  command.option("--set <column=value>", "any other column, such as one of your own; repeatable", parseSet);
  addTableOptions(command).action((sql: string | undefined, options: AddOptions) =>
    run((terminal) => add(terminal, sql, options)),
  );
}

async function add(terminal: Terminal, sql: string | undefined, options: AddOptions): Promise<number> {
  if (options.in !== undefined && options["plan"] !== undefined) {
    throw new PgTaskError("USAGE", "expected one of --plan and --in, got both");
  }
  const given = columnValues(options);
  requireSingleCharacters(given);
  const columns = new Map([["input", await readSql(sql, options.file)], ...given]);
  return await withTable(options, "add", async (opened) => {
    const json = options.json === true;
    const wait = options.wait === true;
    const insertTask = () => insert(opened, columns, { in: options.in, wait });
    if (wait) return await waitForTask(terminal, opened, insertTask, json);
    const id = await insertTask();
    if (json) terminal.write(`${JSON.stringify({ id })}\n`);
    else if (terminal.isTerminal) terminal.write(`added task ${id}\n${await describeGroupWait(opened, id)}`);
    else terminal.write(`${id}\n`);
    return 0;
  });
}

/**
 * Says that tasks of the group run before this one, which may surprise users who have not given it a group of its own.
 *
 * @returns an empty string if none do
 */
async function describeGroupWait(opened: OpenTable, id: string): Promise<string> {
  const reasons = (await readReasons(opened, id)) ?? [];
  return reasons
    .filter(({ code }) => code === "group-limit" || code === "behind-others")
    .map(({ text, remedy }) => `it waits: ${printableLine(text)}\n${remedy === undefined ? "" : `  ${remedy}\n`}`)
    .join("");
}

function columnValues(options: AddOptions): [string, string][] {
  const given = [...valueColumns, ...booleanColumns].flatMap(([name]): [string, string][] => {
    const value = options[name];
    return typeof value === "string" || typeof value === "boolean" ? [[name, String(value)]] : [];
  });
  // --wait reads the result from the row. The row must therefore not be deleted, even if the task has no output.
  const kept: [string, string][] =
    options.wait === true && options["delete"] === undefined ? [["delete", "false"]] : [];
  return [...given, ...kept, ...(options.set ?? [])];
}

/**
 * Refuses values of more than one byte for columns that hold one character. The server would silently keep only the
 * first byte.
 *
 * @throws PgTaskError USAGE
 */
function requireSingleCharacters(columns: readonly (readonly [name: string, value: string])[]): void {
  const name = findLongCharacter(columns);
  if (name === undefined) return;
  const value = new Map(columns).get(name);
  throw new PgTaskError("USAGE", `expected --${name} with one ASCII character, got ${JSON.stringify(value)}`);
}

/**
 * Adds the task. If `wait` is set, the insert is committed only if the command has the privileges to read the result.
 *
 * @throws PgTaskError TASK_REJECTED or TASK_KEY_TAKEN if the table refuses it; SCHEMA_NOT_ALLOWED with the missing grants
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
    await readOutcomes(client, table, [id]);
    await client.query("COMMIT");
    return id;
  } catch (error) {
    const state = sqlState(error);
    if (state === null) throw error;
    if (options.wait) await client.query("ROLLBACK");
    if (state !== insufficientPrivilege) {
      throw await nameKeyHolder(client, table, columns.get("key"), toAddError(error, table, [{ columns }]));
    }
    const given = [...columns.keys(), ...(options.in === undefined ? [] : ["plan"])];
    const grants = await readMissingGrants(client, table, given, options.wait);
    if (grants.length === 0) throw error;
    throw new PgTaskError(
      "SCHEMA_NOT_ALLOWED",
      `permission denied on ${table.qualified}, nothing was added: ${errorMessage(error)} (SQLSTATE ${state}): ${grants.join("; ")}`,
      { cause: error, sqlState: state },
    );
  }
}

/** Adds to an error TASK_KEY_TAKEN which task waits with the key. Returns any other error unchanged. */
async function nameKeyHolder(
  client: Client,
  table: TaskTable,
  key: string | undefined,
  error: unknown,
): Promise<unknown> {
  if (!(error instanceof PgTaskError) || error.code !== "TASK_KEY_TAKEN" || key === undefined) return error;
  const id = await readKeyHolder(client, table, key);
  if (id === null) return error;
  const { message, cause, sqlState: state } = error;
  return new PgTaskError("TASK_KEY_TAKEN", `${message}: task ${id} waits with this key`, {
    cause,
    ...(state === undefined ? {} : { sqlState: state }),
  });
}

function parseSet(text: string, previous: ReadonlyMap<string, string> = new Map()): ReadonlyMap<string, string> {
  const at = text.indexOf("=");
  if (at < 1) throw new PgTaskError("USAGE", `expected --set column=value, got ${JSON.stringify(text)}`);
  return new Map([...previous, [text.slice(0, at), text.slice(at + 1)]]);
}

/**
 * Reads the task's SQL.
 *
 * @throws PgTaskError USAGE unless there is exactly one source of SQL and the SQL is not empty
 */
async function readSql(sql: string | undefined, file: string | undefined): Promise<string> {
  if (sql !== undefined && file !== undefined) {
    throw new PgTaskError("USAGE", "expected the SQL as an argument or from --file, got both");
  }
  const from = file ?? (sql === undefined || sql === "-" ? "-" : null);
  const text = from === null ? (sql ?? "") : await readText(from);
  if (text.trim() === "") {
    throw new PgTaskError("USAGE", "no SQL: give it as an argument, with --file, or on standard input");
  }
  return text;
}

async function readText(file: string): Promise<string> {
  if (file === "-" && process.stdin.isTTY) {
    throw new PgTaskError("USAGE", "no SQL: give it as an argument, with --file, or on standard input");
  }
  const name = file === "-" ? "standard input" : file;
  const bytes = file === "-" ? await readStandardInput() : await readBytes(file);
  if (bytes.length > maxTextBytes) {
    throw new PgTaskError("USAGE", `${name} has ${bytes.length} bytes, and an input can have at most ${maxTextBytes}`);
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

async function readBytes(file: string): Promise<Buffer> {
  try {
    return await readFile(file);
  } catch (error) {
    throw new PgTaskError("USAGE", `cannot read the SQL file: ${explainSystemError(error)}`, {
      cause: error,
    });
  }
}

async function readStandardInput(): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of process.stdin) if (chunk instanceof Uint8Array) chunks.push(chunk);
  return Buffer.concat(chunks);
}
