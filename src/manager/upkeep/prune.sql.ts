import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";

const maxScannedRows = 1000;

export interface PruneStep {
  readonly deleted: number;
  /** The id after which the next step continues. "0" means that the end of the table was reached. */
  readonly next: string;
  /** Time until the first of the rows that are not old enough yet can be deleted, in ms. Null if there are none. */
  readonly dueMs: number | null;
}

/** Skips locked rows, rows that others wait for or whose output they may still read, and rows whose successors are owed. */
export async function prune(client: Client, table: TaskTable, from: string, limit: number): Promise<PruneStep> {
  const { rows } = await client.query<PruneStep>({
    name: "prune",
    text: pruneStatement(table),
    values: [from, limit],
  });
  return rows[0] ?? { deleted: 0, next: "0", dueMs: null };
}

function pruneStatement(table: TaskTable): string {
  const { qualified, qualifiedDependencies, qualifiedOwed } = table;
  return `
WITH scanned AS MATERIALIZED (
  SELECT id, CASE WHEN owner IS NULL AND ready IS NULL AND keep < interval '1000 years' THEN stop + keep END AS due
  FROM ${qualified} AS t WHERE keep > interval '0' AND id > $1::bigint ORDER BY id LIMIT ${maxScannedRows}
), old AS MATERIALIZED (
  SELECT s.id FROM scanned AS s WHERE CASE WHEN s.due <= now() THEN (s.id IN (SELECT task FROM ${qualifiedOwed})) IS NOT TRUE
    AND NOT EXISTS (SELECT FROM ${qualifiedDependencies} AS d WHERE d.predecessor = s.id) END ORDER BY s.id LIMIT $2
), locked AS MATERIALIZED (
  SELECT id FROM ${qualified} WHERE id = ANY (ARRAY(SELECT id FROM old)) AND owner IS NULL AND ready IS NULL
  FOR UPDATE SKIP LOCKED
), deleted AS (
  DELETE FROM ${qualified} WHERE id = ANY (ARRAY(SELECT id FROM locked)) RETURNING id
)
SELECT (SELECT count(*)::integer FROM deleted) AS deleted,
  CASE WHEN (SELECT count(*) FROM old) >= $2 THEN (SELECT max(id) FROM old)
    WHEN (SELECT count(*) FROM scanned) >= ${maxScannedRows} THEN (SELECT max(id) FROM scanned) ELSE 0 END::text AS next,
  (SELECT extract(epoch FROM min(due) - now()) * 1000 FROM scanned WHERE due > now())::float8 AS "dueMs"`;
}
