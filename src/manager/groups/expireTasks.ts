import type { Client } from "../../shared/postgres/client.js";
import { tryInOrder, changeRows, type RejectedRows } from "../sql/rejectedRows.js";
import { readColumnSet } from "../schema/columnSet.js";
import { endUnrun, readLate } from "./endUnrun.sql.js";
import { rejectedRepeatNote } from "../sql/omissions.js";
import type { OwedSuccessors } from "../upkeep/owedSuccessors.js";
import type { TaskTable } from "../schema/taskTable.js";

interface ExpiredTasks {
  readonly expired: number;
  /** Ids of late tasks whose rows are locked. */
  readonly locked: readonly string[];
  readonly again: boolean;
}

const nothing: ExpiredTasks = { expired: 0, locked: [], again: false };

/**
 * Expires at most `limit` late tasks of these groups.
 *
 * @param known.except ids of tasks to skip
 * @param known.rejectedRows receives the tasks that the server refuses to end
 */
export async function expireTasks(
  client: Client,
  table: TaskTable,
  hashes: readonly number[],
  limit: number,
  {
    except,
    rejectedRows,
    owed,
  }: {
    readonly except: readonly string[];
    readonly rejectedRows: RejectedRows;
    readonly owed: Pick<OwedSuccessors, "touch">;
  },
): Promise<ExpiredTasks> {
  if (hashes.length === 0) return nothing;
  const ids = await readLate(client, table, hashes, limit, except);
  if (ids.length === 0) return nothing;
  const columnSet = await readColumnSet(client, table);
  let expired = 0;
  const open = new Set(ids);
  const end = async (some: readonly string[], note: string | null): Promise<void> => {
    const ended = await endUnrun(client, table, columnSet, some, { unrepeated: note });
    for (const id of ended) open.delete(id);
    expired += ended.length;
  };
  const unprocessed = await changeRows(
    client,
    ids,
    (some) => end(some, null),
    async (id, error) => {
      const reason = await tryInOrder(error, [(refusal) => end([id], rejectedRepeatNote(refusal))]);
      if (reason === null) return owed.touch();
      rejectedRows.add(id, reason, "expiry rejected by the server, retrying");
      open.delete(id);
    },
  );
  for (const id of unprocessed) open.delete(id);
  // Even if none of these tasks expired, the tasks behind them in their groups may be late as well.
  return { expired, locked: [...open], again: true };
}
