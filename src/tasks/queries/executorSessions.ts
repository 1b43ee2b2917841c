import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Entry } from "../../shared/config/types.js";
import type { Client } from "../../shared/postgres/client.js";

/** Longest application_name that the server shows, in bytes. */
const longestName = 63;

/** Where an entry's table is. */
export type PlacedEntry = Pick<Entry, "target" | "schema" | "table">;

/** Those on the same server. */
export const entriesOn = (
  { host, port }: Entry["target"],
  entries: readonly PlacedEntry[],
): PlacedEntry[] => entries.filter(({ target }) => target.host === host && target.port === port);

/** A table's executor sessions, by their names: no row is looked at. */
export interface ExecutorSessions {
  readonly sessions: number;
  /** Those that run a task. */
  readonly running: number;
  /** Those that have had nothing to do for a second, as far as this role may see. */
  readonly free: number;
  /** How many run tasks of each group, by the group's name as the server shows it. */
  readonly groups: ReadonlyMap<string, number>;
}

const sum = (numbers: readonly number[]): number => numbers.reduce((all, one) => all + one, 0);

/** Executor sessions as the server tells them, in every process. */
export async function readSessions(
  client: Client,
  { schema, table }: TaskTable,
): Promise<ExecutorSessions> {
  const name = `pg_task ${schema} ${table}`;
  const [idle = "", prefix = ""] = await shown(client, [name, `${name} `]);
  const { rows } = await client.query<{ group: string | null; sessions: number; free: number }>(
    `SELECT CASE WHEN application_name <> $1 THEN substr(application_name, length($2) + 1) END AS "group",
       count(*)::float8 AS sessions,
       (count(*) FILTER (WHERE state = 'idle' AND state_change < clock_timestamp() - interval '1 second'))::float8 AS free
     FROM pg_catalog.pg_stat_activity
     WHERE datname = current_database() AND (application_name = $1 OR starts_with(application_name, $2))
     GROUP BY 1`,
    [idle, prefix],
  );
  const busy = rows.flatMap(({ group, sessions }): [string, number][] =>
    group === null ? [] : [[group, sessions]],
  );
  return {
    sessions: sum(rows.map(({ sessions }) => sessions)),
    running: sum(busy.map(([, sessions]) => sessions)),
    free: sum(rows.flatMap(({ group, free }) => (group === null ? free : []))),
    groups: new Map(busy),
  };
}

/** What the server makes of these groups' names in the names of sessions, in their order. */
export async function shownGroups(
  client: Client,
  { schema, table }: TaskTable,
  groups: readonly string[],
): Promise<string[]> {
  const prefix = `pg_task ${schema} ${table} `;
  const [own = "", ...names] = await shown(client, [
    prefix,
    ...groups.map((group) => prefix + group),
  ]);
  return names.map((name) => name.slice(own.length));
}

/** It replaces what it does not show in such a name, and cuts it, so it is asked for its own version. */
async function shown(client: Client, names: readonly string[]): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT set_config('application_name', n.name, true) AS name
     FROM unnest($1::text[]) WITH ORDINALITY AS n(name, place) ORDER BY n.place`,
    [names],
  );
  return rows.map(({ name }) => name.slice(0, longestName));
}

/**
 * How many executor sessions there are for these entries, which may be in any database of the server, and
 * how many of them run something.
 */
export async function countSessions(
  client: Client,
  entries: readonly PlacedEntry[],
): Promise<{ readonly sessions: number; readonly running: number }> {
  const names = await shown(
    client,
    entries.flatMap(({ schema, table }) => {
      const name = `pg_task ${schema} ${table}`;
      return [name, `${name} `];
    }),
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
