import type { Entry } from "../../shared/config/types.js";
import { PgTaskError, errorMessage } from "../../shared/errors.js";
import { isPasswordRefused, isUnknownRole, whyReserved } from "../../shared/postgres/connectionErrors.js";
import { identifier } from "../../shared/postgres/quoting.js";
import type { ConnectionTarget } from "../../shared/postgres/target/target.js";
import { createRemedy, orRenamed, readRoleAndDatabase } from "../../supervisor/roleAndDatabase.js";
import { maySetPassword } from "../../supervisor/rolePassword.js";
import { foundObject, type Finding } from "../inspection.js";
import { describeObject, isToBeCreated } from "./objects.js";
import { applicationNames } from "../../shared/postgres/applicationNames.js";
import { connectClient, type Client } from "../../shared/postgres/client.js";

interface Privileges {
  readonly canCreateRoles: boolean;
  readonly canCreateDatabases: boolean;
}

/**
 * What `start` does if the server refuses the entry's password. `kept`: the role is not pg-task's, or the entry has no
 * password or says `create: false`.
 */
export type OwnRolePassword = "set" | "not allowed" | "kept";

/** Inspects the role and the database of an entry over the control connection. */
export async function inspectRoleAndDatabase(
  { target, create, createRoleAndDatabase, ownPassword }: Entry,
  control: ConnectionTarget,
  privileges: Privileges,
): Promise<{
  readonly findings: readonly Finding[];
  readonly password: OwnRolePassword;
}> {
  const { role, isOwnRole, database, isAllowed } = await withConnection(
    control,
    async (client) => {
      const found = await readRoleAndDatabase(client, target);
      return { ...found, isAllowed: found.isOwnRole && (await maySetPassword(client, target.user)) };
    },
    true,
  );
  const missing = create ? createRemedy : undefined;
  const reserved = whyReserved(target.user);
  const findings = [
    describeObject("role", target.user, role, createRoleAndDatabase, {
      allowed: privileges.canCreateRoles && reserved === null,
      right: reserved ?? `the control connection's user ${control.user} lacks CREATEROLE`,
      missing: reserved ?? (missing && orRenamed({ role, database }, missing)),
    }),
    describeObject("database", target.database, database, createRoleAndDatabase, {
      allowed: privileges.canCreateDatabases,
      right: `the control connection's user ${control.user} lacks CREATEDB`,
      missing,
    }),
  ];
  const isSet = isOwnRole && ownPassword && create;
  return { findings, password: !isSet ? "kept" : isAllowed ? "set" : "not allowed" };
}

/** Returns the findings about an entry whose password the server refuses although pg-task has created the role. */
export function otherPassword(
  findings: readonly Finding[],
  role: string,
  password: OwnRolePassword,
  control: string,
): Finding[] {
  return findings.map((finding) => {
    if (finding.name !== "role") return finding;
    return password === "set"
      ? foundObject("role", role, "exists", "with another password than the entry's, which pg-task start sets")
      : foundObject(
          "role",
          role,
          "not allowed",
          `it has another password than the entry's, and the control connection's user ${control} may not change it`,
        );
  });
}

/**
 * The error with which the connection of an entry would fail whose role or database `start` would create. A server that
 * asks for a password also asks for that of an unknown role, so this shows before they exist.
 */
export async function findRefusal(
  { target, ownPassword }: Entry,
  absent: readonly Finding[],
  password: OwnRolePassword,
): Promise<PgTaskError | null> {
  if (!absent.every(isToBeCreated)) return null;
  const error = await withConnection(target, async () => null).catch(toPgTaskError);
  if (error === null) return null;
  const isNewRole = absent.some(({ name }) => name === "role");
  if (isNewRole ? isUnknownRole(error) : error.sqlState === missingDatabase) return null;
  if (!isPasswordRefused(error)) return error;
  if (!isNewRole) return password === "set" ? null : error;
  if (ownPassword) return null;
  return new PgTaskError(
    "CONNECTION_REJECTED",
    `the server asks for a password, and the role ${identifier(target.user)} would be created without one: set "password" in its entry`,
  );
}

const missingDatabase = "3D000";

/** @throws PgTaskError as `connectClient` does */
export async function withConnection<T>(
  target: ConnectionTarget,
  action: (client: Client) => Promise<T>,
  isControl = false,
): Promise<T> {
  const client = await connectClient(target, {
    applicationName: applicationNames.check,
    isControl,
  });
  try {
    return await action(client);
  } finally {
    await client.end();
  }
}

/** Any error but a PgTaskError means that the connection was lost during a query. */
export function toPgTaskError(error: unknown): PgTaskError {
  if (error instanceof PgTaskError) return error;
  return new PgTaskError("CONNECTION_LOST", `connection lost: ${errorMessage(error)}`, {
    cause: error,
  });
}
