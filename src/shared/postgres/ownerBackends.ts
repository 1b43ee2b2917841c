import { lockClasses } from "./advisoryLocks.js";
import { idleSessionName, type TaskTableName } from "./applicationNames.js";
import { literal } from "./quoting.js";

/** The server truncates application names to this number of bytes. */
const maxNameBytes = 63;

interface OwnedTable extends TaskTableName {
  /** Schema and name, quoted for use in statements. */
  readonly qualified: string;
}

/**
 * SQL condition that is true if a row of pg_stat_activity may be a session of this table, so that it may run the tasks
 * that it owns. A row that was copied from another table or database (a dump, INSERT … SELECT) has an owner that runs the
 * task of the original. Such a backend is of another database, or its application name names another table that a
 * manager serves. A task can change the name, and the table may have been renamed, so another name alone proves nothing.
 *
 * @param alias alias of pg_catalog.pg_stat_activity in the query
 */
export function mayServeSql(alias: string, table: OwnedTable): string {
  const name = `${alias}.application_name`;
  return `(${alias}.datname = pg_catalog.current_database() AND (${isSessionOfSql(name, table)}
    OR NOT EXISTS (SELECT FROM (${otherTablesSql(table)}) AS s WHERE ${name} = s.name OR starts_with(${name}, s.name || ' '))))`;
}

/**
 * SQL condition that is true if a row of pg_stat_activity is a session of this table. Unlike `mayServeSql`, it is false
 * if the backend's name does not tell and the backend may therefore be a session of another table of the database.
 */
export function servesSql(alias: string, table: OwnedTable): string {
  return `(${alias}.datname = pg_catalog.current_database() AND (${isSessionOfSql(`${alias}.application_name`, table)}
    OR NOT EXISTS (${otherTablesSql(table)})))`;
}

/** Compares the part of the name that the server neither truncates nor replaces. */
function isSessionOfSql(name: string, table: OwnedTable): string {
  const idle = idleSessionName(table);
  const [printable = ""] = /^[ -~]*/.exec(idle) ?? [];
  const shown = printable.slice(0, maxNameBytes);
  const isWhole = shown === idle && shown.length < maxNameBytes;
  return isWhole
    ? `(${name} = ${literal(shown)} OR starts_with(${name}, ${literal(`${shown} `)}))`
    : `starts_with(${name}, ${literal(shown)})`;
}

/** The names of the idle sessions of the other tables of the database that managers serve. */
const otherTablesSql = ({ qualified }: OwnedTable): string => `
  SELECT concat('pg_task ', n.nspname, ' ', c.relname) AS name FROM pg_catalog.pg_locks AS l
  JOIN pg_catalog.pg_class AS c ON c.oid = l.objid JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = ${lockClasses.manager}::bigint::oid
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
    AND c.oid <> to_regclass(${literal(qualified)})`;
