import assert from "node:assert/strict";
import { PendingResults } from "../../../../src/manager/results/pendingResults.js";
import { discardUnconfirmed } from "../../../../src/manager/recovery/discardUnconfirmed.js";
import { test } from "../../../support/limitedTest.js";
import { openManager, openTable, ownerOf } from "../../../support/taskTables.js";
import { claimTime } from "../../../../src/manager/sql/fragments.sql.js";

const { database, user, manager, table } = await openTable();
const gone = "1 2001-01-01T00:00:00.000000";

/** Inserts a task whose owner is dead, and returns its id. */
async function taken(): Promise<string> {
  const { rows } = await manager.query<{ id: string }>(
    "INSERT INTO public.task (input, state, owner, take, ready) VALUES ('', 'WORK', $1, now(), NULL) RETURNING id",
    [gone],
  );
  return rows[0]?.id ?? "";
}

const ended = (id: string, committed: boolean) => ({
  outcome: "ended" as const,
  session: 1,
  id,
  start: "2001-01-01T00:00:00.000000Z",
  stop: "2001-01-01T00:00:00.000000Z",
  output: null,
  error: null,
  sqlstate: null,
  committed,
});

const queued = { task: { hash: 1, max: 0, mayPause: false }, hasPlainEnd: false };

test("after a lost connection, committed results are kept only if there is a proof, deferred results too", async () => {
  const ids: string[] = [];
  for (let count = 0; count < 6; count += 1) ids.push(await taken());
  const [provenOne = "", unconfirmed = "", heldProven = "", heldUnproven = "", nothingWritten = "", notAtomic = ""] =
    ids;
  for (const [ledger, id] of [
    [1, provenOne],
    [2, heldProven],
  ] as const)
    await manager.query(
      `INSERT INTO public.task_ledger_${ledger} (id, take, running) SELECT id, ${claimTime("t")}, true FROM public.task AS t WHERE id = $1`,
      [id],
    );
  // Neither the recorded location of a remote run nor the proof of another run of the same task counts as a proof.
  await manager.query(
    `INSERT INTO public.task_ledger_1 (id, take, running, place)
     SELECT id, ${claimTime("t")}, false, 'there' FROM public.task AS t WHERE id = $1`,
    [unconfirmed],
  );
  await manager.query("INSERT INTO public.task_ledger_2 (id, take, running) VALUES ($1, 7, true)", [heldUnproven]);
  const pendingResults = new PendingResults();
  for (const id of [heldProven, heldUnproven]) pendingResults.add(ended(id, true), gone, queued);
  pendingResults.defer(pendingResults.takeResults());
  for (const id of [provenOne, unconfirmed]) pendingResults.add(ended(id, true), gone, queued);
  pendingResults.add(ended(nothingWritten, false), gone, queued);
  pendingResults.add({ ...ended(notAtomic, false), unflushed: true }, gone, queued);
  const alive = await ownerOf(user);
  const distrusted: string[] = [];
  await discardUnconfirmed(
    manager,
    table,
    { owners: [gone, alive], distrust: (owners) => void distrusted.push(...owners) },
    pendingResults,
  );
  const kept = pendingResults.takeResults().map(({ id }) => id);
  assert.deepEqual(new Set(kept), new Set([provenOne, heldProven, nothingWritten]));
  assert.equal(pendingResults.size, 0);
  assert.deepEqual(distrusted, [gone]);
});

test("results stay pending when the query for proofs fails", async () => {
  const id = await taken();
  const pendingResults = new PendingResults();
  pendingResults.add(ended(id, true), gone, queued);
  const lost = await openManager(database.target);
  await lost.end();
  await assert.rejects(discardUnconfirmed(lost, table, { owners: [], distrust() {} }, pendingResults));
  assert.deepEqual(
    pendingResults.takeResults().map((result) => result.id),
    [id],
  );
});
