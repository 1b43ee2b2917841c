import assert from "node:assert/strict";
import { claimFull } from "../../../../src/manager/claim/claimFull.sql.js";
import { changedTasks } from "../../../../src/manager/sessions/changedTasks.sql.js";
import { test } from "../../../support/limitedTest.js";
import { openTable } from "../../../support/taskTables.js";

const { manager, table } = await openTable();

const { rows: inserted } = await manager.query<{ id: string; hash: number }>(
  `INSERT INTO public.task (input, "group") SELECT 'SELECT ' || n, 'queued' FROM generate_series(1, 6) AS n
   RETURNING id::text AS id, hash`,
);
const slot = { owner: "owner", pid: 1, startsNow: false };
const claim = await claimFull(manager, table, {
  groups: inserted.slice(0, 1).map(({ hash }) => ({
    hash,
    running: 1,
    max: 0,
    id: 0n,
    quietMs: Infinity,
    maxTasks: 6,
    ownSlots: Array.from({ length: 6 }, () => slot),
  })),
  slots: [],
  dedicated: [],
  maxCandidates: 0,
  except: [],
});
const { claimed } = claim;
const [unchanged = "", unrelated = "", input = "", timeout = "", stopped = "", deleted = ""] = claimed.map(
  ({ id }) => id,
);

test("a queued task is recalled if and only if the change affects its run", async () => {
  assert.equal(claimed.length, 6);
  assert.deepEqual(await changedTasks(manager, table, claimed), []);
  const update = (set: string, id: string): Promise<unknown> =>
    manager.query(`UPDATE public.task SET ${set} WHERE id = ${id}`);
  await update("data = 'another'", unrelated);
  await update("keep = '1 day'", unrelated);
  await update("input = 'SELECT 7'", input);
  await update("timeout = '1 minute'", timeout);
  await update("state = 'STOP'", stopped);
  await manager.query(`DELETE FROM public.task WHERE id = ${deleted}`);
  const changed = await changedTasks(manager, table, claimed);
  assert.deepEqual(changed.toSorted(), [input, timeout, stopped, deleted].toSorted());
  assert.ok(!changed.includes(unchanged));
});
