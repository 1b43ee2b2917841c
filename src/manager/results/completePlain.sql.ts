import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { arrayLiteral, textArrayLiteral } from "../../shared/postgres/arrayText.js";
import type { OwnedResult } from "../model/tasks.js";
import { isFinalTry } from "./retry.sql.js";
import { hasId, isAwaited, isRepeating, limitsLockWait } from "../sql/fragments.sql.js";

/** Whether only the row itself changes, as far as is known. Without output and error, it may have to be deleted. */
export const isPlainResult = ({ isPlain, output, error }: OwnedResult): boolean =>
  isPlain === true && (output !== null || error !== null);

/**
 * Writes plain results. Leaves out those whose rows are no longer in state `TAKE` or `WORK`, or whose tasks repeat, pause
 * their group, may be retried, are awaited by others, or have `suspend` or `tell`.
 *
 * @returns ids of the results that were not written.
 * @throws lock_not_available if a row stays locked for longer than `lockTimeoutMs.brief`. Then no result has
 *   been written.
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
      arrayLiteral(results.map((result) => result.id)),
      textArrayLiteral(results.map((result) => result.owner)),
      arrayLiteral(results.map((result) => result.start)),
      arrayLiteral(results.map((result) => result.stop)),
      textArrayLiteral(results.map((result) => result.output)),
      textArrayLiteral(results.map((result) => result.error)),
    ],
  });
  return new Set(rows.map(({ id }) => id));
}

function completePlainStatement(table: TaskTable): string {
  const { qualified, stateType } = table;
  return `
WITH written AS (
  UPDATE ${qualified} AS t SET state = CASE WHEN r.error IS NULL THEN 'DONE' ELSE 'FAIL' END::${stateType},
    start = r.start, stop = coalesce(r.stop, now()), output = r.output, error = r.error, owner = NULL
  FROM unnest($1::bigint[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::text[], $6::text[])
    AS r(id, owner, start, stop, output, error)
  WHERE ${hasId("r.id")} AND t.owner = r.owner AND t.state::text IN ('TAKE', 'WORK')
    AND NOT ${isRepeating("t.")} AND t.max >= 0 AND ${isFinalTry} AND NOT (${isAwaited}) AND (t.suspend > 0) IS NOT TRUE AND t.tell IS NULL AND ${limitsLockWait}
  RETURNING t.id
)
SELECT r.id FROM unnest($1::bigint[]) AS r(id)
WHERE (SELECT count(*) FROM written) <> cardinality($1::bigint[]) AND (r.id IN (SELECT id FROM written)) IS NOT TRUE`;
}
