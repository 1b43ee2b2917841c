import type { Entry } from "../../shared/config/types.js";
import { PgTaskError } from "../../shared/errors.js";
import { isPasswordRefused, isUnknownRole } from "../../shared/postgres/connectionErrors.js";
import { identifier } from "../../shared/postgres/quoting.js";
import type { ConnectionTarget } from "../../shared/postgres/target/target.js";
import { createRemedy, readRoleAndDatabase } from "../../supervisor/roleAndDatabase.js";
import { toPgTaskError, withConnection } from "./connection.js";
import type { Finding } from "./table.js";

/** What the role of the control connection may create. */
interface Privileges {
  readonly canCreateRoles: boolean;
  readonly canCreateDatabases: boolean;
}

/** Inspects the role and the database of an entry over the control connection. */
export async function inspectRoleAndDatabase(
  { target, create, createRoleAndDatabase, ownPassword }: Entry,
  control: ConnectionTarget,
  privileges: Privileges,
): Promise<{
  readonly findings: readonly Finding[];
  /** Whether `start` would set the entry's password if the server refuses it. */
  readonly setsPassword: boolean;
}> {
  const { role, isOwnRole, database } = await withConnection(control, (client) => readRoleAndDatabase(client, target));
  const missing = create ? createRemedy : undefined;
  const findings = [
    describeObject("role", target.user, role, createRoleAndDatabase, {
      allowed: privileges.canCreateRoles,
      right: `the control connection's user ${control.user} lacks CREATEROLE`,
      missing,
    }),
    describeObject("database", target.database, database, createRoleAndDatabase, {
      allowed: privileges.canCreateDatabases,
      right: `the control connection's user ${control.user} lacks CREATEDB`,
      missing,
    }),
  ];
  return { findings, setsPassword: isOwnRole && ownPassword && create };
}

export function describeObject(
  what: Finding["what"],
  name: string,
  exists: boolean,
  create: boolean,
  permission: {
    readonly allowed: boolean;
    readonly right: string;
    /** Why a missing object is not created. By default, because the entry forbids it. */
    readonly missing?: string | undefined;
  },
): Finding {
  if (exists) return { what, name, state: "exists" };
  if (!create) return { what, name, state: "missing", why: permission.missing ?? 'the entry says "create": false' };
  if (permission.allowed) return { what, name, state: "would be created" };
  return { what, name, state: "not allowed", why: `missing, and ${permission.right}` };
}

/**
 * Finds out whether the server would refuse the connection of an entry whose role or database `start` would create, by
 * connecting before they exist. A server that asks for a password also asks for that of an unknown role.
 *
 * @param absent the findings that the role or the database does not exist
 * @param setsPassword whether `start` would set the entry's password if the server refuses it
 * @returns the error with which the connection would fail; null if there is none, or if `start` would not connect
 */
export async function findRefusal(
  { target, ownPassword }: Entry,
  absent: readonly Finding[],
  setsPassword: boolean,
): Promise<PgTaskError | null> {
  if (absent.some(({ state }) => state !== "would be created")) return null;
  const error = await withConnection(target, async () => null).catch(toPgTaskError);
  if (error === null) return null;
  const isNewRole = absent.some(({ what }) => what === "role");
  if (isNewRole ? isUnknownRole(error) : error.sqlState === missingDatabase) return null;
  if (!isPasswordRefused(error)) return error;
  if (!isNewRole) return setsPassword ? null : error;
  if (ownPassword) return null;
  return new PgTaskError(
    "CONNECTION_REJECTED",
    `the server asks for a password, and the role ${identifier(target.user)} would be created without one: set "password" in its entry`,
  );
}

/** The SQLSTATE for a connection to a database that does not exist, which the server reports after the login. */
const missingDatabase = "3D000";
