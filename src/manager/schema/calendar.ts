import { readFileSync } from "node:fs";
import type { Entry } from "../../shared/config/types.js";
import { PgTaskError } from "../../shared/errors.js";
import { packageFile } from "../../shared/packageFile.js";
import type { Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { render } from "./migrations.js";
import type { TaskTable } from "./taskTable.js";
import { isTrustedOwner } from "./trustedOwner.sql.js";

/** The compiler does not copy .sql files, so they are read from src. */
const folder = packageFile("src/manager/schema/calendar/");

const files = ["zone.sql", "cron.sql", "recurrence.sql", "schedule.sql"] as const;

export const calendarText = files.map((file) => readFileSync(new URL(file, folder), "utf8")).join("\n");

/** To be increased with every change. An older pg-task does not replace the functions of a newer one. */
const calendarVersion = 5;

const ownComment = "pg-task calendar ";

const signatures: readonly string[] = [
  ...calendarText.matchAll(/^CREATE OR REPLACE FUNCTION :"schema"\.(\w+)\(([^]*?)\)\s+(?:RETURNS|LANGUAGE)/gm),
].map(([, name = "", parameters = ""]) => `${name}(${inputTypes(parameters).join(", ")})`);

export const calendarNames: readonly string[] = [
  ...new Set(signatures.map((signature) => signature.slice(0, signature.indexOf("(")))),
];

function inputTypes(parameters: string): string[] {
  return parameters
    .split(",")
    .map((parameter) => parameter.trim())
    .filter((parameter) => !parameter.startsWith("OUT "))
    .map((parameter) =>
      parameter
        .replace(/^INOUT /, "")
        .replace(/ DEFAULT .*$/, "")
        .replace(/^\w+ /, ""),
    );
}

interface ExistingFunction {
  readonly signature: string;
  readonly exists: boolean;
  readonly comment: string | null;
  readonly owner: string;
  readonly trusted: boolean;
  /** Whether it calls the functions by a former name of the schema. */
  readonly renamed: boolean;
}

/**
 * Creates or replaces the functions that compute the times of schedules, which all tables of a schema share.
 *
 * @throws PgTaskError SCHEMA_MISSING if functions are missing and the entry says `"create": false`.
 * @throws PgTaskError SCHEMA_INCOMPATIBLE if another function has the name and parameters of one of them, or if they
 *   belong to a role that the manager does not trust. The manager and all producers run the functions as themselves.
 */
export async function ensureCalendar(client: Client, table: TaskTable, { create }: Entry): Promise<void> {
  const { schema } = table;
  const functions = await readFunctions(client, table);
  const existing = functions.filter(({ exists }) => exists);
  const foreign = existing.find(({ comment }) => comment?.startsWith(ownComment) !== true);
  if (foreign !== undefined) {
    throw new PgTaskError(
      "SCHEMA_INCOMPATIBLE",
      `the function ${identifier(schema)}.${foreign.signature} exists and was not created by pg-task: rename it, or give another "schema"`,
    );
  }
  const untrusted = existing.find(({ trusted }) => !trusted);
  if (untrusted !== undefined) {
    const owner = identifier(untrusted.owner);
    throw new PgTaskError(
      "SCHEMA_INCOMPATIBLE",
      `the function ${identifier(schema)}.${untrusted.signature} belongs to role ${owner}, which could replace it by any other: grant role ${owner} to the entry's user, or give the function to the owner of the schema`,
    );
  }
  const missing = functions.filter(({ exists }) => !exists).map(({ signature }) => signature);
  const versions = existing.map(({ comment }) => Number(comment?.slice(ownComment.length)));
  const isRenamed = existing.some(({ renamed }) => renamed);
  if (missing.length === 0 && Math.min(...versions) >= calendarVersion && !isRenamed) return;
  if (!create && missing.length > 0) {
    throw new PgTaskError(
      "SCHEMA_MISSING",
      `schema ${identifier(schema)} lacks the functions of schedules (${missing.join(", ")}), and its entry says "create": false`,
    );
  }
  await createCalendar(client, table);
}

async function readFunctions(client: Client, { schema, qualified }: TaskTable): Promise<ExistingFunction[]> {
  const { rows } = await client.query<ExistingFunction>(
    `SELECT s.signature, p.oid IS NOT NULL AS exists, pg_catalog.obj_description(p.oid, 'pg_proc') AS comment,
       pg_catalog.pg_get_userbyid(p.proowner) AS owner, ${isTrustedOwner("p.proowner", "$3")} AS trusted,
       coalesce(p.proname = 'task_next' AND pg_catalog.strpos(p.prosrc, $1 || '.') = 0, false) AS renamed
     FROM unnest($2::text[]) AS s(signature)
     LEFT JOIN pg_catalog.pg_proc AS p ON p.oid = pg_catalog.to_regprocedure($1 || '.' || s.signature)`,
    [identifier(schema), signatures, qualified],
  );
  return rows;
}

export async function createCalendar(client: Client, table: TaskTable): Promise<void> {
  await client.query(render(calendarText, table));
  // Every role that inserts tasks calls the functions, and default privileges may have revoked EXECUTE from PUBLIC.
  const statements = signatures.map((signature) => {
    const name = `${identifier(table.schema)}.${signature}`;
    return `COMMENT ON FUNCTION ${name} IS '${ownComment}${calendarVersion}'; GRANT EXECUTE ON FUNCTION ${name} TO PUBLIC`;
  });
  await client.query(statements.join("; "));
}
