import { readdirSync, readFileSync } from "node:fs";
import type { Client } from "../../shared/postgres/client.js";
import { lockClasses } from "../../shared/postgres/advisoryLocks.js";
import { identifier, literal } from "../../shared/postgres/quoting.js";
import type { TaskTable } from "./taskTable.js";

/** The .sql files stay beside their source: the compiler does not copy them. */
const folder = new URL("../../../../src/manager/schema/migrations/", import.meta.url);

const migrations = readdirSync(folder)
  .filter((file) => /^\d{4}_\w+\.sql$/.test(file))
  .toSorted()
  .map((file) => ({
    version: Number(file.slice(0, 4)),
    text: readFileSync(new URL(file, folder), "utf8"),
  }));

/** Version of a table that every migration has been applied to. */
export const latestVersion = migrations.at(-1)?.version ?? 0;

/** Begins the comment of every function that is pg-task's own. */
const ownComment = "pg-task ";
const versionComment = `${ownComment}migration `;

/** The text of one migration. */
export function migrationText(version: number): string {
  return migrations.find((each) => each.version === version)?.text ?? "";
}

/** Statements of the first migration, with places for the names; those after it build on its result. */
export const firstMigration: readonly string[] = (migrations[0]?.text ?? "")
  .replaceAll(/^--.*\n/gm, "")
  .split(/;\n(?=\n|COMMENT |CREATE |$)/)
  .map((statement) => statement.trim())
  .filter((statement) => statement !== "");

/**
 * The last migration applied to the table, 0 when none was. It stands in the comment of a function
 * that is pg-task's own, so that the table's comments are the user's to change.
 */
export async function appliedVersion(client: Client, table: TaskTable): Promise<number> {
  const { rows } = await client.query<{ comment: string | null }>(
    `SELECT pg_catalog.obj_description(p.oid, 'pg_proc') AS comment
     FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
     WHERE n.nspname = $1 AND p.proname = $2 AND p.pronargs = 0`,
    [table.schema, table.readyFunction],
  );
  const comment = rows[0]?.comment ?? "";
  return comment.startsWith(versionComment) ? Number(comment.slice(versionComment.length)) : 0;
}

/**
 * Functions with the names of pg-task's own that somebody else made, and that are not to be lost.
 * The extension's wake-up is none of these: it has the same purpose, and the extension makes it anew
 * at its start.
 */
export async function foreignFunctions(client: Client, table: TaskTable): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT p.oid::pg_catalog.regprocedure::text AS name
     FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
     WHERE n.nspname = $1
       AND (p.proname = ANY ($2::text[]) AND p.pronargs = 0
         OR p.oid = ANY (SELECT pg_catalog.to_regprocedure(signature) FROM unnest($5::text[]) AS signature))
       AND NOT starts_with(COALESCE(pg_catalog.obj_description(p.oid, 'pg_proc'), ''), $3)
       AND NOT (p.proname = $4 AND p.prorettype = 'trigger'::pg_catalog.regtype
         AND p.prosrc LIKE '%pg_cancel_backend%' AND p.prosrc LIKE '%pg_locks%')`,
    [
      table.schema,
      [
        table.readyFunction,
        table.wakeUp,
        table.fill,
        table.reset,
        table.statsRows,
        table.errorsRows,
        table.groupsRows,
      ],
      ownComment,
      table.wakeUp,
      [
        `${table.qualifiedFinish}(bigint, bigint, text, integer)`,
        `${table.qualifiedReset}(bigint)`,
        `${table.qualifiedReset}(bigint, text, text)`,
        `${table.qualifiedReset}(text, text, text)`,
        `${table.qualifiedReset}(text, text, text, integer, integer)`,
        `${table.qualifiedPlanned}(text)`,
      ],
    ],
  );
  return rows.map((row) => row.name);
}

/** Applies, inside the caller's transaction, what comes after `version`. */
export async function applyMigrations(
  client: Client,
  table: TaskTable,
  version: number,
): Promise<void> {
  for (const migration of migrations.filter((each) => each.version > version)) {
    await client.query(render(migration.text, table));
  }
  await record(client, table, `${versionComment}${latestVersion}`);
}

/** What of the later migrations somebody has dropped since, and runs cannot do without. */
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
      [table.finish, table.reset],
      [1, 2],
      [table.ledger1, table.ledger2, table.pauseTable],
    ],
  );
  return rows.map(({ name }) => name);
}

/**
 * Makes these again, inside the caller's transaction, by the statements of all migrations that are about
 * them: those stand being applied to what is there. What a ledger has stays, and the task table is not
 * locked, since runs are under way.
 */
export async function remakeObjects(
  client: Client,
  table: TaskTable,
  missing: readonly string[],
): Promise<void> {
  const places = Object.entries(table).flatMap(([place, name]) =>
    missing.includes(name) ? [`:"${place}"`] : [],
  );
  const about = migrations
    .flatMap(({ text }) => text.replaceAll(/^--.*\n/gm, "").match(oneStatement) ?? [])
    .filter((statement) => places.some((place) => statement.includes(place)))
    .filter((statement) => !statement.trimStart().startsWith("TRUNCATE"));
  for (const statement of about) await client.query(render(statement, table));
}

/** A semicolon within a body or a string ends none. */
const oneStatement = /(?:\$function\$[^]*?\$function\$|'(?:[^']|'')*'|[^;'$])+;/g;

/** Records that adoption has begun, which is version 0 still, or that it is done, which is version 1. */
export async function recordAdoption(
  client: Client,
  table: TaskTable,
  done: boolean,
): Promise<void> {
  await record(client, table, done ? `${versionComment}1` : `${ownComment}adopting`);
}

async function record(client: Client, table: TaskTable, comment: string): Promise<void> {
  await client.query(
    `COMMENT ON FUNCTION ${identifier(table.schema)}.${identifier(table.readyFunction)}()
     IS '${comment}'`,
  );
}

/**
 * Puts the table's names, and the classes of the locks `busy` and `permit`, where a migration says `:"name"` or, as a
 * string, `:'name'`, as psql would.
 */
export function render(text: string, table: TaskTable): string {
  const names = new Map<string, string>(Object.entries(table));
  names.set("busyClass", String(lockClasses.busy));
  names.set("permitClass", String(lockClasses.permit));
  return text
    .replaceAll("$function$", () => bodyQuote(table))
    .replaceAll(/:(["'])(\w+)\1/g, (_, quote: string, name: string) => {
      const value = names.get(name);
      if (value === undefined) throw new Error(`a migration asks for an unknown name: ${name}`);
      return quote === '"' ? identifier(value) : literal(value);
    });
}

/** A dollar quote that is in none of the names, which function bodies mention. */
function bodyQuote({ schema, table }: TaskTable): string {
  let tag = "function";
  while (`${schema} ${table}`.includes(`$${tag}$`)) tag += "_";
  return `$${tag}$`;
}
