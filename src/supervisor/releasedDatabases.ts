import type { Configuration, Entry } from "../shared/config/types.js";
import { PgTaskError } from "../shared/errors.js";
import type { Client } from "../shared/postgres/client.js";
import { identifier, literal } from "../shared/postgres/quoting.js";
import { serverLabel, serversOf } from "../shared/postgres/target/target.js";

/** A database that pg-task has left for maintenance (`pg-task release`). */
export interface ReleasedDatabase {
  /** Empty for the server of the control database. */
  readonly server: string;
  readonly database: string;
  readonly since: string;
  readonly reason: string | null;
  /** Whether the leader has closed all its connections to it. */
  readonly isFree: boolean;
}

export type DatabaseName = Pick<ReleasedDatabase, "server" | "database">;

/** Sent to the processes of a cluster on its channel when the list has changed. */
export const releasedMessage = "released";

/** Processes may reach the control connection's server under different names. */
export const databaseOf = ({ elsewhere, target }: Entry): DatabaseName => ({
  server: elsewhere ? serversOf(target).map(serverLabel).join(",") : "",
  database: target.database,
});

export const isSameDatabase = (a: DatabaseName, b: DatabaseName): boolean =>
  a.server === b.server && a.database === b.database;

export const notIn = <T extends DatabaseName>(list: readonly T[], others: readonly DatabaseName[]): readonly T[] =>
  list.filter((each) => !others.some((other) => isSameDatabase(each, other)));

export function describeReleased({ database, since, reason }: ReleasedDatabase): string {
  const why = reason === null ? "" : ` (${reason})`;
  return `database ${database} has been released for maintenance since ${since.replace(/\.\d+/, "")}${why}: pg-task serve ${database} ends that`;
}

/** The list is kept in the control database, so that each process of the cluster has it, also after a restart. */
const listOf = ({ parameters }: Configuration): { readonly schema: string; readonly name: string } => ({
  schema: parameters["pg_task.schema"],
  name: `${identifier(parameters["pg_task.schema"])}.pg_task_released`,
});

/**
 * Returns whether the list has been made, which the first release does.
 *
 * @throws PgTaskError SCHEMA_INCOMPATIBLE if it may contain code of another role, which would run as this one
 */
async function hasList(client: Pick<Client, "query">, name: string): Promise<boolean> {
  const { rows } = await client.query<{ owner: string; trusted: boolean }>(
    `SELECT r.rolname AS owner, c.relkind = 'r' AND (r.rolname = current_user OR r.rolsuper
       OR r.oid = (SELECT d.datdba FROM pg_database AS d WHERE d.datname = current_database())) AS trusted
     FROM pg_class AS c JOIN pg_roles AS r ON r.oid = c.relowner WHERE c.oid = to_regclass($1)`,
    [name],
  );
  const [found] = rows;
  if (found?.trusted === false) {
    throw new PgTaskError(
      "SCHEMA_INCOMPATIBLE",
      `${name}, the list of released databases, is no table of pg-task's: it belongs to role ${identifier(found.owner)}; drop it, or give it to the role of the control connection`,
    );
  }
  return found !== undefined;
}

/** Those of the cluster. */
export async function readReleased(
  client: Pick<Client, "query">,
  configuration: Configuration,
): Promise<readonly ReleasedDatabase[]> {
  const { name } = listOf(configuration);
  if (!(await hasList(client, name))) return [];
  const { rows } = await client.query<ReleasedDatabase>(
    `SELECT server, database, reason, free AS "isFree", since::text
     FROM ${name} WHERE cluster = $1 ORDER BY server, database`,
    [configuration.parameters["pg_conf.name"]],
  );
  return rows;
}

/** A schema that exists needs no right to create one. */
const createList = (schema: string, name: string): string =>
  `DO ${literal(`BEGIN
  IF to_regnamespace(${literal(identifier(schema))}) IS NULL THEN
    CREATE SCHEMA ${identifier(schema)};
  END IF;
  CREATE TABLE IF NOT EXISTS ${name} (cluster text, server text, database text,
    since timestamptz NOT NULL DEFAULT statement_timestamp(), reason text, free boolean NOT NULL DEFAULT false,
    PRIMARY KEY (cluster, server, database));
  COMMENT ON TABLE ${name} IS 'Databases that pg-task has left for maintenance (pg-task release)';
END`)}`;

/** Also tells the processes of the cluster. Returns false if the database was released already. */
export async function releaseDatabase(
  client: Pick<Client, "query">,
  configuration: Configuration,
  { server, database, reason }: DatabaseName & { readonly reason: string | null },
): Promise<boolean> {
  const { schema, name } = listOf(configuration);
  if (!(await hasList(client, name))) await client.query(createList(schema, name));
  const cluster = configuration.parameters["pg_conf.name"];
  const { rowCount } = await client.query(
    `INSERT INTO ${name} (cluster, server, database, reason) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`,
    [cluster, server, database, reason],
  );
  await tell(client, cluster);
  return rowCount === 1;
}

/** Also tells the processes of the cluster. Returns false if the database was not released. */
export async function serveDatabase(
  client: Pick<Client, "query">,
  configuration: Configuration,
  { server, database }: DatabaseName,
): Promise<boolean> {
  const cluster = configuration.parameters["pg_conf.name"];
  const known = await readReleased(client, configuration);
  if (!known.some((each) => isSameDatabase(each, { server, database }))) return false;
  const { rowCount } = await client.query(
    `DELETE FROM ${listOf(configuration).name} WHERE cluster = $1 AND server = $2 AND database = $3`,
    [cluster, server, database],
  );
  await tell(client, cluster);
  return rowCount === 1;
}

/** Records that the leader has no connection to it any more. */
export async function confirmReleased(
  client: Pick<Client, "query">,
  configuration: Configuration,
  { server, database, since }: ReleasedDatabase,
): Promise<void> {
  await client.query(
    `UPDATE ${listOf(configuration).name} SET free = true
     WHERE cluster = $1 AND server = $2 AND database = $3 AND since = $4::timestamptz`,
    [configuration.parameters["pg_conf.name"], server, database, since],
  );
}

const tell = (client: Pick<Client, "query">, cluster: string): Promise<unknown> =>
  client.query("SELECT pg_notify(concat('pg_conf_', hashtext($1)), $2)", [cluster, releasedMessage]);
