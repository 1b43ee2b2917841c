import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { lockClasses, lockKeyToSqlState } from "../../shared/postgres/advisoryLocks.js";

/** That the server refuses the sessions of a table, which its manager has tried to open for waiting tasks. */
export interface SessionRefusal {
  /** The SQLSTATE with which the server refuses them. Null if there is none. */
  readonly sqlState: string | null;
  /** What the SQLSTATE says, and where to read more. */
  readonly reason: string;
}

/** The log line that says in the server's words why sessions are refused. */
const refusalLogLine = "cannot open a session, tasks wait";

/**
 * Returns why the server refuses the sessions of a table, as the table's manager shows it by a lock
 * (src/manager/sessions/refusalLock.sql.ts). Null if it does not.
 */
export async function readSessionRefusal(client: Queryable, { qualified }: TaskTable): Promise<SessionRefusal | null> {
  const { rows } = await client.query<{ key: number }>(
    `SELECT r.objid::bigint::float8 AS key
     FROM pg_catalog.pg_locks AS m JOIN pg_catalog.pg_locks AS r ON r.pid = m.pid AND r.database = m.database
     WHERE m.locktype = 'advisory' AND m.granted AND m.objsubid = 2 AND m.classid = $1::bigint::oid
       AND m.objid = to_regclass($3)::oid
       AND m.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
       AND r.locktype = 'advisory' AND r.granted AND r.objsubid = 2 AND r.classid = $2::bigint::oid LIMIT 1`,
    [lockClasses.manager, lockClasses.sessionsRefused, qualified],
  );
  const [row] = rows;
  if (row === undefined) return null;
  const sqlState = lockKeyToSqlState(row.key);
  return { sqlState, reason: describe(sqlState) };
}

const meanings: Readonly<Record<string, string>> = {
  "28P01": "it does not accept the role's password",
  "28000": "it does not let the role log in",
  "42501": "the role may not connect to the database",
  "53300": "there are too many connections",
  "55000": "the database accepts no connections",
};

function describe(sqlState: string | null): string {
  if (sqlState === null) return "no connection was made";
  const meaning = meanings[sqlState];
  return meaning === undefined ? `SQLSTATE ${sqlState}` : `${meaning} (SQLSTATE ${sqlState})`;
}

const remedies: Readonly<Record<string, string>> = {
  "28P01": "give pg-task the role's new password",
  "28000": "see pg_hba.conf and the attributes of the role, such as LOGIN and VALID UNTIL",
  "42501": "grant the role CONNECT on the database",
  "53300": "close unused connections, or raise max_connections or the CONNECTION LIMIT of the role or database",
  "55000": "let the database accept connections: ALTER DATABASE … ALLOW_CONNECTIONS true",
};

/** Returns what to do about a refusal. */
export function refusalRemedy({ sqlState }: SessionRefusal): string {
  const says = `the log of pg-task says why ("${refusalLogLine}")`;
  const remedy = sqlState === null ? undefined : remedies[sqlState];
  return remedy === undefined ? says : `${says}; ${remedy}`;
}
