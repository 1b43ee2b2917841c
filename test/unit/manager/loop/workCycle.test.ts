import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { Client, DatabaseError } from "pg";
import { Claimer } from "../../../../src/manager/claim/claimer.js";
import { ExecutorThreads } from "../../../../src/manager/sessions/executorThreads.js";
import { ActiveGroups } from "../../../../src/manager/groups/groups.js";
import { LedgerRotation } from "../../../../src/manager/upkeep/ledgerRotation.js";
import { GroupScanner } from "../../../../src/manager/groups/groupScanner.js";
import { PendingResults } from "../../../../src/manager/results/pendingResults.js";
import { DeferredPauses } from "../../../../src/manager/groups/deferredPauses.js";
import { Recalls } from "../../../../src/manager/sessions/recalls.js";
import { RemotePids } from "../../../../src/manager/results/remotePids.js";
import { RunTimes } from "../../../../src/manager/sessions/runTimes.js";
import { SettingsAge } from "../../../../src/manager/sessions/settingsAge.js";
import { SessionPool } from "../../../../src/manager/sessions/sessionPool.js";
import type { ManagerSettings } from "../../../../src/manager/settings.js";
import { Starts } from "../../../../src/manager/results/starts.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { WorkCycle } from "../../../../src/manager/loop/workCycle.js";
import { createLog } from "../../../../src/shared/log.js";
import { openSession } from "../../../support/openSession.js";

/** What the server says to a statement that writes this row. */
type Answer = "written" | "locked" | "refused" | "deadlock" | "cut off";

const log = createLog({ level: "silent", name: "test", write: () => {} });

const settings: ManagerSettings = {
  sleepMs: 1000,
  resetMs: 1000,
  idle: 60,
  limit: 1000,
  fetch: 100,
  run: 1000,
  outputLimit: 1000,
  crash: 3,
  closeMs: 1000,
  batch: 100,
  restartMs: 1000,
};

const nothing = (): void => {};

/** A turn that has nothing but results to write. */
function writingTurn(outbox: PendingResults): WorkCycle {
  return turnOf(noSessions(), new ActiveGroups(), outbox);
}

function noSessions(): SessionPool {
  const executors = new ExecutorThreads({
    parameters: () => assert.fail("no thread is started"),
    closeMs: () => 0,
    events: { message: nothing, room: nothing, ended: nothing },
    log,
    threadLog: log,
  });
  return new SessionPool({
    executors,
    groups: new ActiveGroups(),
    runTimes: new RunTimes(),
    maxThreads: () => 1,
    mayUseMore: () => false,
    events: {
      changed: nothing,
      result: nothing,
      lost: nothing,
      opened: nothing,
      lacking: nothing,
      unopened: nothing,
      cancel: nothing,
      remote: nothing,
      started: nothing,
      silent: nothing,
      recall: nothing,
      permit: nothing,
      revoke: nothing,
    },
    log,
  });
}

function turnOf(sessions: SessionPool, groups: ActiveGroups, outbox: PendingResults): WorkCycle {
  const runTimes = new RunTimes();
  const table = taskTable("public", "task");
  const ledgers = new LedgerRotation({ table, log });
  const settingsAge = new SettingsAge({ sessions, log });
  return new WorkCycle({
    table,
    sessions,
    groups,
    outbox,
    remotePids: new RemotePids(),
    recalls: new Recalls(sessions),
    pauses: new DeferredPauses(table, log),
    lookout: new GroupScanner({ table, groups, log }),
    claiming: new Claimer({
      table,
      sessions,
      groups,
      outbox,
      ledgers,
      runTimes,
      settingsAge,
      log,
    }),
    starts: new Starts(),
    log,
  });
}

/** A connection to a server that answers like this, and what it has written. */
function server(answers: ReadonlyMap<string, Answer>, written: string[]): Client {
  const query = async ({
    name,
    values,
  }: {
    name?: string;
    values: [string[]];
  }): Promise<unknown> => {
    // The shape of the table is told by an empty answer.
    if (name?.startsWith("complete ") !== true) return { rows: [], rowCount: 0 };
    const [ids] = values;
    const said = ids.map((id) => answers.get(id));
    if (said.includes("cut off")) throw new Error("Connection terminated unexpectedly");
    if (said.includes("refused")) throw serverError("P0001");
    if (said.includes("deadlock")) throw serverError("40P01");
    written.push(...ids.filter((id) => answers.get(id) === "written"));
    return {
      rows: ids
        .filter((id) => answers.get(id) === "locked")
        .map((id) => ({ id, since: null, holds: true, state: null })),
    };
  };
  // The turn uses nothing else of it.
  return Object.assign(new Client(), { query });
}

function serverError(code: string): DatabaseError {
  const error = new DatabaseError("said the server", 0, "error");
  error.code = code;
  return error;
}

const room = { start: 0, lookAhead: 0, watch: false, told: false };

test("whatever the server says, each result is either written once or kept", async () => {
  const answer = fc.constantFrom<Answer>(
    "written",
    "written",
    "locked",
    "refused",
    "deadlock",
    "cut off",
  );
  await fc.assert(
    fc.asyncProperty(fc.array(answer, { maxLength: 12 }), fc.boolean(), async (answers, plain) => {
      const outbox = new PendingResults();
      const ids = answers.map((_, index) => String(index + 1));
      for (const id of ids) {
        const result = {
          session: 1,
          id,
          start: "",
          stop: "",
          output: "",
          error: null,
          committed: false,
        };
        outbox.add({ outcome: "ended", ...result }, "owner", {
          hash: 1,
          max: 0,
          pauses: false,
          plain,
        });
      }
      const written: string[] = [];
      const client = server(new Map(ids.map((id, index) => [id, answers[index]!])), written);
      const cut = answers.includes("cut off");
      const turn = writingTurn(outbox).once(client, settings, room);
      await (cut ? turn.catch(() => {}) : turn);
      const kept = ids.filter((id) => outbox.has(id));
      assert.deepEqual(
        [...written, ...kept].toSorted((a, b) => Number(a) - Number(b)),
        ids,
      );
    }),
  );
});

test("a task that is stopped while it is being called back is looked at once that is settled", async () => {
  const { sessions, groups, assign, receive } = openSession();
  assign("1", "2");
  const turn = turnOf(sessions, groups, new PendingResults());
  const looks: unknown[] = [];
  const client: Client = Object.assign(new Client(), {
    query: async ({ name, values }: { name?: string; values: unknown[] }) => {
      if (name === "unwanted") looks.push(values[0]);
      return { rows: [], rowCount: 0 };
    },
  });
  sessions.recall(["2"], true);
  await turn.once(client, settings, { ...room, watch: true, told: true });
  assert.deepEqual(looks, [["1"]]);
  receive({ type: "results", results: [{ outcome: "returned", session: 1, id: "1" }] });
  receive({ type: "recalled", session: 1, ids: ["2"], behind: "1", sent: null });
  await turn.once(client, settings, room);
  assert.deepEqual(looks, [["1"], ["2"]]);
});

test("a task that was changed while it was being called back, and stays, is compared once that is settled", async () => {
  const { sessions, groups, assign, receive } = openSession();
  assign("1", "2", "3");
  const turn = turnOf(sessions, groups, new PendingResults());
  const compared: unknown[] = [];
  const client: Client = Object.assign(new Client(), {
    query: async ({ name, values }: { name?: string; values: unknown[] }) => {
      if (name === "changed tasks") compared.push(values[0]);
      return { rows: [], rowCount: 0 };
    },
  });
  sessions.recall(["3"], true);
  await turn.once(client, settings, { ...room, watch: true, told: true });
  assert.deepEqual(compared, [["2"]]);
  receive({ type: "results", results: [{ outcome: "returned", session: 1, id: "1" }] });
  receive({ type: "recalled", session: 1, ids: ["3"], behind: "1", sent: null });
  await turn.once(client, settings, room);
  assert.deepEqual(compared, [["2"], ["3"]]);
});
