import { errorMessage, PgTaskError } from "../../shared/errors.js";
import { omitUndefined } from "../../shared/omitUndefined.js";
import { sqlState, type Client } from "../../shared/postgres/client.js";
import { insufficientPrivilege } from "../../shared/postgres/sqlStates.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import {
  addTasks,
  findRefusedColumn,
  readMissingGrants,
  toAddError,
  type NewRow,
} from "../../tasks/commands/addTask.js";
import { findBrokenChecks } from "../../tasks/commands/brokenChecks.js";
import { runInSavepoint } from "../../tasks/commands/savepoint.js";
import { toRow } from "../../tasks/commands/toRow.js";
import type { WebTable } from "../data/webTable.js";
import { ApiError } from "../errors.js";
import { readPrivileges } from "./changeHandlers.js";
import type { AddedTask, NewTaskBody, TaskProblems } from "./changeSchemas.js";

/** One thing that is wrong with a task. */
interface Problem {
  /** The column; null if it is not known. */
  readonly column: string | null;
  readonly detail: string;
  /** The same as a sentence of its own. */
  readonly line: string;
  readonly isTakenKey?: boolean | undefined;
}

/** @throws ApiError INVALID with all problems; CONFLICT if only the key is taken; NOT_FOUND for the task to copy from; FORBIDDEN; READ_ONLY */
export async function addOne({ pool, table, changes }: WebTable, body: NewTaskBody): Promise<AddedTask> {
  const added = await pool.change(async (client) => {
    await requireAdding(client, table, body);
    if (conversionProblem(body) !== null) throw refusal(body, await findProblems(client, table, body));
    const row = convert(body);
    try {
      const [id = ""] = await addTasks(client, table, [row]);
      return { id };
    } catch (error) {
      if (sqlState(error) === insufficientPrivilege) throw await addForbidden(client, table, row, error);
      if (!isRefusal(error, table, row)) throw error;
      const problems = await findProblems(client, table, body);
      // What another session has changed meanwhile may have removed the reason.
      throw refusal(body, problems.length > 0 ? problems : problemsOf(error, table, row), error);
    }
  });
  changes.noteChange();
  return added;
}

/** Says what is wrong with a task. Nothing is added. */
export async function checkOne({ pool, table }: WebTable, body: NewTaskBody): Promise<TaskProblems> {
  return await pool.change(async (client) => {
    await requireAdding(client, table, body);
    return { errors: errorsOf(body, await findProblems(client, table, body)) };
  });
}

async function requireAdding(client: Client, table: TaskTable, { copy }: NewTaskBody): Promise<void> {
  await readPrivileges(client, table);
  if (copy === undefined) return;
  const { rows } = await client.query(`SELECT FROM ${table.qualified} WHERE id = $1::bigint`, [copy.id]);
  if (rows.length === 0) throw new ApiError("NOT_FOUND", `there is no task ${copy.id} to copy from in this table`);
}

/** @throws PgTaskError */
function convert({ copy, ...task }: NewTaskBody): NewRow {
  const row = toRow(omitUndefined(task), copy);
  const doubled = copy?.columns.find((name) => row.columns.has(name) || (name === "plan" && row.delay !== undefined));
  if (doubled !== undefined) throw new PgTaskError("USAGE", `${doubled}: expected one value, got it in copy, too`);
  return row;
}

/** Each value is first converted alone; what is left is then tried on the server. */
async function findProblems(client: Client, table: TaskTable, body: NewTaskBody): Promise<Problem[]> {
  const { copy, ...task } = body;
  const problems: Problem[] = [];
  const isInputCopied = copy?.columns.includes("input") === true;
  const kept: [string, unknown][] = [];
  const check = (name: string, alone: NewTaskBody): boolean => {
    const detail = conversionProblem(alone);
    if (detail !== null) problems.push({ column: name, detail, line: detail });
    return detail === null;
  };
  if (task.input === undefined && !isInputCopied) check("input", {});
  for (const [name, value] of Object.entries(task)) {
    if (value !== undefined && check(name, { input: "SELECT", [name]: value })) kept.push([name, value]);
  }
  const rest: NewTaskBody = { input: isInputCopied ? undefined : "SELECT", copy, ...Object.fromEntries(kept) };
  const contradiction = conversionProblem(rest);
  if (contradiction !== null) return [...problems, { column: null, detail: contradiction, line: contradiction }];
  return [...problems, ...(await findRefusedValues(client, table, convert(rest)))];
}

/** What is wrong already before the server sees it. */
function conversionProblem(body: NewTaskBody): string | null {
  try {
    convert(body);
    return null;
  } catch (error) {
    if (error instanceof PgTaskError) return error.message;
    throw error;
  }
}

/** The server reports one value at a time, so each that it refuses is left out of the next try. */
async function findRefusedValues(client: Client, table: TaskTable, row: NewRow): Promise<Problem[]> {
  const problems: Problem[] = [];
  await client.query("BEGIN");
  try {
    for (let rest = row; ;) {
      const error = await refusalOf(client, table, rest);
      if (error === null) return problems;
      const found = await located(client, table, rest, problemsOf(error, table, rest));
      problems.push(...found);
      const fewer = without(
        rest,
        found.flatMap(({ column }) => column ?? []),
      );
      if (namesOf(fewer).length === namesOf(rest).length) return problems;
      rest = fewer;
    }
  } finally {
    await client.query("ROLLBACK");
  }
}

/** Null if the server accepts the task, or lacks a privilege for it, which is no fault of a value. */
async function refusalOf(client: Client, table: TaskTable, row: NewRow): Promise<unknown> {
  try {
    await runInSavepoint(client, () => addTasks(client, table, [row]));
    return null;
  } catch (error) {
    if (sqlState(error) === insufficientPrivilege) return null;
    if (!isRefusal(error, table, row)) throw error;
    return error;
  }
}

/** If it is not known which values are wrong, those that the server refuses when they are alone. */
async function located(client: Client, table: TaskTable, row: NewRow, found: Problem[]): Promise<Problem[]> {
  if (found.length === 1 && found[0]?.column !== null) return found;
  const names = namesOf(row);
  // A task without any values may be refused as well, for example by a trigger.
  if ((await refusalOf(client, table, without(row, names))) !== null) return found;
  const problems: Problem[] = [];
  for (const name of names) {
    const alone = without(
      row,
      names.filter((each) => each !== name),
    );
    const error = await refusalOf(client, table, alone);
    if (error === null) continue;
    const [problem] = problemsOf(error, table, alone);
    problems.push({ ...problemOf(name, problem?.detail ?? errorMessage(error)), isTakenKey: problem?.isTakenKey });
  }
  return problems.length === 0 ? found : problems;
}

const namesOf = ({ columns, delay, copied }: NewRow): string[] =>
  [...columns.keys(), ...(delay === undefined ? [] : ["plan"]), ...(copied?.columns ?? [])].filter(
    (name) => name !== "input",
  );

/** The task needs its input. */
function without(row: NewRow, names: readonly string[]): NewRow {
  const left = new Set(names.filter((name) => name !== "input"));
  return {
    ...row,
    columns: new Map([...row.columns].filter(([name]) => !left.has(name))),
    delay: left.has("plan") ? undefined : row.delay,
    copied: row.copied && { ...row.copied, columns: row.copied.columns.filter((name) => !left.has(name)) },
  };
}

/** The user's triggers and functions may refuse the task, too. */
const isRefusal = (error: unknown, table: TaskTable, row: NewRow): boolean =>
  toAddError(error, table, [row]) instanceof PgTaskError || /^(?:P0|3[89])/.test(sqlState(error) ?? "");

function problemsOf(error: unknown, table: TaskTable, row: NewRow): Problem[] {
  const known = toAddError(error, table, [row]);
  if (known instanceof PgTaskError && known.code === "TASK_KEY_TAKEN") {
    return [{ ...problemOf("key", "another task with this key waits"), isTakenKey: true }];
  }
  const broken = findBrokenChecks(error, [row]);
  if (broken.length > 0) return broken.map(({ column, demand }) => problemOf(column, demand));
  return [problemOf(findRefusedColumn(error, row), errorMessage(error))];
}

const problemOf = (column: string | null, detail: string): Problem => ({
  column,
  detail,
  line: column === null ? detail : `${column}: ${detail}`,
});

function refusal(body: NewTaskBody, problems: readonly Problem[], cause?: unknown): ApiError {
  const code = problems.every(({ isTakenKey }) => isTakenKey === true) ? "CONFLICT" : "INVALID";
  const detail = problems.map(({ line }) => line).join("\n");
  return new ApiError(code, detail, { cause, errors: errorsOf(body, problems) });
}

function errorsOf({ columns, delay }: NewTaskBody, problems: readonly Problem[]): TaskProblems["errors"] {
  return problems.map(({ column, detail }) => {
    if (column === null) return { pointer: null, detail };
    const name = column === "plan" && delay !== undefined ? "delay" : column;
    const isOwn = columns !== undefined && Object.hasOwn(columns, name);
    return { pointer: `#/${isOwn ? "columns/" : ""}${name}`, detail };
  });
}

async function addForbidden(
  client: Client,
  table: TaskTable,
  { columns, delay }: NewRow,
  error: unknown,
): Promise<ApiError> {
  const names = [...columns.keys(), ...(delay === undefined ? [] : ["plan"])];
  const grants = await readMissingGrants(client, table, names, false);
  const remedy = grants.length === 0 ? errorMessage(error) : grants.join("; ");
  return new ApiError("FORBIDDEN", `the entry's user may not add this task: ${remedy}`, { cause: error });
}
