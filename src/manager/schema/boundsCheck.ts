import type { Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { columnList } from "../../shared/taskColumns.js";
import type { TaskTable } from "./taskTable.js";

const boundedColumns = (["interval", "integer", '"char"'] as const).flatMap((type) =>
  columnList.flatMap((column) => (column.type === type && column.bounds !== undefined ? column.name : [])),
);

/**
 * The name of the check constraint for their bounds. It says what the bounds are, because all that the server says of a
 * row that breaks a check is the check's name, which has at most 63 bytes.
 */
export const boundsCheckName = "active > 0, live/repeat/timeout/keep/count >= 0, chars ASCII";

/** The name in tables of versions up to 6. */
const formerName = boundedColumns.join("_");

/** The migration lets the server choose the name (`TABLE_check`). Users' own checks keep theirs. */
export async function nameBoundsCheck(client: Client, { qualified }: TaskTable): Promise<void> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT c.conname AS name FROM pg_catalog.pg_constraint AS c
     JOIN pg_catalog.pg_class AS t ON t.oid = c.conrelid
     WHERE t.oid = $1::pg_catalog.regclass AND t.relkind = 'r' AND c.contype = 'c' AND c.coninhcount = 0
       AND (c.conname ~ '_check[0-9]*$' OR c.conname = $4)
       AND ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute AS a
         WHERE a.attrelid = t.oid AND a.attnum = ANY (c.conkey) ORDER BY 1)
         = ARRAY(SELECT name FROM unnest($2::text[]) AS name ORDER BY 1)
       AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint AS o WHERE o.conrelid = t.oid AND o.conname = $3)
     ORDER BY c.oid LIMIT 1`,
    [qualified, boundedColumns, boundsCheckName, formerName],
  );
  for (const { name } of rows) {
    await client.query(
      `ALTER TABLE ${qualified} RENAME CONSTRAINT ${identifier(name)} TO ${identifier(boundsCheckName)}`,
    );
  }
}
