import { errorMessage, PgTaskError, withMessage } from "../../shared/errors.js";
import { sqlState } from "../../shared/postgres/client.js";
import { literal } from "../../shared/postgres/quoting.js";
import { insufficientPrivilege } from "../../shared/postgres/sqlStates.js";
import {
  addTasks,
  findInvalidParameter,
  findLongCharacter,
  readMissingGrants,
  toAddError,
} from "../../tasks/commands/addTask.js";
import { withSuggestion } from "../support/suggestions.js";
import { readKeyHolder } from "../../tasks/queries/tasksWithKey.js";
import { readOutcomes } from "../../tasks/queries/taskOutcome.js";
import { waitForTask } from "./awaitEnd.js";
import { withTable, type OpenTable } from "../support/openTable.js";
import { readReasons } from "../support/oneTask.js";
import { readText } from "../support/readText.js";
import { jsonText, printableLine } from "../../shared/printable.js";
import type { CommandOptions } from "../support/options.js";
import { formatZonedTime } from "../terminal/format.js";
import { isoTimeSql } from "../../tasks/sqlFragments.js";
import { noteAddedTask } from "../support/exitCodes.js";
import { optionValues, type keyTakenChoices } from "../support/columnOptions.js";
import type { Terminal } from "../terminal/terminal.js";

interface AddOptions extends CommandOptions {
  readonly file?: string;
  readonly in?: string;
  readonly set?: ReadonlyMap<string, string>;
  readonly wait?: true;
  readonly ifKeyTaken: (typeof keyTakenChoices)[number];
  readonly [column: string]: unknown;
}

interface Request {
  readonly columns: ReadonlyMap<string, string>;
  readonly taskColumns: readonly string[];
  readonly delay: string | undefined;
  readonly wait: boolean;
  readonly skipTaken: boolean;
}

export async function add(terminal: Terminal, sql: string | undefined, options: AddOptions): Promise<number> {
  if (options.in !== undefined && options["plan"] !== undefined) {
    throw new PgTaskError("USAGE", "expected one of --plan and --in, got both");
  }
  const wait = options.wait === true;
  const skipTaken = options.ifKeyTaken === "skip";
  if (wait && skipTaken) {
    throw new PgTaskError("USAGE", "--wait cannot be combined with --if-key-taken skip, which may add no task");
  }
  const given = columnValues(options);
  refuseTwice(given, options);
  requireSingleCharacters([...given, ...(options.set ?? [])]);
  const columns = new Map([["input", await readSql(terminal, sql, options.file)], ...given, ...(options.set ?? [])]);
  const taskColumns = given.map(([name]) => name);
  const request = { columns, taskColumns, delay: options.in, wait, skipTaken };
  if (skipTaken && !columns.has("key")) {
    throw new PgTaskError("USAGE", "expected --key, because of --if-key-taken skip");
  }
  return await withTable(terminal, options, "add", async (opened) => {
    const json = options.json === true;
    if (wait) return await waitForTask(terminal, opened, async () => (await insert(opened, request)) ?? "", json);
    const id = await insert(opened, request);
    if (json) terminal.write(`${jsonText({ id }, 0)}\n`);
    else if (id === null) terminal.writeError(`nothing was added: ${await describeKeyHolder(opened, request)}\n`);
    else if (terminal.isTerminal) terminal.write(await describeAdded(opened, id));
    else terminal.write(`${id}\n`);
    return 0;
  });
}

/** The task is added, so nothing that cannot be read makes the command fail. */
async function describeAdded(opened: OpenTable, id: string): Promise<string> {
  try {
    return `added task ${id}${await describePlan(opened, id)}\n${await describeGroupWait(opened, id)}`;
  } catch {
    return `added task ${id}\n`;
  }
}

/** Empty if the time does not lie ahead. In the rule's zone, too, if that is not the local one. */
async function describePlan({ client, table }: OpenTable, id: string): Promise<string> {
  const zone = "CASE WHEN rule IS NOT NULL THEN zone END";
  const { rows } = await client.query<PlannedTime>(
    `SELECT ${isoTimeSql("plan")} AS plan, ${zone} AS zone, to_char(plan AT TIME ZONE ${zone}, 'YYYY-MM-DD HH24:MI:SS') AS wall FROM ${table.qualified} WHERE id = $1::bigint AND plan > statement_timestamp() AND isfinite(plan)`,
    [id],
  );
  return rows.map((row) => `, planned for ${formatZonedTime(row.plan)}${describeWall(row)}`).join("");
}

interface PlannedTime {
  readonly plan: string;
  readonly zone: string | null;
  readonly wall: string | null;
}

function describeWall({ plan, zone, wall }: PlannedTime): string {
  const [day = "", clock = ""] = (wall ?? "").split(" ");
  const [localDay = "", localClock = ""] = formatZonedTime(plan).split(" ");
  if (zone === null || (day === localDay && clock === localClock)) return "";
  const date = day === localDay ? "" : `${day} `;
  return ` (${date}${clock.replace(/:00$/, "")} in ${printableLine(zone)})`;
}

/** Users who have not given the task a group of its own may be surprised that it waits. */
async function describeGroupWait(opened: OpenTable, id: string): Promise<string> {
  const reasons = (await readReasons(opened, id, { localTimes: true })) ?? [];
  return reasons
    .filter(({ code }) => code === "group-limit" || code === "behind-others")
    .map(({ text, remedy }) => `it waits: ${printableLine(text)}\n${remedy === undefined ? "" : `  ${remedy}\n`}`)
    .join("");
}

function columnValues(options: AddOptions): [string, string][] {
  // --wait reads the result from the row. The row must therefore not be deleted, even if the task has no output.
  const kept: [string, string][] =
    options.wait === true && options["delete"] === undefined ? [["delete", "false"]] : [];
  return [...optionValues(options), ...kept];
}

/** Otherwise, a column of `--set` would silently replace the value of an option. */
function refuseTwice(given: readonly (readonly [name: string, value: string])[], options: AddOptions): void {
  const names = new Set(["input", ...given.map(([name]) => name), ...(options.in === undefined ? [] : ["plan"])]);
  // --wait only suggests a value for this column.
  if (options["delete"] === undefined) names.delete("delete");
  const twice = [...(options.set?.keys() ?? [])].find((name) => names.has(name));
  if (twice === undefined) return;
  throw new PgTaskError("USAGE", `expected column ${twice} once, got it in --set, too`);
}

/** The server would silently keep only the first byte. */
function requireSingleCharacters(columns: readonly (readonly [name: string, value: string])[]): void {
  const name = findLongCharacter(columns);
  if (name === undefined) return;
  const value = new Map(columns).get(name);
  throw new PgTaskError("USAGE", `expected --${name} with one ASCII character, got ${JSON.stringify(value)}`);
}

/**
 * With `wait`, the insert is committed only if the command may read the result, which it waits for.
 *
 * @returns null if the task was left out because its key is taken
 */
async function insert(opened: OpenTable, request: Request): Promise<string | null> {
  const { client, table } = opened;
  const { columns, taskColumns, delay, wait, skipTaken } = request;
  const rows = [{ columns, taskColumns, delay }];
  try {
    if (wait) await client.query("BEGIN");
    const [id = null] = await addTasks(client, table, rows, skipTaken ? "skip" : "error");
    if (wait && id !== null) await readOutcomes(client, table, [id]);
    if (wait) await client.query("COMMIT");
    if (id !== null) noteAddedTask(id);
    return id;
  } catch (error) {
    const state = sqlState(error);
    if (state === null) throw error;
    if (wait) await client.query("ROLLBACK");
    if (state !== insufficientPrivilege) {
      const refusal = nameOption(error, request, toAddError(error, table, rows));
      throw await withSuggestion(client, await nameKeyHolder(opened, request, refusal));
    }
    const given = [...columns.keys(), ...(delay === undefined ? [] : ["plan"])];
    const grants = await readMissingGrants(client, table, given, wait);
    if (grants.length === 0) throw error;
    throw new PgTaskError(
      "SCHEMA_NOT_ALLOWED",
      `permission denied on ${table.qualified}, nothing was added: ${errorMessage(error)} (SQLSTATE ${state}): ${grants.join("; ")}`,
      { cause: error, sqlState: state },
    );
  }
}

function nameOption(error: unknown, { columns, taskColumns, delay }: Request, refusal: unknown): unknown {
  if (!(refusal instanceof PgTaskError) || refusal.code !== "TASK_REJECTED") return refusal;
  const column = findInvalidParameter(error, { columns, delay });
  if (column === null || column === "input") return refusal;
  const others = column === "plan" && delay !== undefined ? "--in" : `--set ${column}`;
  const option = taskColumns.includes(column) ? `--${column}` : others;
  return withMessage(refusal, `${option}: ${refusal.message}`);
}

/** Adds to an error TASK_KEY_TAKEN which task waits, and what to do. Returns any other error unchanged. */
async function nameKeyHolder(opened: OpenTable, request: Request, error: unknown): Promise<unknown> {
  if (!(error instanceof PgTaskError) || error.code !== "TASK_KEY_TAKEN") return error;
  const holder = await describeKeyHolder(opened, request);
  const key = literal(request.columns.get("key") ?? "");
  const role = request.columns.get("role");
  const ofRole = role === undefined ? "" : ` AND role = ${literal(role)}`;
  const update = `UPDATE ${opened.table.qualified} SET … WHERE key = ${key}${ofRole} AND ready IS NOT NULL`;
  return withMessage(
    error,
    `${error.message}: ${holder}; if one task is enough, --if-key-taken skip makes this no error; to change the one that waits: ${update}`,
  );
}

async function describeKeyHolder({ client, table }: OpenTable, { columns }: Request): Promise<string> {
  const key = columns.get("key");
  const id = key === undefined ? null : await readKeyHolder(client, table, key, columns.get("role") ?? null);
  return id === null ? "another task waits with this key" : `task ${id} waits with this key`;
}

async function readSql(terminal: Terminal, sql: string | undefined, file: string | undefined): Promise<string> {
  if (sql !== undefined && file !== undefined) {
    throw new PgTaskError("USAGE", "expected the SQL as an argument or from --file, got both");
  }
  const given = sql === "-" ? undefined : sql;
  const from = file ?? "-";
  // Nothing is piped into the command.
  const isMissing = given === undefined && from === "-" && terminal.isInputTerminal;
  const text = given ?? (isMissing ? "" : await readText(terminal, from, "SQL"));
  if (text.trim() !== "") return text;
  throw new PgTaskError("USAGE", "no SQL: give it as an argument, with --file, or on standard input");
}
