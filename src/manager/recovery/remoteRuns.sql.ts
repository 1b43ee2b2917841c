import type { Client } from "../../shared/postgres/client.js";
import type { RemoteProcess } from "../../shared/ipc/run.js";
import type { TaskTable } from "../schema/taskTable.js";
import { claimTime } from "../sql/fragments.sql.js";

/** A remote task whose local session is gone, and the backend on the remote server that ran the task. */
export interface RemoteRun {
  readonly id: string;
  readonly owner: string;
  /** The task's connection string, including secrets. */
  readonly remote: string;
  readonly process: RemoteProcess;
  /** Nobody has set the task to another state meanwhile. */
  readonly isRunning: boolean;
}

/**
 * Reads the remote runs among `ids` that still belong to a dead owner and have started on the remote server. Leaves out
 * runs whose ledger row says that the remote server need not be queried.
 */
export async function readRemoteRuns(
  client: Client,
  table: TaskTable,
  request: { readonly dead: readonly string[]; readonly ids: readonly string[] },
): Promise<RemoteRun[]> {
  const { rows: tasks } = await client.query<{
    id: string;
    owner: string;
    remote: string;
    taken: string;
    isRunning: boolean;
  }>({
    name: "remote orphans",
    text: `
SELECT t.id::text AS id, t.owner, t.remote, ${claimTime("t")} AS taken, t.state::text IN ('TAKE', 'WORK') AS "isRunning" FROM ${table.qualified} AS t
WHERE t.id = ANY ($2::bigint[]) AND t.owner = ANY ($1::text[]) AND t.remote IS NOT NULL`,
    values: [request.dead, request.ids],
  });
  if (tasks.length === 0) return [];
  const { rows: places } = await client.query<{ id: string; taken: string; place: string }>({
    name: "remote processes",
    text: `
WITH wanted AS MATERIALIZED (SELECT * FROM unnest($1::bigint[], $2::bigint[]) AS w(id, taken))
SELECT id, take AS taken, place
FROM (SELECT * FROM ${table.qualifiedLedger1} UNION ALL SELECT * FROM ${table.qualifiedLedger2}) AS p
WHERE place IS NOT NULL AND ((id, take) IN (SELECT id, taken FROM wanted)) IS TRUE`,
    values: [tasks.map(({ id }) => id), tasks.map(({ taken }) => taken)],
  });
  return tasks.flatMap(({ id, owner, remote, taken, isRunning }) => {
    const recorded = places.filter((each) => each.id === id && each.taken === taken);
    if (recorded.some(({ place }) => place === "")) return [];
    return recorded.map(({ place }) => {
      const process: RemoteProcess = JSON.parse(place);
      return { id, owner, remote, process, isRunning };
    });
  });
}
