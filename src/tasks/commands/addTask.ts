import { queryOne } from "../queryOne.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import { errorMessage, PgTaskError } from "../../shared/errors.js";
import { isServerError, sqlState, type Queryable } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { notNullViolation, undefinedColumn, uniqueViolation } from "../../shared/postgres/sqlStates.js";
import { columnsWith } from "../../shared/taskColumns.js";
import { intervals, type IfKeyTaken } from "../newTask.js";
import { hasUsers } from "../hasUsers.js";
import { fullQueueHint, missingColumnHint } from "../taskError.js";
import { findBrokenChecks } from "./brokenChecks.js";

export interface NewRow {
  /** Values by column name, in PostgreSQL's syntax for the column's type. */
  readonly columns: ReadonlyMap<string, string | null>;
  /** Names of those columns that are meant to be pg-task's, so that a column of the user's with this name is no substitute. */
  readonly taskColumns?: readonly string[] | undefined;
  readonly delay?: string | undefined;
  readonly copied?: CopiedValues | undefined;
}

export interface CopiedValues {
  readonly id: string;
  readonly columns: readonly string[];
}

const conflictActions: Record<Exclude<IfKeyTaken, "error">, string> = {
  skip: "DO NOTHING",
  join: "DO UPDATE SET key = excluded.key",
};

/** The server finds the index by its columns. */
async function readConflictClause(client: Queryable, table: TaskTable, ifKeyTaken: IfKeyTaken): Promise<string> {
  if (ifKeyTaken === "error") return "";
  const columns = (await hasUsers(client, table)) ? "role, key" : "key";
  return `ON CONFLICT (${columns}) WHERE key IS NOT NULL AND ready IS NOT NULL ${conflictActions[ifKeyTaken]}`;
}

const maxParameters = 65_535;

/**
 * So many rows that they need several statements are added atomically only in a transaction of the caller.
 *
 * @returns the ids in the order of the rows: with `skip` only those of the inserted ones, with `join` also those of the
 * tasks that wait with the keys
 */
export async function addTasks(
  client: Queryable,
  table: TaskTable,
  rows: readonly NewRow[],
  ifKeyTaken: IfKeyTaken = "error",
): Promise<string[]> {
  const conflictClause = await readConflictClause(client, table, ifKeyTaken);
  if (ifKeyTaken !== "join") return await insertRows(client, table, rows, conflictClause);
  // Each key only once, because a statement cannot update a row that it has inserted.
  const firsts = firstsOfKeys(rows);
  const inserted = [...new Set(firsts)];
  const ids = await insertRows(client, table, inserted, conflictClause);
  const idOf = new Map(inserted.map((row, index) => [row, ids[index] ?? ""]));
  return firsts.map((row) => idOf.get(row) ?? "");
}

function firstsOfKeys(rows: readonly NewRow[]): NewRow[] {
  const firsts = new Map<string, NewRow>();
  return rows.map((row) => {
    const key = row.columns.get("key") ?? null;
    if (key === null) return row;
    const first = firsts.get(key) ?? row;
    firsts.set(key, first);
    return first;
  });
}

async function insertRows(
  client: Queryable,
  table: TaskTable,
  rows: readonly NewRow[],
  conflictClause: string,
): Promise<string[]> {
  const ids: string[] = [];
  for (const batch of batchesOf(rows)) {
    const values: (string | null)[] = [];
    const names = columnNames(batch);
    const lines = batch.map((row) => `(${names.map((name) => valueSql(table, row, name, values)).join(", ")})`);
    const result = await client.query<{ id: string }>(
      `INSERT INTO ${table.qualified} (${names.map(identifier).join(", ")}) VALUES ${lines.join(", ")}
       ${conflictClause} RETURNING id::pg_catalog.text AS id`,
      values,
    );
    ids.push(...result.rows.map(({ id }) => id));
  }
  return ids;
}

export const needsSeveralStatements = (rows: readonly NewRow[]): boolean => batchesOf(rows).length > 1;

function batchesOf(rows: readonly NewRow[]): (readonly NewRow[])[] {
  const size = Math.floor(maxParameters / Math.max(1, columnNames(rows).length));
  const batches: (readonly NewRow[])[] = [];
  for (let from = 0; from < rows.length; from += size) batches.push(rows.slice(from, from + size));
  return batches;
}

function columnNames(rows: readonly NewRow[]): string[] {
  const names = new Set(rows.flatMap(({ columns, copied }) => [...columns.keys(), ...(copied?.columns ?? [])]));
  if (rows.some(({ delay }) => delay !== undefined)) names.add("plan");
  return [...names];
}

const givesValue = ({ columns, delay, copied }: NewRow, name: string): boolean =>
  columns.has(name) || copied?.columns.includes(name) === true || (name === "plan" && delay !== undefined);

function valueSql(
  { qualified }: TaskTable,
  { columns, delay, copied }: NewRow,
  name: string,
  values: (string | null)[],
): string {
  const value = columns.get(name);
  if (value !== undefined) return `$${values.push(value)}`;
  if (copied?.columns.includes(name) === true) {
    return `(SELECT t.${identifier(name)} FROM ${qualified} AS t WHERE t.id OPERATOR(pg_catalog.=) $${values.push(copied.id)}::bigint)`;
  }
  if (name === "plan" && delay !== undefined)
    return `pg_catalog.statement_timestamp() OPERATOR(pg_catalog.+) $${values.push(delay)}::interval`;
  return "DEFAULT";
}

const singleCharacterColumns: ReadonlySet<string> = new Set(columnsWith({ type: '"char"' }));

/** A column of one character that is given more than one byte: the server would silently keep only the first. */
export function findLongCharacter(
  columns: Iterable<readonly [name: string, value: string | null]>,
): string | undefined {
  for (const [name, value] of columns) {
    if (singleCharacterColumns.has(name) && Buffer.byteLength(value ?? "") > 1) return name;
  }
  return undefined;
}

/** TASK_KEY_TAKEN if another task with this key waits, TASK_REJECTED for refused values, else the error itself. */
export const toAddError = (error: unknown, table: TaskTable, rows: readonly NewRow[]): unknown =>
  convertAddError(error, table, rows, "");

/** The same as `toAddError`, with the name of the property whose value is refused, if this is known. */
export const toNamedAddError = (
  error: unknown,
  table: TaskTable,
  rows: readonly NewRow[],
  refused = findRefusedRow(error, rows),
): unknown => convertAddError(error, table, rows, refusedProperty(error, rows), refused);

/** @param property which property of the task is refused, as text in front of the reason */
function convertAddError(
  error: unknown,
  table: TaskTable,
  rows: readonly NewRow[],
  property: string,
  refused = findRefusedRow(error, rows),
): unknown {
  const state = sqlState(error);
  if (state === null || fullQueueHint(error) !== "") return error;
  const options = { cause: error, sqlState: state };
  const broken = findBrokenChecks(error, rows).map(
    ({ column, value, demand }) => `${column} ${demand}, got ${JSON.stringify(value)}: `,
  );
  const reason = nullReason(error, rows) ?? errorMessage(error);
  const which = refused !== null ? `tasks[${refused}]` : rows.length > 1 ? "one of the tasks" : "the task";
  const hint = state === undefinedColumn && !concernsOwnColumn(error, rows) ? `: ${missingColumnHint}` : "";
  const message = `${table.qualified} rejects ${which}: ${property}${broken.join("")}${reason} (SQLSTATE ${state})${hint}`;
  if (state === uniqueViolation && isServerError(error) && error.constraint === table.keyIndex) {
    return new PgTaskError("TASK_KEY_TAKEN", message, options);
  }
  return isRefusal(state) ? new PgTaskError("TASK_REJECTED", message, options) : error;
}

/**
 * These SQLSTATEs mean a data exception, a constraint violation, an option that the table lacks, a value that is too
 * large or too deeply nested, an undefined column, or a value of a wrong type.
 */
const isRefusal = (state: string): boolean =>
  /^(?:22|23|0A|54)/.test(state) || state === undefinedColumn || state === "42804";

/** The SQLSTATE of an error that may be due to one of the tasks; else null. */
export function refusalState(error: unknown): string | null {
  const state = sqlState(error);
  return state !== null && isRefusal(state) && fullQueueHint(error) === "" ? state : null;
}

function nullReason(error: unknown, rows: readonly NewRow[]): string | null {
  if (!isServerError(error) || error.code !== notNullViolation) return null;
  const column = isGroupNull(error) ? "group" : error.column;
  const isGiven = column !== undefined && rows.some(({ columns }) => columns.get(column) === null);
  return isGiven ? `${column} must not be null: leave it out for its default` : null;
}

/** Whether an error names a column that was given as one of the user's own, which may be misspelt. */
const concernsOwnColumn = (error: unknown, rows: readonly NewRow[]): boolean =>
  rows.some(({ columns, taskColumns = [] }) =>
    [...columns.keys()].some(
      (name) => name !== "input" && !taskColumns.includes(name) && errorMessage(error).includes(`"${name}"`),
    ),
  );

/** The server names the parameter with the invalid value, the check that is broken, or the key that is taken. */
export function findRefusedRow(error: unknown, rows: readonly NewRow[]): number | null {
  if (!isServerError(error) || rows.length < 2) return null;
  if (namesParameter(error)) return findInvalidPlace(error, rows)?.row ?? null;
  const isRefused = (row: NewRow): boolean => {
    const key = row.columns.get("key") ?? null;
    return (key !== null && isTaken(error, key)) || findBrokenChecks(error, [row]).length > 0;
  };
  const found = [...rows.keys()].filter((n) => rows.slice(n, n + 1).some(isRefused));
  return found.length === 1 ? (found[0] ?? null) : null;
}

const isTaken = (error: unknown, key: string): boolean =>
  isServerError(error) &&
  error.code === uniqueViolation &&
  (error.detail?.includes(`(key)=(${key})`) === true ||
    (error.detail?.includes("(role, key)=(") === true && error.detail.includes(`, ${key}) `)));

/** Null if the server does not say which one of several it is. */
export function findTakenKey(error: unknown, rows: readonly NewRow[]): string | null {
  const keys = new Set(rows.flatMap(({ columns }) => columns.get("key") ?? []));
  // A role that may not read the key is not told which one it is.
  const taken = keys.size === 1 ? [...keys] : [...keys].filter((key) => isTaken(error, key));
  return taken.length === 1 ? (taken[0] ?? null) : null;
}

/**
 * The last line of the context names a parameter whose value is invalid. That of an error in a function has its name,
 * or a statement in quotes.
 */
const portalParameter = /(?:^|\n)[^\n"]*\$(\d+)(?: = '[^\n]*)?$/;

const namesParameter = ({ where = "" }: { readonly where?: string | undefined }): boolean =>
  portalParameter.test(where);

/** Null also if there are several statements, or if a row may have been left out because of its key. */
function findInvalidPlace(error: unknown, rows: readonly NewRow[]): { row: number; column: string } | null {
  const parameter = isServerError(error) ? portalParameter.exec(error.where ?? "")?.[1] : undefined;
  if (parameter === undefined || needsSeveralStatements(rows) || new Set(firstsOfKeys(rows)).size < rows.length)
    return null;
  const names = columnNames(rows);
  const places = rows.flatMap((each, row) =>
    names.filter((name) => givesValue(each, name)).map((column) => ({ row, column })),
  );
  return places[Number(parameter) - 1] ?? null;
}

/**
 * Names the property whose value is invalid, such as `timeout: `, or the intervals of a single task if one of them is.
 */
function refusedProperty(error: unknown, rows: readonly NewRow[]): string {
  if (!isServerError(error)) return "";
  if (namesParameter(error)) {
    const place = findInvalidPlace(error, rows);
    if (place === null) return "";
    const isDelay = place.column === "plan" && rows[place.row]?.delay !== undefined;
    return `${isDelay ? "delay" : place.column}: `;
  }
  const [row, ...others] = rows;
  if (row === undefined || others.length > 0 || !isInvalidTime(error.code)) return "";
  const given = intervals.filter((name) => (name === "delay" ? row.delay : row.columns.get(name)) !== undefined);
  return given.length === 0 ? "" : `${given.join(" or ")}: `;
}

const isInvalidTime = (code: string | undefined): boolean => code === "22007" || code === "22008" || code === "22015";

/** The server names the column `hash` instead, which is generated from the group. */
const isGroupNull = (error: unknown): boolean =>
  isServerError(error) && error.code === notNullViolation && error.column === "hash";

export function findRefusedColumn(error: unknown, row: NewRow): string | null {
  if (!isServerError(error)) return null;
  if (error.column !== undefined) return isGroupNull(error) ? "group" : error.column;
  // The context names the parameter, in the words of the server's language. Each column has one parameter.
  const place = /\$(\d+)/.exec(error.where ?? "")?.[1];
  return (place === undefined ? undefined : columnNames([row])[Number(place) - 1]) ?? null;
}

export function findInvalidParameter(error: unknown, row: NewRow): string | null {
  return findInvalidPlace(error, [row])?.column ?? null;
}

const outcomeColumns = ["id", "state", "owner", "output", "error"];

/** For the privileges that the current user lacks to set these columns and, with `wait`, to read the outcome. */
export async function readMissingGrants(
  client: Queryable,
  { qualified }: TaskTable,
  columns: readonly string[],
  wait: boolean,
): Promise<string[]> {
  const { insert, select, sequence, grantee } = await queryOne<{
    insert: string[];
    select: string[];
    sequence: string | null;
    grantee: string;
  }>(
    client,
    `WITH lacking AS (
       SELECT a.attname AS name, w.what FROM (
         SELECT pg_catalog.unnest($2::pg_catalog.text[]), 'INSERT' UNION ALL SELECT pg_catalog.unnest($3::pg_catalog.text[]), 'SELECT') AS w(name, what)
       JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) $1::pg_catalog.text::pg_catalog.regclass AND a.attname OPERATOR(pg_catalog.=) w.name
       WHERE NOT pg_catalog.has_column_privilege($1::pg_catalog.text::pg_catalog.regclass, a.attnum, w.what))
     SELECT ARRAY(SELECT pg_catalog.quote_ident(name) FROM lacking WHERE what OPERATOR(pg_catalog.=) 'INSERT') AS insert,
       ARRAY(SELECT pg_catalog.quote_ident(name) FROM lacking WHERE what OPERATOR(pg_catalog.=) 'SELECT') AS select,
       (SELECT s FROM pg_catalog.pg_get_serial_sequence($1::pg_catalog.text, 'id') AS s
         WHERE NOT pg_catalog.has_sequence_privilege(s, 'USAGE')) AS sequence,
       pg_catalog.quote_ident(current_user) AS grantee`,
    [qualified, columns, wait ? outcomeColumns : ["id"]],
  );
  const privileges = [
    ...(insert.length === 0 ? [] : [`INSERT (${insert.join(", ")})`]),
    ...(select.length === 0 ? [] : [`SELECT (${select.join(", ")})`]),
  ];
  return [
    ...(privileges.length === 0 ? [] : [`GRANT ${privileges.join(", ")} ON ${qualified} TO ${grantee}`]),
    ...(sequence === null ? [] : [`GRANT USAGE ON SEQUENCE ${sequence} TO ${grantee}`]),
  ];
}
