import type { Client } from "../../shared/database.js";
import type { TaskTable } from "../../manager/table.js";
import type { BriefTask } from "../schemas.js";
import { briefColumns } from "./columns.js";

const mostParents = 20;
const mostChildren = 50;
/** Children have larger ids than their parent, and no index has them: so many rows behind it are looked at. */
const windowRows = 10_000;

/** The task's parent, that one's, and so on, as far as they are there. */
export async function parents(client: Client, table: TaskTable, id: string): Promise<BriefTask[]> {
  const { rows } = await client.query<BriefTask>(
    `WITH RECURSIVE line(id, parent, steps) AS (
       SELECT id::bigint, parent::bigint, 0 FROM ${table.qualified} WHERE id = $1::bigint
       UNION ALL
       SELECT t.id::bigint, t.parent::bigint, line.steps + 1
       FROM line JOIN ${table.qualified} AS t ON t.id = line.parent
       WHERE line.steps < ${mostParents}
     )
     SELECT b.* FROM line AS l,
       LATERAL (SELECT ${briefColumns} FROM ${table.qualified} AS t WHERE t.id = l.id) AS b
     WHERE l.steps > 0 ORDER BY l.steps`,
    [id],
  );
  return rows;
}

/** Tasks whose parent it is, oldest first; `complete` when all rows that may be some were looked at. */
export async function children(
  client: Client,
  table: TaskTable,
  id: string,
): Promise<{ tasks: BriefTask[]; complete: boolean }> {
  const { rows } = await client.query<{ looked: number; tasks: BriefTask[] }>(
    `WITH seen AS (
       SELECT * FROM ${table.qualified} WHERE id > $1::bigint ORDER BY id LIMIT ${windowRows}
     )
     SELECT (SELECT count(*)::int FROM seen) AS looked,
       coalesce((SELECT jsonb_agg(to_jsonb(f)) FROM (
         SELECT ${briefColumns} FROM seen WHERE parent = $1::bigint
         ORDER BY seen.id LIMIT ${mostChildren + 1}) AS f), '[]') AS tasks`,
    [id],
  );
  const { looked, tasks } = rows[0] ?? { looked: 0, tasks: [] };
  return {
    tasks: tasks.slice(0, mostChildren),
    complete: looked < windowRows && tasks.length <= mostChildren,
  };
}
