import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { isKeyFree, keyParameter } from "../sql/keyWaits.sql.js";
import { deferredIds } from "../sql/pauseGroup.sql.js";
import { gapMs, type HeadRow, isGroupPaused, isLate, isNotIn, isTablePaused, maxOthers } from "../sql/fragments.sql.js";

export interface ScannedGroup extends HeadRow {
  /** Whether the whole table is paused. */
  readonly all: boolean;
}

/**
 * Reads the first due task of each of the next `limit` groups whose hashes are larger than `after`. The statement skips
 * through the index from group to group, so its cost depends on the number of groups and not on the number of tasks.
 *
 * @param after the last visited hash; -2147483649 precedes all hashes
 * @param except ids of tasks to skip
 * @param keys keys of running tasks. Tasks with these keys are skipped.
 */
export async function scanGroups(
  client: Client,
  table: TaskTable,
  request: {
    readonly after: number;
    readonly limit: number;
    readonly except: readonly string[];
    readonly keys?: readonly string[];
  },
): Promise<ScannedGroup[]> {
  const { rows } = await client.query<ScannedGroup>({
    name: "scan groups",
    text: scanStatement(table),
    values: [request.after, request.limit, request.except, ...keyParameter(table, request.keys ?? [])],
  });
  return rows;
}

function scanStatement(table: TaskTable): string {
  const first = (after: string): string => `
    SELECT hash, ${maxOthers} AS max, id, "group", ${gapMs()} AS gap_ms, ${isLate} AS late FROM ${table.qualified}
    WHERE ready AND hash >= ${after} AND plan <= now() AND ${isNotIn("id", "$3")} AND ${isKeyFree(table, "$4")} AND id <> ALL (${deferredIds})
    ORDER BY hash, ${maxOthers} DESC, id LIMIT 1`;
  return `
WITH RECURSIVE head AS (
  (${first("$1::bigint + 1")})
  UNION ALL
  SELECT n.* FROM head AS h CROSS JOIN LATERAL (${first("h.hash::bigint + 1")}) AS n
)
SELECT h.hash, h.max, h.id, h.gap_ms, h.late, ${isGroupPaused(table, "h")} AS paused, ${isTablePaused(table)} AS "all" FROM head AS h LIMIT $2`;
}
