import type { Client } from "../../shared/postgres/client.js";
import { attemptEach, singleOut, type RejectedRows } from "../rejectedRows.js";
import { readColumnSet } from "../schema/columnSet.js";
import { expire, overdueCondition } from "./expire.sql.js";
import { withoutRepeat } from "../results/withoutRepeat.sql.js";
import type { TaskTable } from "../schema/taskTable.js";

export interface ExpiredTasks {
  readonly gone: number;
  readonly locked: readonly string[];
  readonly again: boolean;
}

const nothing: ExpiredTasks = { gone: 0, locked: [], again: false };

/**
 * Ends due tasks of these groups that are no longer worth running as GONE, at most `limit`.
 *
 * @param known.except tasks not to look at this time.
 * @param known.refusals those that the server refuses to end are added.
 * @returns how many were ended, which ones were not since somebody has their row locked, and whether to look
 * again at once.
 */
export async function expireTasks(
  client: Client,
  table: TaskTable,
  hashes: readonly number[],
  limit: number,
  { except, refusals }: { readonly except: readonly string[]; readonly refusals: RejectedRows },
): Promise<ExpiredTasks> {
  if (hashes.length === 0) return nothing;
  const ids = await overdueCondition(client, table, hashes, limit, except);
  if (ids.length === 0) return nothing;
  const shape = await readColumnSet(client, table);
  let gone = 0;
  const open = new Set(ids);
  const end = async (some: readonly string[], note: string | null): Promise<void> => {
    const ended = await expire(client, table, shape, some, note);
    for (const id of ended) open.delete(id);
    gone += ended.length;
  };
  const left = await singleOut(
    client,
    ids,
    (some) => end(some, null),
    async (id, error) => {
      const reason = await attemptEach(error, [(refusal) => end([id], withoutRepeat(refusal))]);
      if (reason === null) return;
      refusals.add(id, reason, "end as GONE refused by the server, it is tried again");
      open.delete(id);
    },
  );
  for (const id of left) open.delete(id);
  // Behind each of them, whatever became of it, there may be others.
  return { gone, locked: [...open], again: true };
}
