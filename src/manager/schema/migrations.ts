import { readFileSync } from "node:fs";
import type { Client, Queryable } from "../../shared/postgres/client.js";
import { packageFile } from "../../shared/packageFile.js";
import { lockClasses } from "../../shared/postgres/advisoryLocks.js";
import { identifier, literal } from "../../shared/postgres/quoting.js";
import { columnList } from "../../shared/taskColumns.js";
import { addMissingColumns, columnComments, columnDefinitions, columnsSince, type TableRecord } from "./columns.js";
import type { TaskTable } from "./taskTable.js";

/** Describes a table and what belongs to it. The compiler does not copy .sql files, so it is read from src. */
const text = readFileSync(packageFile("src/manager/schema/migration.sql"), "utf8");

/** Its statements, with their placeholders. Adoption takes triggers and indexes from them. */
export const statements: readonly string[] = split(text);

/**
 * Each change of `migration.sql` and each new column has the next version. So has users.sql (8): an earlier pg-task, which
 * would run the tasks of all users as the owner, refuses the table.
 */
export const latestVersion = Math.max(10, ...columnList.map(({ since }) => since));

/** The comment of every function that pg-task created begins with this text. */
export const ownComment = "pg-task ";
/** Records the version. Unreleased versions wrote `migration` instead of `version`; their tables are adopted. */
const versionComment = `${ownComment}version `;
/** Unreleased versions listed here the user's columns with names of pg-task's. Such tables lack those of version 2. */
const formerColumnsComment = `${ownComment}wake-up, own columns: `;

/** Splits SQL into its statements. A semicolon inside a function body or a string does not end one. */
function split(sql: string): string[] {
  const found = sql
    .replaceAll(/^--.*\n/gm, "")
    .matchAll(/((?:\$function\$[^]*?\$function\$|'(?:[^']|'')*'|[^;'$])+);/g);
  return [...found].map(([, statement = ""]) => statement.trim());
}

export const noRecord: TableRecord = { version: 0, formerColumns: [] };

/** The record is in comments of functions, so that users are free to change the comments of the table. */
export async function readRecord(client: Queryable, table: TaskTable): Promise<TableRecord> {
  const { rows } = await client.query<{ name: string; comment: string | null }>(
    // Not obj_description: up to PostgreSQL 13, its body is SQL that uses the operators of the search_path.
    `SELECT p.proname AS name, d.description AS comment
     FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace
     LEFT JOIN pg_catalog.pg_description AS d ON d.objoid OPERATOR(pg_catalog.=) p.oid
       AND d.classoid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass
     WHERE n.nspname OPERATOR(pg_catalog.=) $1 AND p.pronargs OPERATOR(pg_catalog.=) 0
       AND p.proname OPERATOR(pg_catalog.=) ANY (ARRAY[$2, $3]::pg_catalog.name[])`,
    [table.schema, table.readyFunction, table.wakeUp],
  );
  const commentOf = (name: string): string => rows.find((row) => row.name === name)?.comment ?? "";
  const version = commentOf(table.readyFunction);
  if (!version.startsWith(versionComment)) return noRecord;
  const own = commentOf(table.wakeUp);
  const applied = Number(version.slice(versionComment.length));
  if (!own.startsWith(formerColumnsComment)) return { version: applied, formerColumns: [] };
  return { version: Math.min(applied, 1), formerColumns: own.slice(formerColumnsComment.length).split(" ") };
}

export async function appliedVersion(client: Client, table: TaskTable): Promise<number> {
  return (await readRecord(client, table)).version;
}

/** Records the version; null means that the table is still being adopted. */
export async function recordVersion(
  client: Client,
  { schema, readyFunction }: TaskTable,
  version: number | null,
): Promise<void> {
  const comment = version === null ? `${ownComment}adopting` : `${versionComment}${version}`;
  await client.query(`COMMENT ON FUNCTION ${identifier(schema)}.${identifier(readyFunction)}() IS '${comment}'`);
}

/** Creates a table, if the version is 0, or brings it to the latest version, in the caller's transaction. */
export async function applyMigration(client: Client, table: TaskTable, version: number): Promise<void> {
  if (version === 0) await client.query(render(text, table));
  else {
    await addMissingColumns(client, table, version);
    await createObjectsBeside(client, table);
  }
  // Users may have commented on the columns that an adopted table had.
  const added = version === 0 ? columnList : columnsSince(version);
  await client.query(columnComments(table, added));
  await recordVersion(client, table, latestVersion);
}

/** The statements that do not apply to a table that exists. Adoption runs some of them in another form. */
const aboutTable =
  /^(?:CREATE TABLE|COMMENT ON (?:TABLE|COLUMN)|CREATE (?:INDEX|TRIGGER) [^]*? ON) :"schema"\.:"table"/;

/** TRUNCATE cannot be run again, because the ledgers of an existing table may hold proofs. */
const isRepeatable = (statement: string): boolean => !statement.startsWith("TRUNCATE");

/** Creates or replaces the functions, tables and views of a table that exists, in the caller's transaction. */
export async function createObjectsBeside(client: Client, table: TaskTable): Promise<void> {
  const repeated = statements.filter((statement) => !aboutTable.test(statement) && isRepeatable(statement));
  await client.query(render(repeated.join(";\n"), table));
}

/** Returns the names of dropped objects without which no task can run: functions and side tables. */
export async function missingObjects(client: Client, table: TaskTable): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT f.name FROM unnest($2::text[], $3::bigint[]) AS f(name, count)
     WHERE f.count > (SELECT count(*) FROM pg_catalog.pg_proc AS p
       JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
       WHERE n.nspname = $1 AND p.proname = f.name)
     UNION ALL SELECT r.name FROM unnest($4::text[]) AS r(name)
     WHERE pg_catalog.to_regclass(pg_catalog.concat(pg_catalog.quote_ident($1), '.', pg_catalog.quote_ident(r.name))) IS NULL`,
    [
      table.schema,
      [
        table.finish,
        table.reset,
        table.planned,
        table.homeChanged,
        table.countFailure,
        table.suspended,
        table.webhookFunction,
      ],
      [1, 2, 1, 1, 1, 1, 1],
      [
        table.ledger1,
        table.ledger2,
        table.pauseTable,
        table.homeTable,
        table.dependencyTable,
        table.owedTable,
        table.failureTable,
        table.webhookTable,
        table.outboxTable,
        table.turnTable,
      ],
    ],
  );
  return rows.map(({ name }) => name);
}

/** Locks neither the task table nor the rows of a ledger that still exists, because tasks are running. */
export async function recreateObjects(client: Client, table: TaskTable, missing: readonly string[]): Promise<void> {
  const placeholders = Object.entries(table).flatMap(([key, name]) => (missing.includes(name) ? [`:"${key}"`] : []));
  const recreating = statements
    .filter((statement) => placeholders.some((each) => statement.includes(each)))
    .filter(isRepeatable);
  for (const statement of recreating) await client.query(render(statement, table));
}

/** Whether functions name a former place of their table, because it was renamed, or moved together with them. */
export async function nameAnotherPlace(client: Client, table: TaskTable): Promise<boolean> {
  const { rows } = await client.query<{ stale: boolean }>(
    `SELECT EXISTS (SELECT FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
       WHERE n.nspname = $1 AND p.proname = ANY ($2::text[]) AND pg_catalog.strpos(p.prosrc, $3) = 0
         AND pg_catalog.starts_with(pg_catalog.obj_description(p.oid, 'pg_proc'), $4)) AS stale`,
    [table.schema, [table.finish, table.statsRows, table.errorsRows, table.groupsRows], table.qualified, ownComment],
  );
  return rows[0]?.stale === true;
}

export const describeOtherPlace = ({ qualified }: TaskTable): string =>
  `functions of ${qualified} name another place, because the table or its schema was renamed or moved`;

export async function replaceFunctions(client: Client, table: TaskTable): Promise<void> {
  const replacing = statements.filter((statement) => statement.startsWith("CREATE OR REPLACE FUNCTION"));
  for (const statement of replacing) await client.query(render(statement, table));
}

/**
 * Replaces the placeholders as psql does: `:"name"` becomes an identifier, and `:'name'` a string. A name is a key of
 * TaskTable or an advisory lock class. `:columns` are those of a new table.
 */
export function render(given: string, table: TaskTable): string {
  const names = new Map<string, string>(Object.entries(table));
  names.set("busyClass", String(lockClasses.busy));
  names.set("permitClass", String(lockClasses.permit));
  return given
    .replaceAll("$function$", () => bodyQuote(table))
    .replace(":columns", () => columnDefinitions(table))
    .replaceAll(/:(["'])(\w+)\1/g, (_, quote: string, name: string) => {
      const value = names.get(name);
      if (value === undefined) throw new Error(`unknown name in a migration: ${name}`);
      return quote === '"' ? identifier(value) : literal(value);
    });
}

/** A dollar quote that occurs in none of the names that function bodies mention. */
function bodyQuote({ schema, table }: TaskTable): string {
  let tag = "function";
  while (`${schema} ${table}`.includes(`$${tag}$`)) tag += "_";
  return `$${tag}$`;
}
