import type { Client } from "../../shared/postgres/client.js";
import { isOwnerSql, ownerSql } from "../../shared/postgres/backendIdentity.js";
import { mayServeSql, servesSql } from "../../shared/postgres/ownerBackends.js";
import type { TaskTable } from "../schema/taskTable.js";

/**
 * Finds which of these owners' backends are gone, or do not serve this table because the row was copied from another
 * one. A statement of its own: pg_stat_activity is not part of a snapshot, so a statement that also read rows could see
 * that a backend is gone without seeing what its run committed just before.
 */
export async function findDeadOwners(client: Client, table: TaskTable, owners: readonly string[]): Promise<string[]> {
  const { rows } = await client.query<{ owner: string }>({
    name: "dead owners",
    text: `
SELECT o.owner FROM unnest($1::text[]) AS o(owner)
WHERE NOT EXISTS (
  SELECT FROM pg_stat_activity AS a
  WHERE a.pid::text = split_part(o.owner, ' ', 1)
    AND ${isOwnerSql("a", "o.owner")} AND ${mayServeSql("a", table)})`,
    values: [owners],
  });
  return rows.map((row) => row.owner);
}

/**
 * Terminates the backends of these owners, except those of other roles and, unless they are this manager's own sessions
 * (`areOwn`), those that are not known to serve this table.
 *
 * @returns how many were terminated
 */
export async function terminateOwners(
  client: Client,
  table: TaskTable,
  { owners, areOwn }: { readonly owners: readonly string[]; readonly areOwn: boolean },
): Promise<number> {
  const { rows } = await client.query({
    name: `${areOwn ? "end own sessions" : "end owners"}${table.usersOwner === null ? "" : " users"}`,
    text: `
SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity AS a
WHERE ${ownerSql("a")} = ANY ($1::text[]) AND ${mayEndSql(table)}
  AND ${areOwn ? "a.datname = current_database()" : servesSql("a", table)}`,
    values: [owners],
  });
  return rows.length;
}

/** With users, sessions of other roles can be ended with the privileges of pg_signal_backend only. */
const mayEndSql = ({ usersOwner, qualifiedRoles }: TaskTable): string =>
  usersOwner === null
    ? "a.usename = current_user"
    : `(a.usename = current_user OR pg_has_role('pg_signal_backend', 'USAGE') AND a.usename IN (SELECT r.login FROM ${qualifiedRoles} AS r))`;
