import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { type HeadRow } from "../sql/fragments.sql.js";
import {
  gapMs,
  groupHeads,
  isGroupPaused,
  isLate,
  isTablePaused,
  keyParameter,
  maxOthers,
} from "../schema/startRule.sql.js";

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
  const columns = `hash, ${maxOthers} AS max, id, "group", ${gapMs()} AS gap_ms, ${isLate()} AS late`;
  return `
WITH ${groupHeads(table, { columns, after: "$1", except: "$3", keys: "$4" })}
SELECT h.hash, h.max, h.id, h.gap_ms, h.late, ${isGroupPaused(table, "h")} AS paused, ${isTablePaused(table)} AS "all" FROM head AS h LIMIT $2`;
}
