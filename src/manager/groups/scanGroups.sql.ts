import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { isNoneOf } from "../sql/byId.js";
import { allPaused, beside, groupPaused, type HeadRow } from "../sql/head.js";
import { heldBack } from "../sql/pauseGroup.sql.js";
import { tooLate } from "../sql/tooLate.js";

export interface ScannedGroup extends HeadRow {
  /** Whether the whole table is paused. */
  readonly all: boolean;
}

/**
 * The first due task of each of the next `limit` groups after hash `after`, visited by the index: its
 * cost follows the number of groups, not that of tasks.
 *
 * @param after -2147483649 is before all.
 * @param except tasks not to look at this time.
 */
export async function scanGroups(
  client: Client,
  table: TaskTable,
  request: {
    readonly after: number;
    readonly limit: number;
    readonly except: readonly string[];
  },
): Promise<ScannedGroup[]> {
  const { rows } = await client.query<ScannedGroup>({
    name: "sweep",
    text: sweepStatement(table),
    values: [request.after, request.limit, request.except],
  });
  return rows;
}

function sweepStatement(table: TaskTable): string {
  const first = (after: string): string => `
    SELECT hash, ${beside} AS max, id, "group", ${tooLate} AS gone FROM ${table.qualified}
    WHERE ready AND hash >= ${after} AND plan <= now() AND ${isNoneOf("id", "$3")} AND id <> ALL (${heldBack})
    ORDER BY hash, ${beside} DESC, id LIMIT 1`;
  return `
WITH RECURSIVE head AS (
  (${first("$1::bigint + 1")})
  UNION ALL
  SELECT n.* FROM head AS h CROSS JOIN LATERAL (${first("h.hash::bigint + 1")}) AS n
)
SELECT h.hash, h.max, h.id, h.gone, ${groupPaused(table, "h")} AS paused, ${allPaused(table)} AS "all" FROM head AS h LIMIT $2`;
}
