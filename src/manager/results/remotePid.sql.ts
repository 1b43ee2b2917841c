import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { OwnedTask } from "./releaseTasks.sql.js";

/** A remote task, the session that has it, and the process of its own server that runs it. */
export interface RemotePid extends OwnedTask {
  readonly pid: number;
}

/**
 * Shows in their rows which processes run remote tasks. Guarded by owner.
 *
 * @returns ids of tasks that are still ours but whose row somebody has locked: do it later.
 */
export async function showRemotePids(
  client: Client,
  table: TaskTable,
  places: readonly RemotePid[],
): Promise<ReadonlySet<string>> {
  const { rows } = await client.query<{ id: string }>({
    name: "show remote pids",
    text: showStatement(table),
    values: [
      places.map((place) => place.id),
      places.map((place) => place.owner),
      places.map((place) => place.pid),
    ],
  });
  return new Set(rows.map((row) => row.id));
}

function showStatement({ qualified }: TaskTable): string {
  return `
WITH place AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::text[], $3::integer[]) AS p(id, owner, pid)
), mine AS MATERIALIZED (
  SELECT t.id FROM ${qualified} AS t JOIN place AS p ON p.id = t.id
  WHERE t.id = ANY ($1::bigint[]) AND t.owner = p.owner
), locked AS MATERIALIZED (
  SELECT id FROM ${qualified} WHERE id = ANY (ARRAY(SELECT id FROM mine)) AND owner = ANY ($2::text[])
  FOR NO KEY UPDATE SKIP LOCKED
), shown AS (
  UPDATE ${qualified} AS t SET pid = p.pid FROM place AS p
  WHERE t.id = p.id AND t.owner = p.owner AND t.id = ANY (ARRAY(SELECT id FROM locked))
)
SELECT id FROM mine WHERE id <> ALL (ARRAY(SELECT id FROM locked))`;
}
