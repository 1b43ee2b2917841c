import { queryOne } from "../queryOne.js";
import { maxNameBytes, type TaskTable } from "../../manager/schema/taskTable.js";
import type { Entry } from "../../shared/config/types.js";
import { busySessionName, idleSessionName } from "../../shared/postgres/applicationNames.js";
import { shareServer } from "../../shared/postgres/target/target.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { lockClasses, lockKeyToSqlState } from "../../shared/postgres/advisoryLocks.js";
import { shownKeysSql } from "./clusterProcesses.js";

export type EntryLocation = Pick<Entry, "target" | "schema" | "table">;

export const entriesOnServer = (target: Entry["target"], entries: readonly EntryLocation[]): EntryLocation[] =>
  entries.filter((entry) => shareServer(entry.target, target));

const sum = (numbers: readonly number[]): number => numbers.reduce((all, one) => all + one, 0);

/**
 * SQL of a query for application names in the form in which the server shows them, as `place` and `name`. The server
 * truncates application names and replaces some characters, so the server itself makes the conversion. It ends with the
 * connection's own name, which the connection then has again, so that nobody takes it for a session. The query has to be
 * a materialized CTE, which is read to its end.
 *
 * @param names SQL of an array of names
 */
export const shownNames = (names: string): string =>
  `SELECT n.place, left(set_config('application_name', n.name, true), ${maxNameBytes}) AS name
     FROM unnest(${names} || current_setting('application_name')) WITH ORDINALITY AS n(name, place) ORDER BY n.place`;

export const shownName = (place: number): string => `(SELECT s.name FROM shown AS s WHERE s.place = ${place})`;

/** The sessions of all pg-task processes, found by their application names, without reading the table. */
export async function readSessions(client: Queryable, table: TaskTable) {
  const { rows } = await client.query<{ group: string | null; sessions: number; free: number }>(
    `WITH shown AS MATERIALIZED (${shownNames("$1::text[]")}),
       names AS MATERIALIZED (SELECT ${shownName(1)} AS idle, ${shownName(2)} AS prefix)
     SELECT CASE WHEN a.application_name <> n.idle THEN substr(a.application_name, length(n.prefix) + 1) END AS "group",
       count(*)::float8 AS sessions,
       (count(*) FILTER (WHERE a.state = 'idle' AND a.state_change < clock_timestamp() - interval '1 second'))::float8 AS free
     FROM names AS n JOIN pg_catalog.pg_stat_activity AS a ON a.application_name = n.idle OR starts_with(a.application_name, n.prefix)
     WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
     GROUP BY 1`,
    [[idleSessionName(table), busySessionName(table, "")]],
  );
  const busy = rows.flatMap(({ group, sessions }): [string, number][] => (group === null ? [] : [[group, sessions]]));
  return {
    sessions: sum(rows.map(({ sessions }) => sessions)),
    running: sum(busy.map(([, sessions]) => sessions)),
    /** Without a task, and idle for a second, as far as this role can see. */
    idle: sum(rows.flatMap(({ group, free }) => (group === null ? free : []))),
    /** By the groups' names as the server shows them in application names. */
    groups: new Map(busy),
  };
}

export async function groupsAsShown(client: Queryable, table: TaskTable, groups: readonly string[]): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(shownNames("$1::text[]"), [
    ["", ...groups].map((group) => busySessionName(table, group)),
  ]);
  const [shownPrefix = "", ...names] = rows.slice(0, -1).map(({ name }) => name);
  return names.map((name) => name.slice(shownPrefix.length));
}

/** The entries can be in any database of the server. */
export async function countSessions(
  client: Queryable,
  entries: readonly EntryLocation[],
): Promise<{ readonly sessions: number; readonly running: number }> {
  return await queryOne<{ sessions: number; running: number }>(
    client,
    `WITH shown AS MATERIALIZED (${shownNames("$2::text[]")}), entry AS MATERIALIZED (
       SELECT d.name AS database, i.name AS idle, p.name AS prefix FROM unnest($1::text[]) WITH ORDINALITY AS d(name, place)
       JOIN shown AS i ON i.place = 2 * d.place - 1 JOIN shown AS p ON p.place = 2 * d.place
     )
     SELECT count(*)::float8 AS sessions, (count(*) FILTER (WHERE running))::float8 AS running FROM (
       SELECT bool_and(a.application_name <> t.idle) AS running FROM entry AS t
       JOIN pg_catalog.pg_stat_activity AS a ON a.datname = t.database
         AND (a.application_name = t.idle OR starts_with(a.application_name, t.prefix))
       WHERE a.pid <> pg_backend_pid() GROUP BY a.pid
     ) AS s`,
    [
      entries.map(({ target }) => target.database),
      entries.flatMap((entry) => [idleSessionName(entry), busySessionName(entry, "")]),
    ],
  );
}

/** That the server refuses the sessions of a table, which its manager has tried to open for waiting tasks. */
export interface SessionRefusal {
  /** The SQLSTATE with which the server refuses them. Null if there is none. */
  readonly sqlState: string | null;
  readonly reason: string;
}

/** As the table's manager shows it by a lock (src/manager/sql/shownLocks.sql.ts). Null if it does not. */
export async function readSessionRefusal(client: Queryable, table: TaskTable): Promise<SessionRefusal | null> {
  const { rows } = await client.query<{ key: number }>(
    `SELECT key::float8 AS key FROM (${shownKeysSql(table, lockClasses.sessionsRefused)}) AS shown LIMIT 1`,
  );
  const [row] = rows;
  if (row === undefined) return null;
  const sqlState = lockKeyToSqlState(row.key);
  return { sqlState, reason: describe(sqlState) };
}

const refusals: Readonly<Record<string, readonly [meaning: string, remedy: string]>> = {
  "28P01": ["it does not accept the role's password", "give pg-task the role's new password"],
  "28000": [
    "it does not let the role log in",
    "see pg_hba.conf and the attributes of the role, such as LOGIN and VALID UNTIL",
  ],
  "42501": ["the role may not connect to the database", "grant the role CONNECT on the database"],
  "53300": [
    "there are too many connections",
    "close unused connections, or raise max_connections or the CONNECTION LIMIT of the role or database",
  ],
  "55000": [
    "the database accepts no connections",
    "let the database accept connections: ALTER DATABASE … ALLOW_CONNECTIONS true",
  ],
};

function describe(sqlState: string | null): string {
  if (sqlState === null) return "no connection was made";
  const [meaning] = refusals[sqlState] ?? [];
  return meaning === undefined ? `SQLSTATE ${sqlState}` : `${meaning} (SQLSTATE ${sqlState})`;
}

/** It begins with the log line that says in the server's words why sessions are refused. */
export function refusalRemedy({ sqlState }: SessionRefusal): string {
  const says = 'the log of pg-task says why ("cannot open a session, tasks wait")';
  const [, remedy] = refusals[sqlState ?? ""] ?? [];
  return remedy === undefined ? says : `${says}; ${remedy}`;
}
