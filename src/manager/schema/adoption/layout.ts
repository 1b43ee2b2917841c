import type { Client } from "../../../shared/postgres/client.js";
import { identifier } from "../../../shared/postgres/quoting.js";
import type { TaskTable } from "../taskTable.js";
import { defaultExpression } from "../columnDefaults.js";

export interface FoundColumn {
  readonly name: string;
  readonly type: string;
  /** Name, kind and category of the type in `pg_type`, for a domain those of its base type. */
  readonly base: string;
  readonly kind: string;
  readonly category: string;
  /** The base type, quoted for use in statements. */
  readonly baseType: string;
  readonly labels: readonly string[];
  /** In characters; null if unlimited. */
  readonly maxLength: number | null;
  readonly notNull: boolean;
  readonly identity: boolean;
  readonly generated: string | null;
  readonly default: string | null;
  readonly comment: string | null;
}

export interface Partition {
  readonly schema: string;
  readonly name: string;
  /** Schema and name, quoted for use in statements. */
  readonly qualified: string;
  readonly isLeaf: boolean;
}

export interface Layout {
  /** As in `pg_class.relkind`: `r` is a table, `p` a partitioned one. */
  readonly kind: string;
  readonly columns: ReadonlyMap<string, FoundColumn>;
  readonly partitions: readonly Partition[];
  /** Names of the table's enabled triggers. */
  readonly triggers: readonly string[];
}

export async function readLayout(client: Client, table: TaskTable): Promise<Layout> {
  const { rows } = await client.query<{ kind: string; triggers: string[] }>(
    `SELECT relkind AS kind, ARRAY(
       SELECT tgname::text FROM pg_trigger WHERE tgrelid = c.oid AND tgenabled <> 'D') AS triggers
     FROM pg_class AS c WHERE oid = $1::regclass`,
    [table.qualified],
  );
  return {
    kind: rows[0]?.kind ?? "",
    triggers: rows[0]?.triggers ?? [],
    columns: await readColumns(client, table),
    partitions: await readPartitions(client, table),
  };
}

async function readColumns(client: Client, table: TaskTable): Promise<ReadonlyMap<string, FoundColumn>> {
  const { rows } = await client.query<FoundColumn>(
    `WITH RECURSIVE layer AS (
       SELECT attnum, atttypid AS type, atttypmod AS modifier FROM pg_attribute
       WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped
       UNION ALL
       SELECT l.attnum, t.typbasetype, t.typtypmod FROM layer AS l JOIN pg_type AS t ON t.oid = l.type
       WHERE t.typtype = 'd'
     )
     SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type, t.typname AS base,
       t.typtype AS kind, t.typcategory AS category, format_type(t.oid, NULL) AS "baseType",
       ARRAY(SELECT enumlabel::text FROM pg_enum WHERE enumtypid = t.oid) AS labels,
       CASE WHEN t.typname IN ('varchar', 'bpchar') AND l.modifier > 4 THEN l.modifier - 4 END AS "maxLength",
       a.attnotnull AS "notNull", a.attidentity <> '' AS identity,
       CASE WHEN a.attgenerated <> '' THEN ${defaultExpression} END AS generated,
       CASE WHEN a.attgenerated = '' THEN ${defaultExpression} END AS default,
       col_description(a.attrelid, a.attnum) AS comment
     FROM layer AS l JOIN pg_type AS t ON t.oid = l.type AND t.typtype <> 'd'
     JOIN pg_attribute AS a ON a.attrelid = $1::regclass AND a.attnum = l.attnum
     LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
     ORDER BY a.attnum`,
    [table.qualified],
  );
  return new Map(rows.map((row) => [row.name, row]));
}

/** Leaves out foreign tables, on which pg-task creates no triggers. */
export async function readPartitions(client: Client, table: TaskTable): Promise<Partition[]> {
  const { rows } = await client.query<Omit<Partition, "qualified">>(
    `SELECT n.nspname AS schema, c.relname AS name, p.isleaf AS "isLeaf"
     FROM pg_partition_tree($1::regclass) AS p JOIN pg_class AS c ON c.oid = p.relid
     JOIN pg_namespace AS n ON n.oid = c.relnamespace
     WHERE p.level > 0 AND c.relkind IN ('r', 'p') ORDER BY p.level, c.oid`,
    [table.qualified],
  );
  return rows.map((row) => ({
    ...row,
    qualified: `${identifier(row.schema)}.${identifier(row.name)}`,
  }));
}
