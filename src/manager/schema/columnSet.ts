import { createHash } from "node:crypto";
import type { Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import type { TaskTable } from "./taskTable.js";

/** The columns of a task table as they are now: users may add their own at any time. */
export interface ColumnSet {
  /** Grows with each column that is added. */
  readonly attributes: number;
  /** Differs when anything here differs: statements made from a shape bear it in their name. */
  readonly name: string;
  /** Quoted columns whose values a repeated task keeps. */
  readonly kept: readonly string[];
}

/** What a repeated task has of its own, or gets by its default. */
const own = new Set([
  "id",
  "parent",
  "plan",
  "take",
  "start",
  "stop",
  "pid",
  "crash",
  "state",
  "ready",
  "error",
  "output",
  "owner",
]);

/** Reads the shape; a generated or identity column makes its own values. */
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
  const kept = rows.filter(({ name }) => !own.has(name)).map(({ name }) => identifier(name));
  const digest = createHash("sha256").update(kept.join()).digest("hex").slice(0, 16);
  return { attributes, name: `${attributes} ${digest}`, kept };
}

/** SQL that is true as long as no column was added to the table of this shape. */
export function columnsUnchanged({ qualified }: TaskTable, { attributes }: ColumnSet): string {
  const table = `'${qualified.replaceAll("'", "''")}'::regclass`;
  return `(SELECT relnatts = ${attributes} FROM pg_class WHERE oid = ${table})`;
}
