import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { claimFull } from "../../../../src/manager/claim/claimFull.sql.js";
import { claimPlain } from "../../../../src/manager/claim/claimPlain.sql.js";
import { claimSmall } from "../../../../src/manager/claim/claimSmall.sql.js";
import type { OwnedResult } from "../../../../src/manager/model/tasks.js";
import { completeFull } from "../../../../src/manager/results/completeFull.sql.js";
import { completePlain } from "../../../../src/manager/results/completePlain.sql.js";
import { dueWithKeys, insertedTasks, scanGroups } from "../../../../src/manager/groups/heads.sql.js";
import { endUnrun, readLate } from "../../../../src/manager/groups/endUnrun.sql.js";
import { releaseTasks } from "../../../../src/manager/results/releaseTasks.sql.js";
import { idleOwners } from "../../../../src/manager/sessions/idleOwners.sql.js";
import { lookUpPredecessors, readToLookUp, restartLookUp } from "../../../../src/manager/dependencies/lookUp.sql.js";
import {
  deleteAwaited,
  readEndedDependencies,
  releaseDependents,
  removeRead,
} from "../../../../src/manager/dependencies/release.sql.js";
import { nextPlan, markDue, markListedDue, readMarkable } from "../../../../src/manager/groups/plannedTasks.sql.js";
import { beginTurns, endTurns, readTurns, takeTurns } from "../../../../src/manager/groups/turns.sql.js";
import { retryPauses } from "../../../../src/manager/sql/pauseGroup.sql.js";
import { findProvenRuns } from "../../../../src/manager/recovery/discardUnconfirmed.js";
import { readClaimedRows, rescueTasks } from "../../../../src/manager/recovery/rescue.sql.js";
import { updateRemotePids, updateStarts } from "../../../../src/manager/results/updateRunning.sql.js";
import { recheckLocked } from "../../../../src/manager/claim/recheckLocked.sql.js";
import { readFirstDue } from "../../../../src/manager/claim/tryClaims.sql.js";
import { readGroupHeads } from "../../../../src/manager/stalls/stalls.sql.js";
import { unwantedRuns } from "../../../../src/manager/sessions/changedTasks.sql.js";
import { readColumnSet } from "../../../../src/manager/schema/columnSet.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import type { Client } from "../../../../src/shared/postgres/client.js";
import { claimOf, emptySlots } from "../../../support/claims.js";
import { createDatabase } from "../../../support/database.js";
import { plannedNodes } from "../../../support/plans.js";
import { openManager } from "../../../support/taskTables.js";
import { retryPolicy } from "../../../support/retryPolicy.js";

const database = await createDatabase("task");
const client = await database.connect();
const manager = await openManager(database.target);
const table = taskTable("public", "task");

async function reads(
  work: (client: Client) => Promise<unknown>,
  mode: "force_custom_plan" | "force_generic_plan",
): Promise<string[]> {
  return (await plannedNodes(manager, work, mode))
    .filter((node) => node["Relation Name"] === "task" && node["Node Type"] !== "ModifyTable")
    .map((node) => {
      // The indexes of tasks to look up, and of those that are to run alone, contain only the rows that are wanted.
      const bounded =
        node["Index Cond"] !== undefined ||
        table.holdIndex === node["Index Name"] ||
        table.aloneIndex === node["Index Name"];
      return `${node["Node Type"]} ${node["Index Name"] ?? ""}${bounded ? "" : " over all rows"}`;
    });
}

const owner = "1 2001-01-01T00:00:00.000000";
const ids = Array.from({ length: 100 }, (_, index) => String(index + 1));
const owned = ids.map((id) => ({ id, owner, start: null, pid: 1 }));
const pauses = ids.map((id) => ({ id, since: "2001-01-01T00:00:00Z" }));
const endings = ids.map((id) => ({ predecessor: id, task: id, state: "DONE", unread: true }));

const shape = await readColumnSet(manager, table);

const results = ids.map((id): OwnedResult => ({
  outcome: "ended",
  id,
  session: 1,
  owner,
  start: "2001-01-01T00:00:00Z",
  stop: "2001-01-01T00:00:01Z",
  output: "x",
  error: null,
  sqlstate: null,
  committed: false,
}));

const queuedRequest = {
  groups: [{ hash: 1, running: 1, max: 0, id: 1n, quietMs: Infinity, maxTasks: 100, ownSlots: emptySlots(100) }],
  slots: [],
  dedicated: [],
  maxCandidates: 0,
  except: [],
};

const statements: Record<string, (client: Client) => Promise<unknown>> = {
  claim: (stub) => claimFull(stub, table, claimOf(new Map([[1, 1]]), { sessions: 100, lookAhead: 100 })),
  "claim behind others": (stub) => claimFull(stub, table, queuedRequest),
  "claim plain": (stub) => claimPlain(stub, table, queuedRequest),
  "claim small": (stub) =>
    claimSmall(stub, table, {
      sessions: [{ owner, pid: 1 }],
      unreserved: 1,
      groups: [{ hash: 1, running: 1 }],
      except: [],
      runningKeys: [],
      traced: false,
    }),
  "claim around locked rows": (stub) =>
    claimFull(stub, table, claimOf(new Map([[1, 0]]), { sessions: 1, except: ids })),
  "claim of contended rows": (stub) =>
    claimFull(stub, table, { ...claimOf(new Map([[1, 0]]), { sessions: 100 }), contended: ids }),
  "claim around running keys": (stub) =>
    claimFull(stub, table, { ...claimOf(new Map([[1, 0]]), { sessions: 1 }), runningKeys: ids }),
  "due with keys": (stub) => dueWithKeys(stub, table, ids),
  "inserted tasks": (stub) => insertedTasks(stub, table, 1n, 100),
  "show started": (stub) => updateStarts(stub, table, owned),
  "recheck locked": (stub) => recheckLocked(stub, table, ids),
  "scan groups": (stub) => scanGroups(stub, table, { after: 0, limit: 100, except: ids }),
  "group heads": (stub) =>
    readGroupHeads(stub, table, { after: 0, limit: 100, except: ids, keys: [], running: new Map([[1, 1]]) }),
  "unwanted runs": (stub) => unwantedRuns(stub, table, owned),
  complete: (stub) => completeFull(stub, table, shape, results, { retry: retryPolicy }),
  "complete plain": (stub) => completePlain(stub, table, results),
  "late tasks": (stub) => readLate(stub, table, [1, 2], 100, ids),
  expire: (stub) => endUnrun(stub, table, shape, ids),
  "first due": (stub) => readFirstDue(stub, table, [1, 2], 100, ids),
  release: (stub) => releaseTasks(stub, table, owned),
  "pause later": (stub) => retryPauses(stub, table, pauses),
  "idle owners": (stub) => idleOwners(stub, table, owned),
  "proven runs": (stub) => findProvenRuns(stub, table, owned),
  "show remote pids": (stub) => updateRemotePids(stub, table, owned),
  "next plan": (stub) => nextPlan(stub, table),
  "tasks to look up": (stub) => readToLookUp(stub, table, 1000, ids),
  "restart look up": (stub) => restartLookUp(stub, table, 1000),
  "look up predecessors": (stub) => lookUpPredecessors(stub, table, shape, ids),
  "ended dependencies": (stub) => readEndedDependencies(stub, table, { predecessors: ids, except: ids, limit: 1000 }),
  "all ended dependencies": (stub) =>
    readEndedDependencies(stub, table, { predecessors: null, except: ids, limit: 1000 }),
  "release dependents": (stub) => releaseDependents(stub, table, shape, endings),
  "delete awaited": (stub) => deleteAwaited(stub, table, ids),
  "remove read dependencies": (stub) => removeRead(stub, table),
  "mark due": (stub) => markDue(stub, table),
  "end turns": (stub) => endTurns(stub, table, ids, ids),
  "take turns": (stub) => takeTurns(stub, table, ids, ids),
  "begin turns": (stub) => beginTurns(stub, table, ids),
  turns: (stub) => readTurns(stub, table, ids),
  "due task ids": (stub) => readMarkable(stub, table, ids),
  "mark these due": (stub) => markListedDue(stub, table, ids),
  "still owned": (stub) => readClaimedRows(stub, table, ids),
  rescue: (stub) => rescueTasks(stub, table, shape, { dead: [owner], ids, blame: true, crashes: 3 }),
};

const fill = `INSERT INTO task (input, "group", plan, state, take, start, stop, output)
  SELECT 'SELECT 1', 'group ' || n % 1000, now() - interval '1 hour', 'DONE', now(), now(), now(), '1'
  FROM generate_series(1, 200000) AS n`;
const waiting = `INSERT INTO task (input, "group", plan)
  SELECT 'SELECT 1', 'group ' || n % 100, now() + (n % 2) * interval '1 hour'
  FROM generate_series(1, 1000) AS n`;

const row = "INSERT INTO task (input) VALUES ('SELECT 1')";

/** A cached plan stays in use while the table grows, until the table's statistics change. */
for (const [what, statistics, rows] of [
  ["200,000 finished rows and statistics of yesterday's empty table", ["ANALYZE task"], [fill]],
  ["200,000 finished rows and statistics of rows that all wait", [waiting, "ANALYZE task", "TRUNCATE task"], [fill]],
  ["no row", [], []],
  ["no row, known to be so", ["VACUUM ANALYZE task"], []],
  ["a single row", [row, "VACUUM ANALYZE task"], []],
  ["some finished rows", [waiting, "UPDATE task SET state = 'DONE'", "VACUUM ANALYZE task"], []],
] as const) {
  describe(`planned with ${what}`, () => {
    before(async () => {
      await client.query("ALTER TABLE task SET (autovacuum_enabled = off)");
      await client.query("TRUNCATE task");
      for (const statement of [...statistics, ...rows]) await client.query(statement);
    });

    for (const [name, work] of Object.entries(statements)) {
      for (const mode of ["force_custom_plan", "force_generic_plan"] as const) {
        test(`${name} reads only the rows it needs, by an index (${mode})`, async () => {
          const found = await reads(work, mode);
          assert.ok(found.length > 0);
          for (const read of found) {
            assert.match(read, /^Index (Only )?Scan task_\w+$/, found.join("; "));
          }
        });
      }
    }
  });
}
