import type { ConnectionTarget, Entry } from "../shared/config/types.js";
import { connectClient, sqlState, type Client } from "../shared/postgres/client.js";
import { describeTarget } from "../shared/postgres/target/describeTarget.js";
import { PgTaskError } from "../shared/errors.js";
import type { Log } from "../shared/log.js";
import { identifier, literal } from "../shared/postgres/quoting.js";
import { scramVerifier } from "./scramVerifier.js";

/** Another process made the same at the same moment. */
const madeMeanwhile = new Set(["42710", "42P04", "23505"]);
const membershipHasOptions = 160_000;

/** What there is of an entry's role and database. */
interface Found {
  readonly role: boolean;
  readonly database: boolean;
}

/**
 * Makes the roles and databases of entries where they are missing, each time on a short-lived
 * connection of its own: CREATE DATABASE may take long, and the connection with the leader's lock is
 * never kept waiting.
 */
export class RolesAndDatabases {
  /** The control connection, on whose server they are. */
  target: ConnectionTarget;
  readonly #log: Log;

  constructor(target: ConnectionTarget, log: Log) {
    this.target = target;
    this.#log = log;
  }

  /**
   * Resolves when role and database exist, as far as that is for us to see: an entry elsewhere has
   * them or not.
   *
   * @throws PgTaskError SCHEMA_MISSING when the entry says not to create them, SCHEMA_NOT_ALLOWED or
   * SCHEMA_NOT_CREATED with the statement that failed, and what `connect` throws.
   */
  async ensure(entry: Entry): Promise<void> {
    const { user, database } = entry.target;
    if (entry.elsewhere) return;
    // We are connected as this one to this one.
    if (user === this.target.user && database === this.target.database) return;
    const client = await connectClient(this.target, {
      applicationName: "pg_conf",
      settings: {
        search_path: "pg_catalog",
        lock_timeout: "10s",
        tcp_keepalives_idle: 5,
      },
    });
    try {
      await this.#make(client, entry);
    } catch (error) {
      if (error instanceof PgTaskError) throw error;
      const words = error instanceof Error ? error.message : String(error);
      throw new PgTaskError(
        sqlState(error) === null ? "CONNECTION_LOST" : "SCHEMA_NOT_CREATED",
        `the server ${describeTarget(this.target)} could not be asked for role and database: ${words}`,
        { cause: error },
      );
    } finally {
      await client.end().catch(() => {});
    }
  }

  async #make(client: Client, entry: Entry): Promise<void> {
    const { user, database } = entry.target;
    const found = await look(client, entry.target);
    if (found.role && found.database) return;
    if (!entry.create) throw missing(entry.target, found);
    // Entries that start together may lack the same: it is said by the one that made it.
    if (!found.role && (await this.#createRole(client, entry))) {
      this.#log.info({ entry: entry.key, role: user }, "role created");
    }
    if (!found.database && (await this.#createDatabase(client, entry.target))) {
      this.#log.info({ entry: entry.key, database, owner: user }, "database created");
    }
  }

  /** Whether it was made here, and not by somebody else meanwhile. */
  async #createRole(client: Client, { target, ownPassword }: Entry): Promise<boolean> {
    const statement = `CREATE ROLE ${identifier(target.user)} LOGIN`;
    if (!ownPassword || target.password === undefined) {
      return await execute(client, statement);
    }
    const verifier = await scramVerifier(target.password);
    const shown = `${statement} PASSWORD '***'`;
    return await execute(client, `${statement} PASSWORD ${literal(verifier)}`, shown);
  }

  /**
   * To make a database another's, who is no superuser has to be that one's member. Whether it was made
   * here.
   */
  async #createDatabase(client: Client, { user, database }: ConnectionTarget): Promise<boolean> {
    const { rows } = await client.query<{ version: number; member: boolean }>(
      `SELECT v.version, r.rolsuper OR pg_has_role($1::name, v.need) AS member
       FROM (SELECT s.version, CASE WHEN s.version >= $2 THEN 'SET' ELSE 'MEMBER' END AS need
             FROM (SELECT current_setting('server_version_num')::integer AS version) AS s) AS v,
            pg_roles AS r WHERE r.rolname = current_user`,
      [user, membershipHasOptions],
    );
    const { version = 0, member = false } = rows[0] ?? {};
    const options = version >= membershipHasOptions ? " WITH INHERIT FALSE, SET TRUE" : "";
    const role = identifier(user);
    if (!member) await execute(client, `GRANT ${role} TO CURRENT_USER${options}`);
    try {
      return await execute(client, `CREATE DATABASE ${identifier(database)} OWNER ${role}`);
    } finally {
      if (!member) await execute(client, `REVOKE ${role} FROM CURRENT_USER`);
    }
  }
}

async function look(client: Client, { user, database }: ConnectionTarget): Promise<Found> {
  const { rows } = await client.query<Found>(
    `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1) AS role,
            EXISTS (SELECT FROM pg_database WHERE datname = $2) AS database`,
    [user, database],
  );
  return rows[0] ?? { role: false, database: false };
}

/**
 * False when somebody made the same meanwhile.
 *
 * @param shown the statement as messages show it, without a password
 */
async function execute(client: Client, statement: string, shown = statement): Promise<boolean> {
  try {
    await client.query(statement);
    return true;
  } catch (error) {
    const state = sqlState(error);
    if (state === null) throw error;
    if (madeMeanwhile.has(state)) return false;
    const words = error instanceof Error ? error.message : String(error);
    throw new PgTaskError(
      state === "42501" ? "SCHEMA_NOT_ALLOWED" : "SCHEMA_NOT_CREATED",
      `${shown} failed: ${words} (SQLSTATE ${state})`,
      { cause: error, sqlState: state },
    );
  }
}

function missing({ user, database }: ConnectionTarget, found: Found): PgTaskError {
  const names = [
    ...(found.role ? [] : [`the role ${identifier(user)}`]),
    ...(found.database ? [] : [`the database ${identifier(database)}`]),
  ];
  const verb = names.length === 1 ? "is" : "are";
  return new PgTaskError(
    "SCHEMA_MISSING",
    `${names.join(" and ")} ${verb} missing, and the entry says "create": false`,
  );
}
