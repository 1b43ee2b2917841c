import type { Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { relationsToRead } from "./grants.js";
import type { TaskTable } from "./taskTable.js";

export function ownerRemedy(
  qualified: string,
  user: string,
  { owner, isOwnerSuperuser }: { readonly owner: string; readonly isOwnerSuperuser: boolean },
): string {
  const takeOver = `ALTER TABLE ${qualified} OWNER TO ${identifier(user)}`;
  // Membership in a superuser would allow the tasks everything.
  return isOwnerSuperuser ? takeOver : `GRANT ${identifier(owner)} TO ${identifier(user)}, or ${takeOver}`;
}

/** The GRANT statements that the current role needs for the commands that only read. Null if it lacks nothing. */
export async function readGrantToRead(client: Client, table: TaskTable): Promise<string | null> {
  const { rows } = await client.query<{ user: string; schema: boolean; lacking: string[] }>(
    `SELECT current_user::text AS "user", pg_catalog.has_schema_privilege(n.oid, 'USAGE') AS schema,
       ARRAY(SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) FROM pg_catalog.unnest($2::text[]) WITH ORDINALITY AS r(name, place)
         JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = r.name
         WHERE NOT pg_catalog.has_table_privilege(c.oid, 'SELECT') ORDER BY r.place) AS lacking
     FROM pg_catalog.pg_namespace AS n WHERE n.nspname = $1`,
    [table.schema, relationsToRead(table)],
  );
  const [{ user, schema, lacking } = { user: "", schema: true, lacking: [] }] = rows;
  const granted = [
    ...(schema ? [] : [`USAGE ON SCHEMA ${identifier(table.schema)}`]),
    ...(lacking.length === 0 ? [] : [`SELECT ON ${lacking.join(", ")}`]),
  ];
  return granted.length === 0 ? null : granted.map((each) => `GRANT ${each} TO ${identifier(user)}`).join("; ");
}

/** The GRANT that the current role needs to pause and resume groups. Null if it lacks nothing. */
export async function readGrantToPause(client: Client, { pauses }: TaskTable): Promise<string | null> {
  const { rows } = await client.query<{ user: string; lacking: string[] }>(
    `SELECT current_user::text AS "user", ARRAY(SELECT p FROM pg_catalog.unnest(ARRAY['SELECT', 'INSERT', 'DELETE']) AS p
       WHERE NOT pg_catalog.has_table_privilege($1, p)) AS lacking`,
    [pauses],
  );
  const [{ user, lacking } = { user: "", lacking: [] }] = rows;
  return lacking.length === 0 ? null : `GRANT ${lacking.join(", ")} ON ${pauses} TO ${identifier(user)}`;
}

/** The current role, and the privilege that it lacks to create the table, as in GRANT. */
export async function readLackingToCreate(
  client: Client,
  { schema }: Pick<TaskTable, "schema">,
): Promise<{ readonly user: string; readonly lacking: string | null }> {
  const { rows } = await client.query<{ lacking: string | null; user: string }>(
    `SELECT current_user::text AS "user", CASE
       WHEN n.oid IS NULL AND NOT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')
         THEN pg_catalog.format('CREATE ON DATABASE %I', pg_catalog.current_database())
       WHEN n.oid IS NOT NULL AND NOT pg_catalog.has_schema_privilege(n.oid, 'CREATE') THEN pg_catalog.format(
         CASE WHEN pg_catalog.has_schema_privilege(n.oid, 'USAGE') THEN 'CREATE' ELSE 'USAGE, CREATE' END || ' ON SCHEMA %I', n.nspname)
       END AS lacking
     FROM (SELECT $1::text AS name) AS s LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = s.name`,
    [schema],
  );
  return rows[0] ?? { user: "", lacking: null };
}

/** What lets the current role create or serve the table. Null if it owns it, or may create it. */
export async function readPrivilegeRemedy(
  client: Client,
  table: Pick<TaskTable, "qualified" | "schema" | "table">,
): Promise<string | null> {
  const { rows } = await client.query<{ owns: boolean; owner: string; isOwnerSuperuser: boolean; user: string }>(
    `SELECT pg_catalog.pg_has_role(c.relowner, 'USAGE') AS owns, current_user::text AS "user",
       o.rolname::text AS owner, o.rolsuper AS "isOwnerSuperuser"
     FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
     JOIN pg_catalog.pg_roles AS o ON o.oid = c.relowner WHERE n.nspname = $1 AND c.relname = $2`,
    [table.schema, table.table],
  );
  const [row] = rows;
  if (row !== undefined) return row.owns ? null : ownerRemedy(table.qualified, row.user, row);
  return await readGrantToCreate(client, table);
}

async function readGrantToCreate(client: Client, table: Pick<TaskTable, "schema">): Promise<string | null> {
  const { user, lacking } = await readLackingToCreate(client, table);
  return lacking === null ? null : `GRANT ${lacking} TO ${identifier(user)}`;
}

/** Also for objects beside the table: its owner may lack CREATE, as on `public` from PostgreSQL 15 on. */
export async function readChangeRemedy(
  client: Client,
  table: Pick<TaskTable, "qualified" | "schema" | "table">,
): Promise<string | null> {
  return (await readPrivilegeRemedy(client, table)) ?? (await readGrantToCreate(client, table));
}
