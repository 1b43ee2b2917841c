import type { Client } from "../../shared/postgres/client.js";
import type { RemoteProcess } from "../../shared/ipc/messages.js";
import type { TaskTable } from "../schema/taskTable.js";
import { takenAt } from "../sql/takenAt.js";

/** A remote task whose session here is gone, and where it ran. */
export interface RemoteRun {
  readonly id: string;
  readonly owner: string;
  /** Its connection string, with its secrets. */
  readonly remote: string;
  readonly place: RemoteProcess;
}

/**
 * Those of `ids` that dead owners have, and that had begun on a server of their own. Not those of
 * which it is known that nobody has to ask.
 */
export async function remoteRuns(
  client: Client,
  table: TaskTable,
  request: { readonly dead: readonly string[]; readonly ids: readonly string[] },
): Promise<RemoteRun[]> {
  const { rows: tasks } = await client.query<{
    id: string | number;
    owner: string;
    remote: string;
    taken: string;
  }>({
    name: "remote orphans",
    text: `
SELECT t.id, t.owner, t.remote, ${takenAt("t")} AS taken FROM ${table.qualified} AS t
WHERE t.id = ANY ($2::bigint[]) AND t.owner = ANY ($1::text[]) AND t.remote IS NOT NULL`,
    values: [request.dead, request.ids],
  });
  if (tasks.length === 0) return [];
  const { rows: places } = await client.query<{ id: string; taken: string; place: string }>({
    name: "remote places",
    text: `
WITH sought AS MATERIALIZED (SELECT * FROM unnest($1::bigint[], $2::bigint[]) AS s(id, taken))
SELECT id, take AS taken, place
FROM (SELECT * FROM ${table.qualifiedLedger1} UNION ALL SELECT * FROM ${table.qualifiedLedger2}) AS p
WHERE place IS NOT NULL AND ((id, take) IN (SELECT id, taken FROM sought)) IS TRUE`,
    values: [tasks.map(({ id }) => id), tasks.map(({ taken }) => taken)],
  });
  return tasks.flatMap(({ id, owner, remote, taken }) => {
    const noted = places.filter((each) => each.id === String(id) && each.taken === taken);
    if (noted.some(({ place }) => place === "")) return [];
    return noted.map(({ place }) => {
      const where: RemoteProcess = JSON.parse(place);
      return { id: String(id), owner, remote, place: where };
    });
  });
}
