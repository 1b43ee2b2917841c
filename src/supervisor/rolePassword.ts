import type { ConnectionTarget } from "../shared/postgres/target/target.js";
import { applicationNames } from "../shared/postgres/applicationNames.js";
import { isVerifierOf } from "../shared/postgres/auth/scram.js";
import { connectClient, disconnect, type Client } from "../shared/postgres/client.js";
import { isPasswordRefused } from "../shared/postgres/connectionErrors.js";

/**
 * Whether the target's role already has this password. A superuser can read the verifier that the server stores. Anyone
 * else finds out by connecting, which tells nothing if the server asks for no password.
 */
export async function hasPassword(control: Client, target: ConnectionTarget, password: string): Promise<boolean> {
  const { rows: rights } = await control.query<{ readable: boolean }>(
    "SELECT has_column_privilege('pg_catalog.pg_authid', 'rolpassword', 'SELECT') AS readable",
  );
  if (rights[0]?.readable !== true) return await isAccepted(target);
  const { rows } = await control.query<{ stored: string | null }>(
    "SELECT rolpassword AS stored FROM pg_catalog.pg_authid WHERE rolname = $1",
    [target.user],
  );
  return await isVerifierOf(rows[0]?.stored ?? "", password);
}

/** Whether the server does not refuse the target's password. If the connection fails for another reason, it is not. */
async function isAccepted(target: ConnectionTarget): Promise<boolean> {
  try {
    await disconnect(await connectClient(target, { applicationName: applicationNames.supervisor }));
    return true;
  } catch (error) {
    return !isPasswordRefused(error);
  }
}

/** Whether the role of this connection may set the password of another role, which exists. */
export async function maySetPassword(control: Client, role: string): Promise<boolean> {
  const { rows } = await control.query<{ allowed: boolean }>(
    `SELECT own.rolsuper OR own.rolcreaterole AND NOT r.rolsuper AND (
              current_setting('server_version_num')::integer < $2 OR pg_has_role(r.oid, 'MEMBER WITH ADMIN OPTION')
            ) AS allowed
       FROM pg_roles AS own, pg_roles AS r WHERE own.rolname = current_user AND r.rolname = $1`,
    [role, adminOptionNeededSince],
  );
  return rows[0]?.allowed === true;
}

/** Since this version, CREATEROLE alone does not suffice to change a role: the ADMIN option on it is needed as well. */
const adminOptionNeededSince = 160_000;
