import { randomBytes } from "node:crypto";
import type { Administrator } from "../shared/ipc/managerMessages.js";
import type { Entry } from "../shared/config/types.js";
import { type ConnectionTarget, describeTarget } from "../shared/postgres/target/target.js";
import { scramVerifier } from "../shared/postgres/auth/scram.js";
import { applicationNames } from "../shared/postgres/applicationNames.js";
import { connectClient, sqlState, type Client } from "../shared/postgres/client.js";
import { mask } from "../shared/logRedaction.js";
import { errorMessage, PgTaskError } from "../shared/errors.js";
import type { Log } from "../shared/log.js";
import { identifier, literal } from "../shared/postgres/quoting.js";
import { insufficientPrivilege } from "../shared/postgres/sqlStates.js";
import { missingRoleOrDatabaseError, ownRoleComment, readRoleAndDatabase } from "./roleAndDatabase.js";
import { hasPassword } from "./rolePassword.js";

/** SQLSTATEs that the server reports if another process created the same object at the same time. */
const alreadyExists = new Set(["42710", "42P04", "23505"]);
/** SQLSTATE of an error that the server did not expect, such as two changes of one role at the same time. */
const internalError = "XX000";
/** How often the password of a role is set if other sessions change the role at the same time. */
const mostTries = 5;
const membershipOptionsSince = 160_000;

/**
 * Creates missing roles and databases of entries, and sets the passwords of the roles that pg-task has created. Uses a
 * separate, short-lived connection, because CREATE DATABASE can take long and must not block the one that holds the
 * leader's lock.
 */
export class RolesAndDatabases {
  /** Target of the control connection. Roles and databases are created on this server. */
  target: ConnectionTarget;
  readonly #log: Log;
  readonly #loginSecret = randomBytes(32).toString("base64");

  constructor(target: ConnectionTarget, log: Log) {
    this.target = target;
    this.#log = log;
  }

  /**
   * Creates the entry's role and database if they are missing, and sets the entry's password for a role that pg-task
   * has created. Does nothing for an entry on another server.
   *
   * @param options.isStart whether the entry's manager is about to start. Only then the password is set: if it is refused
   * later, somebody has changed the role's password, and not the entry's.
   * @throws PgTaskError SCHEMA_MISSING if the role or the database is missing and pg-task is not told to create it.
   * @throws PgTaskError SCHEMA_NOT_ALLOWED or SCHEMA_NOT_CREATED with the failed statement.
   * @throws the errors of `connectClient`.
   */
  async ensure(entry: Entry, options: { readonly isStart: boolean }): Promise<void> {
    const { user, database } = entry.target;
    if (entry.elsewhere) return;
    // The control connection itself uses this role and this database, so both exist.
    if (user === this.target.user && database === this.target.database) return;
    const client = await connectClient(this.target, {
      applicationName: applicationNames.supervisor,
      writable: true,
      isControl: true,
      settings: { lock_timeout: "10s" },
    });
    try {
      await this.#create(client, entry, options);
    } catch (error) {
      if (error instanceof PgTaskError) throw error;
      throw new PgTaskError(
        sqlState(error) === null ? "CONNECTION_LOST" : "SCHEMA_NOT_CREATED",
        `the server ${describeTarget(this.target)} could not be queried for role and database: ${errorMessage(error)}`,
        { cause: error },
      );
    } finally {
      await client.end().catch(() => {});
    }
  }

  /** Who makes the logins of roles for an entry with users: the control connection, unless it is on another server. */
  administratorOf({ users, elsewhere, target }: Entry): Administrator | null {
    return users ? { target: elsewhere ? target : this.target, secret: this.#loginSecret } : null;
  }

  async #create(client: Client, entry: Entry, { isStart }: { readonly isStart: boolean }): Promise<void> {
    const { user, database } = entry.target;
    const found = await readRoleAndDatabase(client, entry.target);
    if (found.isOwnRole && isStart) await this.#updatePassword(client, entry);
    if (found.role && found.database) return;
    if (!entry.createRoleAndDatabase) throw missingRoleOrDatabaseError(entry, found);
    // Several entries may lack the same role or database. The creation is logged only for the entry that caused it.
    if (!found.role && (await this.#createRole(client, entry))) {
      this.#log.info({ entry: entry.key, role: user }, "role created");
    }
    if (!found.database && (await this.#createDatabase(client, entry.target))) {
      this.#log.info({ entry: entry.key, database, owner: user }, "database created");
    }
  }

  /** Creates the entry's role, and marks it as pg-task's. Returns as `execute` does. */
  async #createRole(client: Client, { target, ownPassword }: Entry): Promise<boolean> {
    const role = identifier(target.user);
    const password = ownPassword ? target.password : undefined;
    await client.query("BEGIN");
    try {
      const created = await executeWithPassword(client, `CREATE ROLE ${role} LOGIN`, password);
      if (created) await execute(client, `COMMENT ON ROLE ${role} IS ${literal(ownRoleComment)}`);
      return created;
    } finally {
      // After an error, COMMIT rolls back.
      await client.query("COMMIT");
    }
  }

  /** Sets the entry's password for its role, which pg-task has created, unless the role has this password already. */
  async #updatePassword(client: Client, entry: Entry): Promise<void> {
    const { target, ownPassword, create, key } = entry;
    if (!create || !ownPassword || target.password === undefined) return;
    for (let tries = 1; ; tries += 1) {
      if (await hasPassword(client, target, target.password)) return;
      try {
        await executeWithPassword(client, `ALTER ROLE ${identifier(target.user)}`, target.password);
        break;
      } catch (error) {
        // Another session has just changed the role, for example because several entries have it ("tuple concurrently
        // updated"). It may have set the same password.
        if (tries === mostTries || !(error instanceof PgTaskError) || error.sqlState !== internalError) throw error;
      }
    }
    this.#log.info({ entry: key, role: target.user }, "password of the role changed");
  }

  /**
   * Creates the entry's database, owned by the entry's role. Only a superuser or a member of the owner role can do
   * this, so pg-task's own role becomes a member temporarily. Returns as `execute` does.
   */
  async #createDatabase(client: Client, { user, database }: ConnectionTarget): Promise<boolean> {
    const { rows } = await client.query<{ version: number; member: boolean }>(
      `SELECT v.version, r.rolsuper OR pg_has_role($1::name, v.need) AS member
       FROM (SELECT s.version, CASE WHEN s.version >= $2 THEN 'SET' ELSE 'MEMBER' END AS need
             FROM (SELECT current_setting('server_version_num')::integer AS version) AS s) AS v,
            pg_roles AS r WHERE r.rolname = current_user`,
      [user, membershipOptionsSince],
    );
    const { version = 0, member = false } = rows[0] ?? {};
    const options = version >= membershipOptionsSince ? " WITH INHERIT FALSE, SET TRUE" : "";
    const role = identifier(user);
    if (!member) await execute(client, `GRANT ${role} TO CURRENT_USER${options}`);
    try {
      return await execute(client, `CREATE DATABASE ${identifier(database)} OWNER ${role}`);
    } finally {
      if (!member) await execute(client, `REVOKE ${role} FROM CURRENT_USER`);
    }
  }
}

/** Executes CREATE ROLE or ALTER ROLE with this password, which is sent as a verifier. Returns as `execute` does. */
async function executeWithPassword(client: Client, statement: string, password: string | undefined): Promise<boolean> {
  if (password === undefined) return await execute(client, statement);
  const verifier = await scramVerifier(password);
  return await execute(client, `${statement} PASSWORD ${literal(verifier)}`, `${statement} PASSWORD '${mask}'`);
}

/**
 * @param masked the statement without the password, for error messages
 * @returns false if the object exists already, because another process has created it in the meantime.
 */
async function execute(client: Client, statement: string, masked = statement): Promise<boolean> {
  try {
    await client.query(statement);
    return true;
  } catch (error) {
    const state = sqlState(error);
    if (state === null) throw error;
    if (alreadyExists.has(state)) return false;
    throw new PgTaskError(
      state === insufficientPrivilege ? "SCHEMA_NOT_ALLOWED" : "SCHEMA_NOT_CREATED",
      `${masked} failed: ${errorMessage(error)} (SQLSTATE ${state})`,
      { cause: error, sqlState: state },
    );
  }
}
