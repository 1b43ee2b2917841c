import type { Entry } from "../shared/config/types.js";
import type { ConnectionTarget } from "../shared/postgres/target/target.js";
import type { Client } from "../shared/postgres/client.js";
import { PgTaskError } from "../shared/errors.js";
import { whyReserved } from "../shared/postgres/connectionErrors.js";
import { identifier } from "../shared/postgres/quoting.js";

/** Whether the role that an entry connects as exists, and whether the database that it connects to exists. */
export interface RoleAndDatabase {
  readonly role: boolean;
  /** Whether pg-task has created the role, and may therefore set its password. */
  readonly isOwnRole: boolean;
  readonly database: boolean;
}

/** Comment of each role that pg-task creates. It marks the role: without it, pg-task does not touch the password. */
export const ownRoleComment = "pg-task role: created for an entry of pg_task.json, and has the password of that entry";

/** Reads which of the target's role and database exist on the control connection's server. */
export async function readRoleAndDatabase(
  control: Client,
  { user, database }: ConnectionTarget,
): Promise<RoleAndDatabase> {
  const { rows } = await control.query<RoleAndDatabase>(
    `SELECT r.oid IS NOT NULL AS role,
            pg_catalog.shobj_description(r.oid, 'pg_authid') IS NOT DISTINCT FROM $3 AS "isOwnRole",
            EXISTS (SELECT FROM pg_catalog.pg_database WHERE datname = $2) AS database
       FROM (SELECT) AS one LEFT JOIN pg_catalog.pg_roles AS r ON r.rolname = $1`,
    [user, database, ownRoleComment],
  );
  return rows[0] ?? { role: false, isOwnRole: false, database: false };
}

/** How the user can have pg-task create a missing role and database. */
export const createRemedy =
  'create what is missing, or set "create": true in the entry or "pg_task.create": true for all entries, and pg-task start creates it';

function remedyToCreate(create: boolean, createRoleAndDatabase: boolean): string {
  if (createRoleAndDatabase) return "run pg-task start, which creates what is missing";
  return create ? createRemedy : "create what is missing";
}

/** Whether the role may have been renamed, because only the role is missing. */
const mayBeRenamed = ({ role, database }: Pick<RoleAndDatabase, "role" | "database">): boolean => !role && database;

/** Returns the remedy, after that for a renamed role if the role may have been renamed. */
export const orRenamed = (found: Pick<RoleAndDatabase, "role" | "database">, remedy: string): string =>
  mayBeRenamed(found) ? `if it was renamed, put its new name into the entry; otherwise ${remedy}` : remedy;

/** The error for a role or database that is missing. */
export function missingRoleOrDatabaseError(
  { target, create, createRoleAndDatabase }: Entry,
  found: RoleAndDatabase,
): PgTaskError {
  const names = [
    ...(found.role ? [] : [`the role ${identifier(target.user)}`]),
    ...(found.database ? [] : [`the database ${identifier(target.database)}`]),
  ];
  const verb = names.length === 1 ? "is" : "are";
  const reserved = found.role ? null : whyReserved(target.user);
  const remedy = reserved ?? orRenamed(found, remedyToCreate(create, createRoleAndDatabase));
  const isForbidden = !create && reserved === null;
  const forbidden = isForbidden ? ', and the entry says "create": false' : "";
  const hint = !isForbidden || mayBeRenamed(found) ? `: ${remedy}` : "";
  return new PgTaskError("SCHEMA_MISSING", `${names.join(" and ")} ${verb} missing${forbidden}${hint}`, { remedy });
}
