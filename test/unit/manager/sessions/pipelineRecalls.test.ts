import assert from "node:assert/strict";
import { test } from "node:test";
import { PipelineRecalls } from "../../../../src/manager/sessions/pipelineRecalls.js";
import type { SentRecall } from "../../../../src/manager/sessions/session.js";
import type { Client } from "../../../../src/shared/postgres/client.js";
import { openSession, pid } from "../../../support/openSession.js";

const nothing = (): void => {};

/**
 * Creates a connection to a server that executes the run with this lock. Adds the permits that are revoked to
 * `revoked`.
 */
function server(running: number, revoked: number[]): Client {
  const query = async ({ name, values }: { name: string; values: [number[]] }) => {
    if (name === "revoke permits") revoked.push(...values[0]);
    return { rows: name === "held run locks" ? [{ pid, lock: running }] : [] };
  };
  return Object.create(null, {
    query: { value: query },
    connection: { value: { stream: { cork: nothing, uncork: nothing } } },
  });
}

const recall = (more: Pick<SentRecall, "ids" | "queuedBehind" | "permit">): SentRecall => ({
  session: 1,
  pid,
  sent: [
    { id: "1", lockKey: 11 },
    { id: "2", lockKey: 12 },
    { id: "3", lockKey: 13 },
  ],
  ...more,
});

test("a session keeps its permit, and another one is revoked", () => {
  const { sessions, revoked, permits } = openSession();
  sessions.recalls.setPermit(1, 7);
  sessions.recalls.setPermit(1, 8);
  sessions.recalls.setPermit(1, null);
  assert.deepEqual([revoked, permits()], [[8], [7]]);
  assert.equal(sessions.recalls.takePermit(1), 7);
  assert.equal(sessions.recalls.takePermit(1), null);
  assert.deepEqual(permits(), [7, null]);
});

test("revokes a permit again that an abandoned recall has returned, when another recall follows", async () => {
  const { sessions, permits } = openSession();
  const recalls = new PipelineRecalls(sessions.recalls);
  const revoked: number[] = [];
  // The reason for the first recall is a run that has ended in the meantime, so the recalled runs may stay.
  recalls.add(recall({ ids: ["2"], queuedBehind: "1", permit: 7 }));
  recalls.add(recall({ ids: ["3"], queuedBehind: null, permit: null }));
  await recalls.process(server(12, revoked));
  assert.deepEqual(revoked, [7]);
  assert.deepEqual(permits(), [7, null]);
  assert.equal(recalls.isPending, false);
});

test("without the table's lock nothing is recalled, and no permit is requested", async () => {
  const { sessions, permits, assign } = openSession();
  const recalls = new PipelineRecalls(sessions.recalls);
  assign("1", "2", "3");
  recalls.detach();
  recalls.attach(false);
  sessions.recalls.recall(["2", "3"], false);
  recalls.add(recall({ ids: ["2", "3"], queuedBehind: null, permit: null }));
  recalls.requestPermit(1);
  const asked: number[] = [];
  const client = server(11, asked);
  await recalls.process(client);
  await recalls.grantPermits(client);
  assert.equal(recalls.isPending, false);
  assert.deepEqual([asked, permits().filter((permit) => permit !== null)], [[], []]);
  assert.deepEqual(
    [
      sessions.tasks.has({ id: "2", owner: "1" }),
      sessions.tasks.has({ id: "3", owner: "1" }),
      sessions.recalls.isPending,
    ],
    [true, true, false],
  );
});

test("permits of a connection that is lost during their revocation are not revoked by the next connection", async () => {
  const { sessions } = openSession();
  const recalls = new PipelineRecalls(sessions.recalls);
  recalls.add(recall({ ids: ["2"], queuedBehind: null, permit: 7 }));
  const lost = Object.create(server(11, []), {
    query: {
      value: async () => {
        recalls.detach();
        throw new Error("Connection terminated unexpectedly");
      },
    },
  });
  await assert.rejects(recalls.process(lost));
  assert.equal(recalls.isPending, false);
});

test("recalls tasks again that were left in a stale session", () => {
  const { sessions, assign, recalled } = openSession();
  assign("1", "2", "3");
  sessions.recalls.recall(["2"], true);
  // So far, task "2" is to be recalled only if it is still delayed.
  sessions.markStale();
  assert.deepEqual(recalled(), [["2"], ["3"]]);
  sessions.recalls.complete({ session: 1, ids: ["2"], queuedBehind: "1" }, new Set());
  assert.deepEqual(recalled(), [["2"], ["3"], ["2"]]);
  // The last recall is unconditional, so its outcome is final.
  sessions.recalls.complete({ session: 1, ids: ["2"], queuedBehind: null }, new Set());
  assert.equal(recalled().length, 3);
});

test("a task queued behind one of its own group cannot move to another session", () => {
  const { sessions, groups, assign } = openSession();
  assign("1", "2", "3");
  assert.equal(groups.get(1)?.running, 1);
  assert.equal(sessions.tasks.countMovable(10), 0);
});
