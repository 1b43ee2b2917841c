import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { lockClasses } from "../../shared/postgres/advisoryLocks.js";
import { isoTime } from "../time.js";

/** A server process of pg-task's. What the server does not show to this role is null. */
export interface Process {
  readonly pid: number;
  /** Address of its client, null for a Unix socket as well. */
  readonly address: string | null;
  readonly since: string | null;
  readonly user: string | null;
  readonly name: string | null;
}

const processColumns = `a.pid, host(a.client_addr) AS address, ${isoTime("a.backend_start")} AS since,
  a.usename AS "user", a.application_name AS name`;

/** Who leads the cluster of that name, and who stands by; on the control connection. */
export async function readCluster(
  control: Client,
  name: string,
): Promise<{ leader: Process | null; standbys: Process[] }> {
  const { rows } = await control.query<Process & { leads: boolean; other: boolean }>(
    `WITH led AS (
       SELECT pid, objid = hashtext($2)::bigint & 4294967295 AS ours FROM pg_catalog.pg_locks
       WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = $1::bigint::oid
         AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
     )
     SELECT ${processColumns}, coalesce(l.ours, false) AS leads, coalesce(NOT l.ours, false) AS other
     FROM pg_catalog.pg_stat_activity AS a LEFT JOIN led AS l ON l.pid = a.pid
     WHERE (a.application_name = 'pg_conf' OR l.ours) AND a.datname = current_database()
     ORDER BY a.backend_start, a.pid`,
    [lockClasses.supervisor, name],
  );
  const plain = ({ pid, address, since, user, name: called }: Process): Process => ({
    pid,
    address,
    since,
    user,
    name: called,
  });
  const leader = rows.find(({ leads }) => leads);
  return {
    leader: leader === undefined ? null : plain(leader),
    standbys: rows.filter(({ leads, other }) => !leads && !other).map(plain),
  };
}

/** Who leads another cluster on the same server. */
export interface OtherLeader extends Process {
  /** Of its control connection. */
  readonly database: string;
  /** Whether its cluster has this one's name, and another control database. */
  readonly sameName: boolean;
}

/** Most other leaders that are told of. */
const mostOthers = 10;

/**
 * Who leads clusters of other names, or with other control databases, on the control connection's server;
 * those with its own database first.
 */
export async function readOtherLeaders(control: Client, name: string): Promise<OtherLeader[]> {
  const { rows } = await control.query<OtherLeader>(
    `SELECT ${processColumns}, led.database, led.same AS "sameName"
     FROM (
       SELECT l.pid, d.datname AS database, l.objid = hashtext($2)::bigint & 4294967295 AS same,
         d.datname = current_database() AS here
       FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_database AS d ON d.oid = l.database
       WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = $1::bigint::oid
     ) AS led JOIN pg_catalog.pg_stat_activity AS a ON a.pid = led.pid
     WHERE NOT (led.here AND led.same) ORDER BY NOT led.here, NOT led.same, a.backend_start, a.pid LIMIT ${mostOthers}`,
    [lockClasses.supervisor, name],
  );
  return rows;
}

/** The manager that works on the table, null when none has its lock. */
export async function readManager(
  client: Client,
  { qualified }: TaskTable,
): Promise<Process | null> {
  const { rows } = await client.query<Process>(
    `SELECT l.pid, host(a.client_addr) AS address, ${isoTime("a.backend_start")} AS since,
       a.usename AS "user", a.application_name AS name
     FROM pg_catalog.pg_locks AS l LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
     WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = $1::bigint::oid
       AND l.objid = to_regclass($2)::oid
       AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())`,
    [lockClasses.manager, qualified],
  );
  return rows[0] ?? null;
}

/** Of what other roles have, the server shows the kind to few, but to all whether it has a database and a user. */
const takesConnection =
  "backend_type = 'client backend' OR backend_type IS NULL AND datid IS NOT NULL AND usesysid IS NOT NULL";

/** How many connections the server has, and how many of them are taken. */
export async function readConnections(
  client: Client,
): Promise<{ readonly most: number; readonly taken: number }> {
  const { rows } = await client.query<{ most: number; taken: number }>(
    `SELECT current_setting('max_connections')::integer AS most,
       (SELECT count(*)::integer FROM pg_catalog.pg_stat_activity WHERE ${takesConnection}) AS taken`,
  );
  return rows[0] ?? { most: 0, taken: 0 };
}
