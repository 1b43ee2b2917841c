import type { Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { isTrustedOwner } from "./trustedOwner.sql.js";
import { objectNames, taskTable, type TaskTable } from "./taskTable.js";

/**
 * Finds where a table was before it was renamed or moved: its trigger still calls the wake-up function of that place.
 * If the names of its objects contain a hash, it is found only by its present name. Null if another table is in that
 * place now.
 */
export async function findOrigin(client: Client, table: TaskTable): Promise<TaskTable | null> {
  const { rows } = await client.query<{ schema: string; name: string }>(
    `SELECT DISTINCT n.nspname::text AS schema, p.proname::text AS name
     FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid
     JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
     WHERE t.tgrelid = pg_catalog.to_regclass($1) AND NOT t.tgisinternal
       AND pg_catalog.obj_description(p.oid, 'pg_proc') LIKE 'pg-task wake-up%' AND ${isTrustedOwner("p.proowner", "$1")}`,
    [table.qualified],
  );
  const origins = rows.flatMap(({ schema, name }) =>
    [table.table, name.replace(/_wake_up$/, "")]
      .map((each) => taskTable(schema, each))
      .filter((each) => each.wakeUp === name && each.qualified !== table.qualified),
  );
  for (const origin of origins) {
    const found = await client.query<{ free: boolean }>("SELECT pg_catalog.to_regclass($1) IS NULL AS free", [
      origin.qualified,
    ]);
    if (found.rows[0]?.free === true) return origin;
  }
  return null;
}

/**
 * Lets the objects of a table follow it, in the caller's transaction. Functions still name its former place. The enum
 * `state` and the functions of the calendar stay, because other tables of the schema may use them.
 */
export async function moveObjects(client: Client, from: TaskTable, to: TaskTable): Promise<void> {
  const namesThere = objectNames(to.table);
  const names = new Map(objectNames(from.table).map((name, index) => [name, namesThere[index] ?? name]));
  const found = await findObjects(client, from, to, [...names.keys()]);
  for (const { kind, schema, name, rest } of found) {
    const target = names.get(name) ?? name;
    const isOnTable = kind === "TRIGGER" || kind === "POLICY";
    const of = (each: string): string =>
      isOnTable ? `${identifier(each)} ON ${rest}` : `${identifier(schema)}.${identifier(each)}${rest}`;
    if (target !== name) await client.query(`ALTER ${kind} ${of(name)} RENAME TO ${identifier(target)}`);
    // An index is in the schema of its table, and a trigger or policy in none.
    if (!isOnTable && kind !== "INDEX" && schema !== to.schema)
      await client.query(`ALTER ${kind} ${of(target)} SET SCHEMA ${identifier(to.schema)}`);
  }
}

interface FoundObject {
  readonly kind: "TRIGGER" | "POLICY" | "INDEX" | "TABLE" | "VIEW" | "FUNCTION" | "PROCEDURE";
  readonly schema: string;
  readonly name: string;
  /** The parameters of a function in parentheses, the relation of a trigger or policy, otherwise empty. */
  readonly rest: string;
}

/** Triggers and indexes come first, because they move together with their tables. */
async function findObjects(
  client: Client,
  from: TaskTable,
  to: TaskTable,
  names: readonly string[],
): Promise<readonly FoundObject[]> {
  const { rows } = await client.query<FoundObject>(
    // Of the triggers that partitions have inherited, the server renames those itself that it would not let be renamed.
    `SELECT 'TRIGGER' AS kind, n.nspname::text AS schema, t.tgname::text AS name, pg_catalog.format('%I.%I', n.nspname, c.relname) AS rest
     FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid
     JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
     WHERE NOT t.tgisinternal AND t.tgname = ANY ($3::text[]) AND coalesce(pg_catalog.to_jsonb(t) ->> 'tgparentid', '0') = '0'
       AND (n.nspname = $2 AND c.relname = ANY ($3::text[]) OR c.oid = pg_catalog.to_regclass($1)
         OR c.oid IN (SELECT p.relid FROM pg_catalog.pg_partition_tree(pg_catalog.to_regclass($1)) AS p))
     UNION ALL
     SELECT 'POLICY', n.nspname, y.polname, pg_catalog.format('%I.%I', n.nspname, c.relname) FROM pg_catalog.pg_policy AS y
     JOIN pg_catalog.pg_class AS c ON c.oid = y.polrelid JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
     WHERE y.polname = ANY ($3::text[]) AND c.oid = pg_catalog.to_regclass($1)
     UNION ALL
     SELECT CASE c.relkind WHEN 'r' THEN 'TABLE' WHEN 'v' THEN 'VIEW' ELSE 'INDEX' END, n.nspname, c.relname, ''
     FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
     LEFT JOIN pg_catalog.pg_index AS i ON i.indexrelid = c.oid
     WHERE c.relname = ANY ($3::text[]) AND (n.nspname = $2 OR i.indrelid = pg_catalog.to_regclass($1))
       AND (c.relkind IN ('r', 'i', 'I') OR c.relkind = 'v' AND pg_catalog.obj_description(c.oid, 'pg_class') LIKE 'pg-task view%')
     UNION ALL
     SELECT CASE p.prokind WHEN 'p' THEN 'PROCEDURE' ELSE 'FUNCTION' END, n.nspname, p.proname, pg_catalog.format('(%s)', pg_catalog.pg_get_function_identity_arguments(p.oid))
     FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
     WHERE n.nspname = $2 AND p.proname = ANY ($3::text[]) AND pg_catalog.obj_description(p.oid, 'pg_proc') LIKE 'pg-task %'`,
    [to.qualified, from.schema, names],
  );
  const order = ["TRIGGER", "POLICY", "INDEX", "TABLE", "VIEW", "FUNCTION", "PROCEDURE"];
  return rows.toSorted((one, other) => order.indexOf(one.kind) - order.indexOf(other.kind));
}
