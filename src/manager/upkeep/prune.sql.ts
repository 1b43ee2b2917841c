import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";

/** How many rows one step looks at, at most. */
const looked = 1000;

export interface PruneStep {
  readonly deleted: number;
  /** Where the next step goes on, "0" when this one came to the table's end. */
  readonly next: string;
  /** Time until the first of the rows it looked at and left may be removed, in ms, null for none. */
  readonly dueMs: number | null;
}

/**
 * Removes finished rows that have been kept long enough: of the next rows after id `from`, at most
 * `limit`. A row that somebody has locked is left for another time.
 */
export async function prune(
  client: Client,
  table: TaskTable,
  from: string,
  limit: number,
): Promise<PruneStep> {
  const { rows } = await client.query<PruneStep>({
    name: "prune",
    text: pruneStatement(table),
    values: [from, limit],
  });
  return rows[0] ?? { deleted: 0, next: "0", dueMs: null };
}

function pruneStatement({ qualified }: TaskTable): string {
  return `
WITH looked AS MATERIALIZED (
  SELECT id, CASE WHEN owner IS NULL AND ready IS NULL AND keep < interval '1000 years' THEN stop + keep END AS due
  FROM ${qualified} WHERE keep > interval '0' AND id > $1::bigint ORDER BY id LIMIT ${looked}
), old AS MATERIALIZED (
  SELECT id FROM looked WHERE due <= now() ORDER BY id LIMIT $2
), locked AS MATERIALIZED (
  SELECT id FROM ${qualified} WHERE id = ANY (ARRAY(SELECT id FROM old)) AND owner IS NULL AND ready IS NULL
  FOR UPDATE SKIP LOCKED
), deleted AS (
  DELETE FROM ${qualified} WHERE id = ANY (ARRAY(SELECT id FROM locked)) RETURNING id
)
SELECT (SELECT count(*)::integer FROM deleted) AS deleted,
  CASE WHEN (SELECT count(*) FROM old) >= $2 THEN (SELECT max(id) FROM old)
    WHEN (SELECT count(*) FROM looked) >= ${looked} THEN (SELECT max(id) FROM looked) ELSE 0 END::text AS next,
  (SELECT extract(epoch FROM min(due) - now()) * 1000 FROM looked WHERE due > now())::float8 AS "dueMs"`;
}
