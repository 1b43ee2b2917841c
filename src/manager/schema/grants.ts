import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import type { TaskTable } from "./taskTable.js";

const relationsSql = `
  WITH named AS (
    SELECT c.oid FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relname = ANY ($2::text[])
  )
  SELECT oid FROM named UNION ALL
  SELECT c.oid FROM pg_catalog.pg_depend AS d JOIN pg_catalog.pg_class AS c ON c.oid = d.objid AND c.relkind = 'S'
  WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass
    AND d.refobjid IN (SELECT oid FROM named) AND d.deptype IN ('a', 'i')`;

/** What commands read that change nothing. */
export const relationsToRead = (table: TaskTable): readonly string[] => [
  table.table,
  table.pauseTable,
  table.homeTable,
  table.dependencyTable,
  table.owedTable,
  table.turnTable,
  table.statsView,
  table.errorsView,
  table.groupsView,
  table.schedulesView,
];

const relationsOf = (table: TaskTable): readonly [string, readonly string[]] => [
  table.schema,
  [
    ...relationsToRead(table),
    table.ledger1,
    table.ledger2,
    table.failureTable,
    table.roleTable,
    table.webhookTable,
    table.outboxTable,
  ],
];

export async function readRelations(client: Client, table: TaskTable): Promise<readonly number[]> {
  const { rows } = await client.query<{ oid: number }>(relationsSql, [...relationsOf(table)]);
  return rows.map(({ oid }) => oid);
}

/**
 * Revokes what ALTER DEFAULT PRIVILEGES has granted on the tables, views and sequences that have been created since
 * `before` was read. Who may insert a task runs SQL as the owner, so nobody may unless it was granted for this table.
 */
export async function revokeDefaultGrants(client: Client, table: TaskTable, before: readonly number[]): Promise<void> {
  const { rows } = await client.query<{ text: string }>(
    `SELECT format('REVOKE ALL ON %s %I.%I FROM %s', CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, n.nspname,
       c.relname, string_agg(DISTINCT CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(r.rolname) END, ', ')) AS text
     FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace,
       aclexplode(c.relacl) AS g LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = g.grantee
     WHERE c.oid IN (${relationsSql}) AND c.oid <> ALL ($3::oid[]) AND g.grantee <> c.relowner
     GROUP BY c.oid, c.relkind, n.nspname, c.relname`,
    [...relationsOf(table), before],
  );
  for (const { text } of rows) await client.query(text);
}

/** Earlier versions of the view of the schedules did not read the table of owed successors. */
export async function grantOwedToReaders(client: Client, table: TaskTable): Promise<void> {
  const { rows } = await client.query<{ text: string }>(
    `SELECT format('GRANT SELECT ON %s TO %s', $2::text, string_agg(DISTINCT CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(r.rolname) END, ', ')) AS text
     FROM (
       SELECT c.relowner, c.relacl AS acl FROM pg_catalog.pg_class AS c WHERE c.oid = to_regclass($1)
       UNION ALL
       SELECT c.relowner, a.attacl FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid
       WHERE c.oid = to_regclass($1) AND NOT a.attisdropped
     ) AS v, aclexplode(v.acl) AS g LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = g.grantee
     WHERE g.privilege_type = 'SELECT' AND g.grantee <> v.relowner HAVING count(*) > 0`,
    [table.qualifiedSchedules, table.qualifiedOwed],
  );
  for (const { text } of rows) await client.query(text);
}

/** The roles that may add or change tasks, quoted, besides the table's owner, superusers and the current role. */
export interface Writers {
  readonly unrestricted: readonly string[];
  readonly byColumn: readonly string[];
}

export async function readWriters(client: Client, { qualified }: TaskTable): Promise<Writers> {
  const { rows } = await client.query<{ role: string; unrestricted: boolean }>(
    `SELECT CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(r.rolname) END AS role,
       g.grantee = 0 OR bool_or(g.whole) AS unrestricted
     FROM (
       SELECT c.relowner, x.grantee, x.privilege_type, true AS whole
       FROM pg_catalog.pg_class AS c, aclexplode(c.relacl) AS x WHERE c.oid = to_regclass($1)
       UNION ALL
       SELECT c.relowner, x.grantee, x.privilege_type, false
       FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND NOT a.attisdropped,
         aclexplode(a.attacl) AS x WHERE c.oid = to_regclass($1)
     ) AS g LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = g.grantee
     WHERE g.privilege_type IN ('INSERT', 'UPDATE') AND g.grantee <> g.relowner
       AND (g.grantee = 0 OR NOT r.rolsuper AND r.rolname <> current_user)
     GROUP BY g.grantee, r.rolname ORDER BY g.grantee <> 0, r.rolname`,
    [qualified],
  );
  return {
    unrestricted: rows.flatMap(({ role, unrestricted }) => (unrestricted ? role : [])),
    byColumn: rows.flatMap(({ role, unrestricted }) => (unrestricted ? [] : role)),
  };
}

export const revokeWriting = ({ qualified }: TaskTable, roles: readonly string[]): string =>
  `REVOKE INSERT, UPDATE ON ${qualified} FROM ${roles.join(", ")}`;

/** Logs which roles may write tasks, and so run SQL as the table's owner. */
export async function logWriters(client: Client, table: TaskTable, log: Log): Promise<void> {
  // With users, it is the roles that write that the tasks run as.
  if (table.usersOwner !== null) return;
  const { unrestricted, byColumn } = await readWriters(client, table);
  if (unrestricted.length > 0) {
    const remedy = revokeWriting(table, unrestricted);
    log.warn({ table: table.logName, roles: unrestricted, remedy }, "other roles may write tasks");
  }
  if (byColumn.length > 0) {
    log.info({ table: table.logName, roles: byColumn }, "other roles may write some columns of tasks");
  }
}
