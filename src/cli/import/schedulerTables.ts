import { setTimeout } from "node:timers/promises";
import { PgTaskError } from "../../shared/errors.js";
import type { Client } from "../../shared/postgres/client.js";
import { queryOne, queryValue } from "../../tasks/queryOne.js";
import type { PastRun, Since, Switch } from "./source.js";

/** @throws PgTaskError USAGE if the tables are not there; SCHEMA_NOT_ALLOWED if they may not be read */
export async function requireTables(client: Client, scheduler: string, names: readonly string[]): Promise<void> {
  const { missing, denied, database, role } = await queryOne<{
    missing: string | null;
    denied: string | null;
    database: string;
    role: string;
  }>(
    client,
    `SELECT min(name) FILTER (WHERE relation IS NULL) AS missing,
       min(name) FILTER (WHERE NOT has_schema_privilege(c.relnamespace, 'USAGE') OR NOT has_table_privilege(c.oid, 'SELECT')) AS denied,
       current_database() AS database, quote_ident(current_user) AS role
     FROM (SELECT name, (SELECT c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
         WHERE n.nspname = split_part(name, '.', 1) AND c.relname = split_part(name, '.', 2) AND c.relkind IN ('r', 'p')) AS relation
       FROM unnest($1::text[]) AS name) AS wanted LEFT JOIN pg_class AS c ON c.oid = relation`,
    [names],
  );
  if (missing !== null) {
    throw new PgTaskError(
      "USAGE",
      `no table ${missing} in database ${database}: give the database of ${scheduler} with --from postgres://…`,
    );
  }
  if (denied === null) return;
  const [schema = ""] = denied.split(".");
  const grant = `GRANT USAGE ON SCHEMA ${schema} TO ${role}; GRANT SELECT ON ${names.join(", ")} TO ${role}`;
  throw new PgTaskError(
    "SCHEMA_NOT_ALLOWED",
    `${role} may not read ${denied}: --from with a user that sees all jobs, such as a superuser; or ${grant}`,
    {
      remedy: grant,
    },
  );
}

/**
 * A scheduler looks at its jobs when a minute begins, and may be late or early by some seconds. From second 20 on, it has
 * started those of this minute, and until second 50 it has not looked for those of the next one.
 */
export async function awaitMiddleOfMinute(clock: () => Promise<Date>): Promise<void> {
  const second = ((await clock()).getTime() / 1000) % 60;
  const wait = second < 20 ? 20 - second : second > 50 ? 80 - second : 0;
  await setTimeout(wait * 1000);
}

export const readClock = async (client: Client): Promise<Date> =>
  await queryValue(client, "SELECT clock_timestamp() AS now");

/** @param runs SQL of a query for the runs of the job `id` that have ended, which ends with the time by which to sort */
export async function readLastRuns(
  client: Client,
  runs: string,
  ids: readonly string[],
  count: number,
): Promise<PastRun[]> {
  const { rows } = await client.query<PastRun>(
    `SELECT r.* FROM unnest($1::text[]) AS id CROSS JOIN LATERAL (${runs} DESC LIMIT $2) AS r ORDER BY r.start`,
    [ids, count],
  );
  return rows;
}

interface Tables {
  /** SQL that switches the jobs `$1` (text[]) to `$2` (boolean). */
  readonly update: string;
  /** SQL of a query for `id` and `since`, which also locks the jobs `$1`. */
  readonly since: string;
}

export async function switchRows(
  client: Client,
  { on, ids, inTransaction }: Switch,
  { update, since }: Tables,
  settle: (since: Since) => Promise<void>,
): Promise<void> {
  if (!inTransaction) await client.query("BEGIN");
  try {
    const { rows } = await client.query<{ id: string; since: string }>(since, [ids]);
    const { rowCount } = await client.query(update, [ids, on]);
    if (rowCount !== rows.length) {
      throw new PgTaskError("SCHEMA_NOT_ALLOWED", "not all jobs can be switched there: use --from with their owner");
    }
    await settle(new Map(rows.map((row) => [row.id, row.since])));
    if (!inTransaction) await client.query("COMMIT");
  } catch (error) {
    if (!inTransaction) await client.query("ROLLBACK").catch(() => {});
    throw error;
  }
}
