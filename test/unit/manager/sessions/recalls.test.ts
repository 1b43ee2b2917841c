import assert from "node:assert/strict";
import { test } from "node:test";
import type { Client } from "../../../../src/shared/postgres/client.js";
import { openSession, pid } from "../../../support/openSession.js";

const nothing = (): void => {};

/**
 * Creates a connection to a server that executes the run with this lock and grants every permit. Records the permits
 * that are taken and revoked.
 */
function server(running: number, onRevoke: () => void = nothing) {
  const taken: number[] = [];
  const revoked: number[] = [];
  const runLocks: [string, number[]][] = [];
  const query = async ({ name, values: [numbers, locks = []] }: { name: string; values: number[][] }) => {
    if (numbers === undefined) throw new Error("no values");
    if (name === "held run locks") return { rows: [{ pid, lock: running }] };
    if (name.endsWith("run locks")) {
      runLocks.push([name, locks]);
      // Somebody else has guessed the last one.
      return { rows: locks.map((lock) => ({ pid, lock, taken: lock !== 13 })) };
    }
    if (name === "take permits") taken.push(...numbers);
    else {
      revoked.push(...numbers);
      onRevoke();
    }
    return { rows: numbers.map((permit) => ({ permit, taken: true })) };
  };
  const client: Client = Object.create(null, {
    query: { value: query },
    connection: { value: { stream: { cork: nothing, uncork: nothing } } },
  });
  return { client, taken, revoked, runLocks };
}

const sent = [
  { id: "1", lockKey: 11 },
  { id: "2", lockKey: 12 },
  { id: "3", lockKey: 13 },
];

/** Opens a session with three tasks and a permit. */
async function openPermitted(running: number) {
  const opened = openSession();
  const { recalls } = opened.sessions;
  opened.assign("1", "2", "3");
  const { client, taken, revoked, runLocks } = server(running);
  await recalls.grantPermits(client);
  const [permit] = taken;
  const answer = (ids: string[], queuedBehind: string | null): void =>
    recalls.answered({ session: 1, ids, queuedBehind, sent });
  return { ...opened, recalls, client, permit, revoked, runLocks, answer };
}

test("revokes a permit again that an abandoned recall has returned, when another recall follows", async () => {
  const { recalls, client, permit, revoked, permits, answer } = await openPermitted(12);
  recalls.recall(["2"], true);
  recalls.recall(["3"], false);
  // The reason for the first recall is a run that has ended in the meantime, so the recalled runs may stay.
  answer(["2"], "1");
  answer(["3"], null);
  await recalls.process(client);
  assert.deepEqual(revoked, [permit]);
  assert.deepEqual(permits(), [permit, permit, null]);
  assert.equal(recalls.isPending, false);
});

test("with users, it releases only runs whose locks it could take, and keeps these until they are answered", async () => {
  const { sessions, recalls, client, runLocks, answer, receive } = await openPermitted(11);
  sessions.enterLane(null);
  recalls.recall(["2", "3"], false);
  answer(["2", "3"], null);
  await recalls.process(client);
  assert.deepEqual(
    ["2", "3"].map((id) => sessions.hasTask({ id, owner: "1" })),
    [false, true],
  );
  assert.deepEqual(runLocks, [["take run locks", [12, 13]]]);
  await recalls.process(client);
  assert.deepEqual(runLocks.slice(1), [["release run locks", [13]]]);
  assert.equal(recalls.needsServer, false);
  receive({ type: "results", results: [{ outcome: "released", session: 1, id: "2" }] });
  assert.equal(recalls.needsServer, true);
  await recalls.process(client);
  assert.deepEqual(runLocks.slice(2), [["release run locks", [12]]]);
});

test("without the table's lock nothing is recalled, and no permit is requested", async () => {
  const { sessions, recalls, client, revoked, permits, answer } = await openPermitted(11);
  recalls.detach();
  recalls.attach(false);
  recalls.recall(["2", "3"], false);
  answer(["2", "3"], null);
  await recalls.process(client);
  await recalls.grantPermits(client);
  assert.deepEqual([recalls.needsServer, recalls.isPending], [false, false]);
  assert.deepEqual([revoked, permits().slice(1)], [[], [null]]);
  assert.deepEqual(
    ["2", "3"].map((id) => sessions.hasTask({ id, owner: "1" })),
    [true, true],
  );
});

test("permits of a connection that is lost during their revocation are not revoked by the next connection", async () => {
  const { recalls, answer } = await openPermitted(11);
  recalls.recall(["2"], false);
  answer(["2"], null);
  const lost = server(11, () => {
    recalls.detach();
    throw new Error("Connection terminated unexpectedly");
  });
  await assert.rejects(recalls.process(lost.client));
  const next = server(11);
  await recalls.process(next.client);
  assert.deepEqual(next.revoked, []);
});

test("recalls tasks again that were left in a stale session", () => {
  const { sessions, assign, recalled } = openSession();
  const { recalls } = sessions;
  assign("1", "2", "3");
  recalls.recall(["2"], true);
  // So far, task "2" is to be recalled only if it is still delayed.
  sessions.markStale();
  assert.deepEqual(recalled(), [["2"], ["3"]]);
  recalls.answered({ session: 1, ids: ["2"], queuedBehind: "1", sent: null });
  assert.deepEqual(recalled(), [["2"], ["3"], ["2"]]);
  // The last recall is unconditional, so its outcome is final.
  recalls.answered({ session: 1, ids: ["2"], queuedBehind: null, sent: [] });
  assert.equal(recalled().length, 3);
});

test("a task queued behind one of its own group cannot move to another session", () => {
  const { sessions, groups, assign } = openSession();
  assign("1", "2", "3");
  assert.equal(groups.get(1)?.running, 1);
  assert.equal(sessions.countMovable(10), 0);
});
