import type { Client } from "../../shared/postgres/client.js";
import type { Head } from "../groups/groups.js";
import type { TaskTable } from "../schema/taskTable.js";
import { isNoneOf } from "../sql/byId.js";
import { allPaused, beside, groupPaused, type HeadRow } from "../sql/head.js";
import { heldBack } from "../sql/pauseGroup.sql.js";
import { tooLate } from "../sql/tooLate.js";

/** A paused group, and behind which of its tasks to look. */
export interface Behind extends Head {
  readonly hash: number;
}

/**
 * Of the next `limit` due tasks of each of these groups the first one whose name is not paused, else the
 * last one: two names may have the same hash. Nothing of a group of which there is no more, and nothing at
 * all while the whole table is paused.
 *
 * @param except tasks not to look at this time.
 */
export async function withGroupPauses(
  client: Client,
  table: TaskTable,
  groups: readonly Behind[],
  limit: number,
  except: readonly string[],
): Promise<HeadRow[]> {
  const { rows } = await client.query<HeadRow>({
    name: "beside pause",
    text: besideStatement(table),
    values: [
      groups.map(({ hash }) => hash),
      groups.map(({ max }) => max),
      groups.map(({ id }) => String(id)),
      limit,
      except,
    ],
  });
  return rows;
}

function besideStatement(table: TaskTable): string {
  const due = (from: string): string => `
        (SELECT id, ${beside} AS max, "group", ${tooLate} AS gone FROM ${table.qualified}
        WHERE ready AND hash = ANY (ARRAY[g.hash]) AND ${from}
          AND plan <= now() AND ${isNoneOf("id", "$5")} AND id <> ALL (${heldBack})
        ORDER BY hash, ${beside} DESC, id LIMIT $4)`;
  return `
SELECT g.hash, d.max, d.id, d.gone, d.paused
FROM unnest($1::integer[], $2::integer[], $3::bigint[]) AS g(hash, max, id) CROSS JOIN LATERAL (
  SELECT n.* FROM (
    SELECT f.*, row_number() OVER () AS nth, ${groupPaused(table, "f")} AS paused FROM (
      ${due(`${beside} = g.max AND id > g.id`)}
      UNION ALL
      ${due(`${beside} < g.max`)}
      LIMIT $4
    ) AS f
  ) AS n ORDER BY n.paused, CASE WHEN n.paused THEN -n.nth ELSE n.nth END LIMIT 1
) AS d
WHERE NOT ${allPaused(table)}`;
}
