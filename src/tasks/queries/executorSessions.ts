import { maxNameBytes, type TaskTable } from "../../manager/schema/taskTable.js";
import type { Entry } from "../../shared/config/types.js";
import { busySessionName, idleSessionName } from "../../shared/postgres/applicationNames.js";
import { shareServer } from "../../shared/postgres/target/target.js";
import type { Client } from "../../shared/postgres/client.js";

/** The location of an entry's table: server, database, schema and table name. */
export type EntryLocation = Pick<Entry, "target" | "schema" | "table">;

/** Returns the entries whose tables are on the same server as the given target. */
export const entriesOnServer = (target: Entry["target"], entries: readonly EntryLocation[]): EntryLocation[] =>
  entries.filter((entry) => shareServer(entry.target, target));

/**
 * Numbers of a table's executor sessions (connections on which tasks run). The sessions are found by their application
 * names, without reading the table.
 */
export interface ExecutorSessions {
  readonly sessions: number;
  /** Number of sessions that run a task. */
  readonly running: number;
  /**
   * Number of sessions whose application name says that they run a task, but whose backend has been idle for a second,
   * as far as this role can see.
   */
  readonly idle: number;
  /**
   * Number of sessions that run tasks of each group. The keys are the groups' names as the server shows them in
   * application names.
   */
  readonly groups: ReadonlyMap<string, number>;
}

const sum = (numbers: readonly number[]): number => numbers.reduce((all, one) => all + one, 0);

/** Reads the executor sessions of a table from pg_stat_activity. The sessions of all pg-task processes are included. */
export async function readSessions(client: Client, table: TaskTable): Promise<ExecutorSessions> {
  const [idle = "", prefix = ""] = await asApplicationNames(client, [
    idleSessionName(table),
    busySessionName(table, ""),
  ]);
  const { rows } = await client.query<{ group: string | null; sessions: number; free: number }>(
    `SELECT CASE WHEN application_name <> $1 THEN substr(application_name, length($2) + 1) END AS "group",
       count(*)::float8 AS sessions,
       (count(*) FILTER (WHERE state = 'idle' AND state_change < clock_timestamp() - interval '1 second'))::float8 AS free
     FROM pg_catalog.pg_stat_activity
     WHERE datname = current_database() AND (application_name = $1 OR starts_with(application_name, $2))
     GROUP BY 1`,
    [idle, prefix],
  );
  const busy = rows.flatMap(({ group, sessions }): [string, number][] => (group === null ? [] : [[group, sessions]]));
  return {
    sessions: sum(rows.map(({ sessions }) => sessions)),
    running: sum(busy.map(([, sessions]) => sessions)),
    idle: sum(rows.flatMap(({ group, free }) => (group === null ? free : []))),
    groups: new Map(busy),
  };
}

/** Application names of a table's sessions, in the form in which the server shows them. */
export interface ShownNames {
  /** The name of a session that runs a task of the same group as a given task. */
  readonly busy: string;
  /** The name of a session that runs nothing. It is that of a busy one, if the names of the table fill it. */
  readonly idle: string;
}

/** Returns these names for the group of a task. */
export async function readShownNames(client: Client, table: TaskTable, id: string): Promise<ShownNames> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT set_config('application_name', n.name, true) AS name FROM (
       SELECT 1 AS place, $1 || coalesce((SELECT t."group"::text FROM ${table.qualified} AS t WHERE t.id = $3::bigint LIMIT 1), '') AS name
       UNION ALL SELECT 2, $2 UNION ALL SELECT 3, current_setting('application_name')
     ) AS n ORDER BY n.place`,
    [busySessionName(table, ""), idleSessionName(table), id],
  );
  const [busy = "", idle = ""] = rows.map(({ name }) => name.slice(0, maxNameBytes));
  return { busy, idle };
}

/** Returns the names of these groups as they appear in application names, in the same order. */
export async function groupsAsShown(client: Client, table: TaskTable, groups: readonly string[]): Promise<string[]> {
  const [shownPrefix = "", ...names] = await asApplicationNames(
    client,
    ["", ...groups].map((group) => busySessionName(table, group)),
  );
  return names.map((name) => name.slice(shownPrefix.length));
}

/**
 * Returns application names in the form in which the server shows them. The server truncates application names and
 * replaces some characters, so the server itself makes the conversion. Then the connection takes its own
 * name back, so that others do not take it for a session.
 */
async function asApplicationNames(client: Client, names: readonly string[]): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT set_config('application_name', n.name, true) AS name
     FROM unnest($1::text[] || current_setting('application_name')) WITH ORDINALITY AS n(name, place) ORDER BY n.place`,
    [names],
  );
  return rows.slice(0, -1).map(({ name }) => name.slice(0, maxNameBytes));
}

/**
 * Returns the number of executor sessions for these entries, and the number of those sessions that run a task. The
 * entries can be in any database of the server.
 */
export async function countSessions(
  client: Client,
  entries: readonly EntryLocation[],
): Promise<{ readonly sessions: number; readonly running: number }> {
  const names = await asApplicationNames(
    client,
    entries.flatMap((entry) => [idleSessionName(entry), busySessionName(entry, "")]),
  );
  const { rows } = await client.query<{ sessions: number; running: number }>(
    `SELECT count(*)::float8 AS sessions, (count(*) FILTER (WHERE running))::float8 AS running FROM (
       SELECT bool_and(a.application_name <> t.idle) AS running FROM pg_catalog.pg_stat_activity AS a
       JOIN unnest($1::text[], $2::text[], $3::text[]) AS t(database, idle, prefix) ON a.datname = t.database
         AND (a.application_name = t.idle OR starts_with(a.application_name, t.prefix))
       GROUP BY a.pid
     ) AS s`,
    [
      entries.map(({ target }) => target.database),
      names.filter((_, place) => place % 2 === 0),
      names.filter((_, place) => place % 2 === 1),
    ],
  );
  return rows[0] ?? { sessions: 0, running: 0 };
}
