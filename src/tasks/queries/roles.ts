import type { TaskTable } from "../../manager/schema/taskTable.js";
import { lockClasses, textLockKey } from "../../shared/postgres/advisoryLocks.js";
import { isSessionSql } from "../../shared/postgres/applicationNames.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { identifier, literal } from "../../shared/postgres/quoting.js";
import { mayRead } from "../queryOne.js";
import { dueOrderSql, isDueSql, isPlannedSql } from "../sqlFragments.js";
import { shownKeysSql } from "./clusterProcesses.js";
import { maxCounted } from "./counts.js";

/** A role whose tasks run as itself. */
export interface TableRole {
  readonly role: string;
  readonly login: string;
  /** Most sessions. Null: as many as pg_conf.max allows. */
  readonly max: number | null;
  readonly sessions: number;
  /** Why none of its tasks can run. Null if nothing is known that prevents it. */
  readonly problem: string | null;
}

/** What is wrong with a role that has been taken off the list although it has tasks. */
export const unlisted = "it is not in the list of roles";

/** What is wrong with a role whose sessions the server refuses. */
export const unopened =
  'no session could be opened for it: the log of pg-task says why ("cannot open a session of a role, its tasks wait")';

/** SQL that lists a role, with a login that pg-task makes. */
export const listRole = ({ qualifiedRoles }: TaskTable, role: string): string =>
  `INSERT INTO ${qualifiedRoles} (role, login) VALUES (${literal(role)}, ${literal(`task_${role}`)})`;

/**
 * The roles of a table with users, in the order of their names, also those that are not listed any more but have waiting
 * tasks (this one, if it is given). Null if all tasks of the table run as its owner.
 */
export async function readTableRoles(
  client: Queryable,
  table: TaskTable,
  task: string | null = null,
): Promise<TableRole[] | null> {
  if ((await mayRead(client, table.qualifiedRoles)) !== true) return null;
  const { rows: refused } = await client.query<{ key: number }>(
    `SELECT s.key::pg_catalog.float8 AS key FROM (${shownKeysSql(table, lockClasses.rolesRefused)}) AS s`,
  );
  const refusedKeys = new Set(refused.map(({ key }) => key));
  const { rows } = await client.query<TableRole>(
    `SELECT f.role::text AS role, f.login::text AS login, f.max, (
       SELECT count(*)::integer FROM pg_catalog.pg_stat_activity AS a
       WHERE a.usename OPERATOR(pg_catalog.=) f.login AND a.datname OPERATOR(pg_catalog.=) pg_catalog.current_database() AND ${isSessionSql("a.application_name")}
     ) AS sessions,
     CASE WHEN NOT f.listed THEN '${unlisted}' WHEN r.oid IS NULL THEN 'the role does not exist any more'
       WHEN r.rolsuper OR l.rolsuper THEN pg_catalog.concat('it or its login ', f.login, ' is a superuser')
       WHEN l.oid IS NULL AND f.login::pg_catalog.text OPERATOR(pg_catalog.<>) pg_catalog.concat('task_', f.role) THEN pg_catalog.concat('its login ', f.login, ' does not exist')
       WHEN NOT l.rolcanlogin OR l.rolvaliduntil OPERATOR(pg_catalog.<=) pg_catalog.now() THEN pg_catalog.concat('its login ', f.login, ' may not log in')
       WHEN l.oid IS NOT NULL AND NOT pg_catalog.pg_has_role(l.oid, r.oid, 'MEMBER') THEN pg_catalog.concat('its login ', f.login, ' is not a member of it')
       WHEN NOT pg_catalog.has_schema_privilege(r.oid, $1::pg_catalog.regnamespace, 'USAGE') THEN pg_catalog.concat('it lacks USAGE on the schema ', $1)
       WHEN NOT pg_catalog.has_database_privilege(coalesce(l.oid, r.oid), pg_catalog.current_database(), 'CONNECT') THEN 'its login may not connect to the database' END AS problem
     FROM (
       SELECT x.role, x.login, x.max, true AS listed FROM ${table.qualifiedRoles} AS x
       UNION ALL SELECT u.role, pg_catalog.concat('task_', u.role)::pg_catalog.name, NULL, false FROM (${waitingRoles(table, task !== null)}) AS u
       WHERE NOT EXISTS (SELECT FROM ${table.qualifiedRoles} AS x WHERE x.role OPERATOR(pg_catalog.=) u.role)
     ) AS f LEFT JOIN pg_catalog.pg_roles AS r ON r.rolname OPERATOR(pg_catalog.=) f.role
       LEFT JOIN pg_catalog.pg_roles AS l ON l.rolname OPERATOR(pg_catalog.=) f.login ORDER BY f.role`,
    [identifier(table.schema), ...(task === null ? [] : [task])],
  );
  return rows.map((row) => ({
    ...row,
    problem: row.problem ?? (refusedKeys.has(textLockKey(row.role)) ? unopened : null),
  }));
}

/** The roles of waiting tasks, as far as they are among those that are read, or of the task $2; not the table's owner. */
function waitingRoles({ qualified }: TaskTable, isOne: boolean): string {
  const some = isOne
    ? `SELECT t.role FROM ${qualified} AS t WHERE t.id OPERATOR(pg_catalog.=) $2::pg_catalog.int8`
    : `(SELECT t.role FROM ${qualified} AS t WHERE ${isDueSql} ORDER BY ${dueOrderSql} LIMIT ${maxCounted})
       UNION ALL (SELECT t.role FROM ${qualified} AS t WHERE ${isPlannedSql} ORDER BY t.plan LIMIT ${maxCounted})`;
  return `SELECT DISTINCT w.role::pg_catalog.name AS role FROM (${some}) AS w WHERE w.role::pg_catalog.name OPERATOR(pg_catalog.<>) (
    SELECT pg_catalog.pg_get_userbyid(c.relowner) FROM pg_catalog.pg_class AS c WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass(${literal(qualified)}))`;
}
