import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { arrayOf, textArrayOf } from "../../shared/postgres/arrayText.js";
import { byId } from "../sql/byId.js";
import type { OwnedResult } from "./completeFull.sql.js";
import { lockWait } from "../sql/lockWait.js";

/** Whether nothing but its own row is to be written, as far as one can tell: without a word it may be deleted. */
export const isPlainResult = ({ plain, output, error }: OwnedResult): boolean =>
  plain === true && (output !== null || error !== null);

/**
 * Writes plain results into the rows that still say that they run and ask for nothing more, no
 * repetition and no pause: two thirds of the work of `complete`, which does all the rest.
 *
 * @returns the ids of those that it has not written.
 * @throws lock_not_available when somebody has locked one of the rows for longer than `lockWaitMs`: then
 *   none is written.
 */
export async function completePlain(
  client: Client,
  table: TaskTable,
  results: readonly OwnedResult[],
): Promise<ReadonlySet<string>> {
  const { rows } = await client.query<{ id: string }>({
    name: "complete plain",
    text: completePlainStatement(table),
    values: [
      arrayOf(results.map((result) => result.id)),
      textArrayOf(results.map((result) => result.owner)),
      arrayOf(results.map((result) => result.start)),
      arrayOf(results.map((result) => result.stop)),
      textArrayOf(results.map((result) => result.output)),
      textArrayOf(results.map((result) => result.error)),
    ],
  });
  return new Set(rows.map(({ id }) => id));
}

function completePlainStatement({ qualified, stateType }: TaskTable): string {
  return `
WITH written AS (
  UPDATE ${qualified} AS t SET state = CASE WHEN r.error IS NULL THEN 'DONE' ELSE 'FAIL' END::${stateType},
    start = r.start, stop = coalesce(r.stop, now()), output = r.output, error = r.error, owner = NULL
  FROM unnest($1::bigint[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::text[], $6::text[])
    AS r(id, owner, start, stop, output, error)
  WHERE ${byId("r.id")} AND t.owner = r.owner AND t.state::text IN ('TAKE', 'WORK')
    AND t.repeat = interval '0' AND t.max >= 0 AND ${lockWait}
  RETURNING t.id
)
SELECT r.id FROM unnest($1::bigint[]) AS r(id)
WHERE (SELECT count(*) FROM written) <> cardinality($1::bigint[]) AND (r.id IN (SELECT id FROM written)) IS NOT TRUE`;
}
