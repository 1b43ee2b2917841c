import { createHash } from "node:crypto";
import type { Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { columnsWith } from "../../shared/taskColumns.js";
import type { TaskTable } from "./taskTable.js";

export interface ColumnSet {
  /** How many columns the table has ever had. It grows when users add one. */
  readonly attributes: number;
  /** Part of the names of prepared statements, so that one that was built from other columns is never reused. */
  readonly name: string;
  /** Quoted names of the columns whose values a successor (the next run of a repeating task) inherits. */
  readonly kept: readonly string[];
}

const notInherited: ReadonlySet<string> = new Set(columnsWith({ inherited: false }));

/** Generated and identity columns are not kept, because the server computes their values. */
export async function readColumnSet(client: Client, table: TaskTable): Promise<ColumnSet> {
  const { rows } = await client.query<{ attributes: number; name: string }>(
    `SELECT c.relnatts::integer AS attributes, a.attname AS name
     FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid
     WHERE c.oid = $1::pg_catalog.regclass AND a.attnum > 0 AND NOT a.attisdropped
       AND a.attgenerated = '' AND a.attidentity = ''
     ORDER BY a.attnum`,
    [table.qualified],
  );
  const attributes = rows[0]?.attributes ?? 0;
  const kept = rows.filter(({ name }) => !notInherited.has(name)).map(({ name }) => identifier(name));
  const digest = createHash("sha256").update(kept.join()).digest("hex").slice(0, 16);
  return { attributes, name: `${attributes} ${digest}`, kept };
}

/** SQL condition: no column has been added since the column set was read. */
export function columnsUnchanged({ qualified }: TaskTable, { attributes }: ColumnSet): string {
  const table = `'${qualified.replaceAll("'", "''")}'::regclass`;
  return `(SELECT relnatts = ${attributes} FROM pg_class WHERE oid = ${table})`;
}
