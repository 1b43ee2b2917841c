import type { Client } from "../../shared/postgres/client.js";
import type { Head } from "./groupLimit.js";
import type { TaskTable } from "../schema/taskTable.js";
import { type HeadRow } from "../sql/fragments.sql.js";
import {
  dueTasks,
  gapMs,
  isGroupPaused,
  isLate,
  isTablePaused,
  keyParameter,
  maxOthers,
} from "../schema/startRule.sql.js";

/** A position in a group. */
export interface GroupPosition extends Head {
  readonly hash: number;
}

/**
 * In groups whose first due task is paused, searches for a due task that is not paused. There can be one, because
 * groups are identified by the hash of their name, and two names can have the same hash. For each group, this reads the
 * next `limit` due tasks behind a position, and returns the first of them whose group name is not paused. If all of
 * them are paused, it returns the last one. It returns no row for a group without further due tasks, and none at all
 * while the whole table is paused.
 *
 * @param except ids of tasks to skip
 * @param keys keys of running tasks. Tasks with these keys are skipped.
 */
export async function firstUnpaused(
  client: Client,
  table: TaskTable,
  groups: readonly GroupPosition[],
  limit: number,
  except: readonly string[],
  keys: readonly string[] = [],
): Promise<HeadRow[]> {
  const { rows } = await client.query<HeadRow>({
    name: "first unpaused",
    text: firstUnpausedStatement(table),
    values: [
      groups.map(({ hash }) => hash),
      groups.map(({ max }) => max),
      groups.map(({ id }) => String(id)),
      limit,
      except,
      ...keyParameter(table, keys),
    ],
  });
  return rows;
}

function firstUnpausedStatement(table: TaskTable): string {
  const due = (from: string): string =>
    dueTasks(table, {
      columns: `id, ${maxOthers} AS max, "group", ${gapMs()} AS gap_ms, ${isLate()} AS late`,
      where: `hash = ANY (ARRAY[g.hash]) AND ${from}`,
      except: "$5",
      keys: "$6",
      limit: "$4",
    });
  return `
SELECT g.hash, d.max, d.id, d.gap_ms, d.late, d.paused
FROM unnest($1::integer[], $2::integer[], $3::bigint[]) AS g(hash, max, id) CROSS JOIN LATERAL (
  SELECT n.* FROM (
    SELECT f.*, row_number() OVER () AS nth, ${isGroupPaused(table, "f")} AS paused FROM (
      (${due(`${maxOthers} = g.max AND id > g.id`)})
      UNION ALL
      (${due(`${maxOthers} < g.max`)})
      LIMIT $4
    ) AS f
  ) AS n ORDER BY n.paused, CASE WHEN n.paused THEN -n.nth ELSE n.nth END LIMIT 1
) AS d
WHERE NOT ${isTablePaused(table)}`;
}
