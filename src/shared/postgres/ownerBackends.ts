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
 * SQL condition: a row of pg_stat_activity may be a session of this table. A task's row that was copied from elsewhere
 * has the owner of the original: a backend of another database, or one whose name names another table that a manager
 * serves. Another name alone proves nothing, because a task or a renaming of the table can change it.
 */
export function mayServeSql(alias: string, table: OwnedTable): string {
  const name = `${alias}.application_name`;
  return `(${alias}.datname = pg_catalog.current_database() AND (${isSessionOfSql(name, table)}
    OR NOT EXISTS (SELECT FROM (${otherTablesSql(table)}) AS s WHERE ${name} = s.name OR starts_with(${name}, s.name || ' '))))`;
}

/** Like `mayServeSql`, but false if the backend's name does not tell whether it is a session of another table. */
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
