import type { Log } from "../../shared/log.js";
import { sqlState, type Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "./taskTable.js";

export interface UnknownZone {
  readonly zone: string;
  /**
   * Where it is set: `configuration`, `server` (its configuration file or the connection string), or the object of
   * the ALTER statement, such as `DATABASE shop`.
   */
  readonly from: string;
}

const zoneNamesQuery = "SELECT name FROM pg_timezone_names";

/** The server accepts any text for `pg_task.zone`. Only an INSERT of a rule without `zone` uses it. */
export async function unknownZones(client: Client, table: TaskTable, configured: string): Promise<UnknownZone[]> {
  const found = [{ zone: configured, from: "configuration" }, ...(await settingsOfServer(client, table))];
  const unknown: UnknownZone[] = [];
  for (const each of found) if (each.zone !== "" && !(await isZoneName(client, each.zone))) unknown.push(each);
  return unknown;
}

/**
 * Returns the settings for the connection's role, for roles that can insert tasks, for the database and for the server.
 * Those that are overridden for the connection's role are included, because other roles may use them.
 */
async function settingsOfServer(client: Client, { qualified }: TaskTable): Promise<UnknownZone[]> {
  const { rows } = await client.query<UnknownZone>(
    `WITH made AS (
       SELECT substr(c, strpos(c, '=') + 1) AS zone, CASE WHEN d.setrole = 0 AND d.setdatabase = 0 THEN 'ROLE ALL'
           WHEN d.setrole = 0 THEN format('DATABASE %I', current_database())
           WHEN d.setdatabase = 0 THEN format('ROLE %I', r.rolname)
           ELSE format('ROLE %I IN DATABASE %I', r.rolname, current_database()) END AS "from"
       FROM pg_catalog.pg_db_role_setting AS d LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = d.setrole, unnest(d.setconfig) AS c
       WHERE lower(split_part(c, '=', 1)) = 'pg_task.zone'
         AND d.setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()))
         AND (d.setrole = 0 OR r.rolname = session_user OR has_table_privilege(r.oid, to_regclass($1), 'INSERT'))
     ), used AS (
       SELECT current_setting('pg_task.zone', true) AS zone
     )
     SELECT zone, "from" FROM made
     UNION ALL SELECT zone, 'server' FROM used WHERE zone IS NOT NULL AND zone NOT IN (SELECT zone FROM made)
     ORDER BY "from"`,
    [qualified],
  );
  return rows;
}

/** Says whether a value of the configuration is that of the file or that of an entry. */
export const placeZone = (unknown: UnknownZone, isFiles: boolean): UnknownZone =>
  unknown.from === "configuration" ? { ...unknown, from: isFiles ? "file" : "entry" } : unknown;

export function describeUnknownZone({ zone, from }: UnknownZone): { readonly text: string; readonly remedy: string } {
  const place = from === "server" ? "the server's configuration or the connection string" : from;
  return {
    text: `pg_task.zone (${place}) is ${JSON.stringify(zone)}, which is no name of a time zone on this server: INSERTs of rules without zone that use it fail`,
    remedy: `choose one of ${zoneNamesQuery}, and set it ${/^(?:ROLE|DATABASE) /.test(from) ? `with ALTER ${from} SET pg_task.zone = …` : "there"}`,
  };
}

export async function logUnknownZones(client: Client, table: TaskTable, configured: string, log: Log): Promise<void> {
  for (const { zone, from } of await unknownZones(client, table, configured)) {
    log.warn(
      { table: table.logName, setting: "pg_task.zone", value: zone, from },
      "time zone unknown to the server, rules that need it are refused",
    );
  }
}

/** The function `task_zone_check`, by which INSERT decides, has the same rules. */
async function isZoneName(client: Client, zone: string): Promise<boolean> {
  try {
    await client.query("SELECT now() AT TIME ZONE $1::text", [zone]);
  } catch (error) {
    if (sqlState(error) !== "22023") throw error;
    return false;
  }
  if (/^[cemw]et$/i.test(zone)) return false;
  // The list of all names takes the server a tenth of a second.
  if (/^(?:utc|gmt|[a-z_]+(?:\/[a-z_-]+)+)$/i.test(zone)) return true;
  const { rows } = await client.query<{ known: boolean }>(
    "SELECT EXISTS (SELECT FROM pg_catalog.pg_timezone_names WHERE lower(name) = lower($1)) AS known",
    [zone],
  );
  return rows[0]?.known === true;
}
