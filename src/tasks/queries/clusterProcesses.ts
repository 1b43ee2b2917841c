import { queryOne } from "../queryOne.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client, Queryable } from "../../shared/postgres/client.js";
import { lockClasses } from "../../shared/postgres/advisoryLocks.js";
import {
  isManagerSql,
  isPgTaskSql,
  isSessionSql,
  isSupervisorSql,
  isWebSql,
} from "../../shared/postgres/applicationNames.js";
import { foreignHolderRemedy } from "../../shared/postgres/frozenHolder.js";
import { isTrustedSql } from "../../shared/postgres/backendIdentity.js";
import { literal } from "../../shared/postgres/quoting.js";
import { isoTimeSql } from "../sqlFragments.js";

/** A backend of one of pg-task's connections. Values that this role cannot see are null. */
export interface ServerProcess {
  readonly pid: number;
  /** Address of the backend's client. Null if the client uses a Unix socket. */
  readonly address: string | null;
  readonly since: string | null;
  readonly user: string | null;
  readonly name: string | null;
}

const processColumns = `a.pid, host(a.client_addr) AS address, ${isoTimeSql("a.backend_start")} AS since,
  a.usename AS "user", a.application_name AS name`;

/**
 * A backend that holds one of pg-task's locks, which any role may take, although its name is not that of a pg-task, or
 * its role is neither this one, nor a member of it, nor a superuser. A table's owner may take its lock, too.
 */
export interface ForeignHolder extends ServerProcess {
  /** Whether it has the name of a pg-task. It may then be one that connects as another role. */
  readonly isPgTask: boolean;
}

export function describeForeignHolder({ pid, user, name, isPgTask }: ForeignHolder): string {
  const who = `server process ${pid} of role ${user ?? "?"}`;
  return isPgTask
    ? `${who}, which is not the role that this configuration connects as, holds the lock of pg-task`
    : `${who} (${name === null || name === "" ? "without an application name" : name}) holds the lock of pg-task, and is none`;
}

/** To a role that only looks, the pg-task that serves the table is a foreign holder, too. */
export const remedyOfHolder = ({ pid, isPgTask }: ForeignHolder): string =>
  isPgTask
    ? "nothing is wrong if it is your pg-task, and this role only looks; if another pg-task with this configuration has to start, give both the same role"
    : foreignHolderRemedy(pid);

interface Holder extends ServerProcess {
  readonly isPgTask: boolean;
  readonly isTrusted: boolean;
}

const plain = ({ pid, address, since, user, name }: Holder): ServerProcess => ({ pid, address, since, user, name });

const toForeign = (holder: Holder | undefined): ForeignHolder | null =>
  holder === undefined || (holder.isPgTask && holder.isTrusted)
    ? null
    : { ...plain(holder), isPgTask: holder.isPgTask };

export async function readCluster(
  control: Client,
  name: string,
): Promise<{ leader: ServerProcess | null; foreignHolder: ForeignHolder | null; standbys: ServerProcess[] }> {
  const { rows } = await control.query<Holder & { leads: boolean; other: boolean }>(
    `WITH led AS (
       SELECT pid, objid = hashtext($2)::bigint & 4294967295 AS ours FROM pg_catalog.pg_locks
       WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = $1::bigint::oid
         AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
     )
     SELECT ${processColumns}, coalesce(l.ours, false) AS leads, coalesce(NOT l.ours, false) AS other,
       coalesce(${isSupervisorSql("a.application_name")}, false) AS "isPgTask", ${isTrustedSql("a")} AS "isTrusted"
     FROM pg_catalog.pg_stat_activity AS a LEFT JOIN led AS l ON l.pid = a.pid
     WHERE (${isSupervisorSql("a.application_name")} OR l.ours) AND a.datname = current_database()
     ORDER BY a.backend_start, a.pid`,
    [lockClasses.supervisor, name],
  );
  const holder = rows.find(({ leads }) => leads);
  return {
    leader: holder?.isPgTask === true ? plain(holder) : null,
    foreignHolder: toForeign(holder),
    standbys: rows.filter(({ leads, other }) => !leads && !other).map(plain),
  };
}

/** The leader of another cluster on the same server. */
export interface OtherLeader extends ServerProcess {
  readonly database: string;
  /** Whether the other cluster has the same name as this cluster, but another control database. */
  readonly sameName: boolean;
}

const maxOtherLeaders = 10;

/** Of clusters with another name or another control database. Leaders with the same control database come first. */
export async function readOtherLeaders(control: Client, name: string): Promise<OtherLeader[]> {
  const { rows } = await control.query<OtherLeader>(
    `SELECT ${processColumns}, led.database, led.same AS "sameName"
     FROM (
       SELECT l.pid, d.datname AS database, l.objid = hashtext($2)::bigint & 4294967295 AS same,
         d.datname = current_database() AS here
       FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_database AS d ON d.oid = l.database
       WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = $1::bigint::oid
     ) AS led JOIN pg_catalog.pg_stat_activity AS a ON a.pid = led.pid
     WHERE NOT (led.here AND led.same) AND ${isSupervisorSql("a.application_name")} ORDER BY NOT led.here, NOT led.same, a.backend_start, a.pid LIMIT ${maxOtherLeaders}`,
    [lockClasses.supervisor, name],
  );
  return rows;
}

/** SQL: whether a row of pg_locks is the lock of the table's manager. */
const isManagersLock = (alias: string, { qualified }: TaskTable): string =>
  `${alias}.locktype = 'advisory' AND ${alias}.granted AND ${alias}.objsubid = 2 AND ${alias}.classid = ${lockClasses.manager}::bigint::oid
    AND ${alias}.objid = to_regclass(${literal(qualified)})::oid
    AND ${alias}.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())`;

const lockHolder = (table: TaskTable): string => `pg_catalog.pg_locks AS l
     LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid WHERE ${isManagersLock("l", table)}`;

/** The lower halves of the keys of the locks of a class by which the table's manager shows something. */
export const shownKeysSql = (table: TaskTable, lockClass: number): string => `SELECT r.objid::bigint AS key
  FROM pg_catalog.pg_locks AS m JOIN pg_catalog.pg_locks AS r ON r.pid = m.pid AND r.database = m.database
  WHERE ${isManagersLock("m", table)} AND r.locktype = 'advisory' AND r.granted AND r.objsubid = 2 AND r.classid = ${lockClass}::bigint::oid`;

/** Since when the table's manager is connected. Its predecessor may have started tasks until then. */
export const managerSinceSql = (table: TaskTable): string =>
  `SELECT a.backend_start FROM ${lockHolder(table)} AND ${isManagerSql("a.application_name")} LIMIT 1`;

export async function readTableLock(
  client: Queryable,
  table: TaskTable,
): Promise<{ readonly manager: ServerProcess | null; readonly foreignHolder: ForeignHolder | null }> {
  const { rows } = await client.query<Holder>(
    `SELECT l.pid, host(a.client_addr) AS address, ${isoTimeSql("a.backend_start")} AS since,
       a.usename AS "user", a.application_name AS name,
       coalesce(${isManagerSql("a.application_name")}, false) AS "isPgTask", coalesce(${isTrustedSql("a")} OR pg_has_role(a.usesysid,
         (SELECT c.relowner FROM pg_catalog.pg_class AS c WHERE c.oid = l.objid), 'MEMBER'), false) AS "isTrusted"
     FROM ${lockHolder(table)}`,
  );
  const [holder] = rows;
  return { manager: holder?.isPgTask === true ? plain(holder) : null, foreignHolder: toForeign(holder) };
}

/** An unprivileged role does not see the type of other roles' backends, but that they have a database and a user. */
const occupiesConnection =
  "backend_type = 'client backend' OR backend_type IS NULL AND datid IS NOT NULL AND usesysid IS NOT NULL";

/** Part of the output of `status --json`. */
export async function readConnections(client: Queryable): Promise<{ readonly most: number; readonly taken: number }> {
  return await queryOne<{ most: number; taken: number }>(
    client,
    `SELECT current_setting('max_connections')::integer AS most,
       (SELECT count(*)::integer FROM pg_catalog.pg_stat_activity WHERE ${occupiesConnection}) AS taken`,
  );
}

export async function countConnectionsByRole(
  client: Client,
): Promise<readonly { readonly role: string; readonly connections: number }[]> {
  const { rows } = await client.query<{ role: string; connections: number }>(
    `SELECT CASE WHEN ${isWebSql("application_name")} THEN 'web'
         WHEN ${isSupervisorSql("application_name")} THEN 'supervisor'
         WHEN ${isManagerSql("application_name")} THEN 'manager'
         WHEN ${isSessionSql("application_name")} THEN 'session' END AS role, count(*)::int AS connections
     FROM pg_stat_activity WHERE datname = current_database()
     GROUP BY 1 HAVING bool_and(${isPgTaskSql("application_name")})`,
  );
  return rows.filter(({ role }) => role !== null);
}

/**
 * The queue, which all databases share, is full at a usage of 1. The oldest visible transaction may keep it from being
 * emptied, if its session listens.
 */
export async function readNotificationQueue(client: Queryable) {
  const { usage, pid, description } = await queryOne<{ usage: number; pid: number | null; description: string }>(
    client,
    `SELECT pg_catalog.pg_notification_queue_usage() AS usage, a.pid, a.description
     FROM (VALUES (1)) AS one LEFT JOIN (
       SELECT pid, pg_catalog.format('server process %s (%s in %s, %s), in a transaction since %s',
         pid, usename, datname, application_name, xact_start) AS description
       FROM pg_catalog.pg_stat_activity
       WHERE backend_type OPERATOR(pg_catalog.=) 'client backend' AND xact_start IS NOT NULL
         AND pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()
       ORDER BY xact_start LIMIT 1) AS a ON true`,
  );
  return { usage, oldest: pid === null ? null : { pid, description } };
}
