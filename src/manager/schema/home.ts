import { randomUUID } from "node:crypto";
import type { Entry } from "../../shared/config/types.js";
import { errorDefinitions } from "../../shared/errorCodes.js";
import type { ErrorReport } from "../../shared/errors.js";
import type { Queryable } from "../../shared/postgres/client.js";
import type { TaskTable } from "./taskTable.js";

/** What tells a table from its copies. Oids and the system identifier are decimal numbers as text. */
interface Place {
  /** The system identifier of the server. Null if the role may not read it; it is then not compared. */
  readonly system: string | null;
  readonly database: string;
  readonly table: string;
  readonly version: number;
}

interface Home extends Place {
  /** `pg_conf.name` of the pg-task that has recorded it. */
  readonly cluster: string;
  /** `pg_task.home` of the pg-task that has recorded it, or null if that was not set. */
  readonly label: string | null;
}

type Configured = Pick<Entry, "parameters">;

/**
 * Returns why the table is a copy, or null if it is at home here. A dump and its restore change the oid of the table,
 * CREATE DATABASE … TEMPLATE that of the database. pg_upgrade changes the system identifier and, before PostgreSQL 15,
 * the oid of the database, but always together with the major version. Only `pg_task.home` tells a snapshot of a whole
 * machine from the original. Rows of another table can be loaded into the home table, so every row has to be of this
 * place.
 */
export async function readCopyReason(
  client: Queryable,
  table: TaskTable,
  configured: Configured,
): Promise<string | null> {
  const [homes, here] = await Promise.all([readHomes(client, table), readPlace(client, table)]);
  return homes.length === 0 ? null : findDifference(homes, here, configured);
}

export const homeChanged = "home";

/** @param running how many of its tasks run, because they had begun before the rows of another table were loaded */
export const describeCopy = (reason: string, running: number): string =>
  `the table is a copy, and nothing ${running > 0 ? "more " : ""}starts: ${reason}`;

export const copyReport = (reason: string, running: number): ErrorReport => ({
  code: "SCHEMA_COPY",
  message: `${describeCopy(reason, running)}: ${errorDefinitions.SCHEMA_COPY.remedy}`,
});

/**
 * Records where the table is at home if that is not known yet, and after pg_upgrade. The record of a copy stays as it
 * is. Called in a transaction that keeps other managers from doing the same.
 */
export async function settleHome(client: Queryable, table: TaskTable, configured: Configured): Promise<void> {
  const homes = await readHomes(client, table);
  const here = await readPlace(client, table);
  if (findDifference(homes, here, configured) !== null) return;
  const cluster = configured.parameters["pg_conf.name"];
  if (homes.length === 0) await insertHome(client, table, here, configured);
  else if (homes.some((home) => !isRecorded(home, here, cluster)))
    await client.query(
      `UPDATE ${table.qualifiedHome} SET system = coalesce($1, system), database = $2, version = $3, cluster = $4`,
      [here.system, here.database, here.version, cluster],
    );
}

/** Whether `settleHome` would change nothing. */
export async function isHomeSettled(client: Queryable, table: TaskTable, configured: Configured): Promise<boolean> {
  const homes = await readHomes(client, table);
  if (homes.length === 0) return false;
  const here = await readPlace(client, table);
  const cluster = configured.parameters["pg_conf.name"];
  return findDifference(homes, here, configured) !== null || homes.every((home) => isRecorded(home, here, cluster));
}

export async function replaceHome(client: Queryable, table: TaskTable, configured: Configured): Promise<void> {
  await client.query(`DELETE FROM ${table.qualifiedHome}`);
  await insertHome(client, table, await readPlace(client, table), configured);
}

async function insertHome(client: Queryable, table: TaskTable, here: Place, { parameters }: Configured): Promise<void> {
  const { "pg_conf.name": cluster, "pg_task.home": label } = parameters;
  await client.query(
    `INSERT INTO ${table.qualifiedHome} (id, system, database, "table", version, cluster, label) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
    [randomUUID(), here.system, here.database, here.table, here.version, cluster, label === "" ? null : label],
  );
}

const isRecorded = (home: Home, here: Place, cluster: string): boolean =>
  home.system === (here.system ?? home.system) &&
  home.database === here.database &&
  home.version === here.version &&
  home.cluster === cluster;

export async function readHomes(client: Queryable, table: TaskTable): Promise<readonly Home[]> {
  const { rows } = await client.query<Home>(
    `SELECT h.system::pg_catalog.text AS system, h.database::pg_catalog.text AS database, h."table"::pg_catalog.text AS "table",
       h.version, h.cluster, h.label FROM ${table.qualifiedHome} AS h ORDER BY h.since, h.id`,
  );
  return rows;
}

export async function readPlace(client: Queryable, table: TaskTable): Promise<Place> {
  const { rows } = await client.query<Place & { readonly mayReadSystem: boolean }>(
    `SELECT pg_catalog.to_regclass($1)::pg_catalog.oid::pg_catalog.text AS "table", d.oid::pg_catalog.text AS database,
       pg_catalog.current_setting('server_version_num')::pg_catalog.int4 OPERATOR(pg_catalog./) 10000 AS version,
       pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE') AS "mayReadSystem"
     FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()`,
    [table.qualified],
  );
  const [found] = rows;
  if (found === undefined) throw new Error("the server does not list its own database");
  const { mayReadSystem, ...place } = found;
  return { ...place, system: mayReadSystem ? await readSystem(client) : null };
}

async function readSystem(client: Queryable): Promise<string | null> {
  const { rows } = await client.query<{ system: string }>(
    "SELECT system_identifier::pg_catalog.text AS system FROM pg_catalog.pg_control_system()",
  );
  return rows[0]?.system ?? null;
}

/** How this place differs from one where the table is at home. Null if it differs from none. */
export function findDifference(homes: readonly Home[], here: Place, { parameters }: Configured): string | null {
  for (const home of homes) {
    const difference = describeDifference(home, here, parameters["pg_task.home"]);
    if (difference !== null) return difference;
  }
  return null;
}

function describeDifference(home: Home, here: Place, label: string): string | null {
  const origin = `the original (pg_conf.name ${JSON.stringify(home.cluster)})`;
  if (home.table !== here.table) return `its oid is ${here.table}, that of ${origin} is ${home.table}`;
  const isSameVersion = home.version === here.version;
  if (isSameVersion && home.database !== here.database)
    return `the oid of its database is ${here.database}, that of ${origin} is ${home.database}`;
  if (isSameVersion && (home.system ?? here.system) !== (here.system ?? home.system))
    return `the system identifier of its server is ${here.system}, that of ${origin} is ${home.system}`;
  if (label === "" || label === home.label) return null;
  return `pg_task.home is ${JSON.stringify(label)} here, and for ${origin} it is ${home.label === null ? "not set" : JSON.stringify(home.label)}`;
}
