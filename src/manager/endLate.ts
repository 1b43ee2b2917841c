import type { Client } from "../shared/database.js";
import { attemptEach, singleOut, type Refusals } from "./refusals.js";
import { readShape } from "./shape.js";
import { expire, late } from "./sql/expire.js";
import { unrepeated } from "./sql/spared.js";
import type { TaskTable } from "./table.js";

/**
 * Ends due tasks of these groups that are no longer worth running as GONE, at most `limit`.
 *
 * @param refusals tasks that are left alone; those that the server refuses to end are added.
 * @returns how many were ended, and whether to look again at once.
 */
export async function endLate(
  client: Client,
  table: TaskTable,
  hashes: readonly number[],
  limit: number,
  refusals: Refusals,
): Promise<{ readonly gone: number; readonly again: boolean }> {
  if (hashes.length === 0) return { gone: 0, again: false };
  const ids = await late(client, table, hashes, limit, refusals.ids);
  if (ids.length === 0) return { gone: 0, again: false };
  const shape = await readShape(client, table);
  let gone = 0;
  let refused = false;
  const end = async (some: readonly string[], note: string | null): Promise<void> => {
    const ended = await expire(client, table, shape, some, note);
    gone += ended;
  };
  const left = await singleOut(
    client,
    ids,
    (some) => end(some, null),
    async (id, error) => {
      const reason = await attemptEach(error, [(refusal) => end([id], unrepeated(refusal))]);
      if (reason === null) return;
      refusals.add(id, reason, "end as GONE refused by the server, it is tried again");
      refused = true;
    },
  );
  return { gone, again: gone > 0 || refused || left.length > 0 };
}
