import assert from "node:assert/strict";
import { test } from "node:test";
import { Recalls } from "../../../../src/manager/sessions/recalls.js";
import type { SentRecall } from "../../../../src/manager/sessions/session.js";
import type { Client } from "../../../../src/shared/postgres/client.js";
import { openSession, pid } from "../../../support/openSession.js";

const nothing = (): void => {};

/** A connection to a server on which the run with this lock is under way; notes which permits it gives up. */
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

const recall = (more: Pick<SentRecall, "ids" | "behind" | "permit">): SentRecall => ({
  session: 1,
  pid,
  sent: [
    { id: "1", lock: 11 },
    { id: "2", lock: 12 },
    { id: "3", lock: 13 },
  ],
  ...more,
});

test("a session keeps the permit that it has, and another one is given up", () => {
  const { sessions, revoked, permits } = openSession();
  sessions.permit(1, 7);
  sessions.permit(1, 8);
  sessions.permit(1, null);
  assert.deepEqual([revoked, permits()], [[8], [7]]);
  assert.equal(sessions.giveUpPermit(1), 7);
  assert.equal(sessions.giveUpPermit(1), null);
  assert.deepEqual(permits(), [7, null]);
});

test("a permit that comes back since one recall was given up is revoked for another one", async () => {
  const { sessions, permits } = openSession();
  const recalls = new Recalls(sessions);
  const revoked: number[] = [];
  // The first one waits behind a run that has ended by now, so that what it calls back may stay.
  recalls.add(recall({ ids: ["2"], behind: "1", permit: 7 }));
  recalls.add(recall({ ids: ["3"], behind: null, permit: null }));
  await recalls.send(server(12, revoked));
  assert.deepEqual(revoked, [7]);
  assert.deepEqual(permits(), [7, null]);
  assert.equal(recalls.pending, false);
});

test("without the table's lock nothing is taken back, and no permit is asked for", async () => {
  const { sessions, permits, assign } = openSession();
  const recalls = new Recalls(sessions);
  assign("1", "2", "3");
  recalls.lose();
  recalls.attach(false);
  sessions.recall(["2", "3"], false);
  recalls.add(recall({ ids: ["2", "3"], behind: null, permit: null }));
  recalls.wantPermit(1);
  const asked: number[] = [];
  const client = server(11, asked);
  await recalls.send(client);
  await recalls.permit(client);
  assert.equal(recalls.pending, false);
  assert.deepEqual([asked, permits().filter((permit) => permit !== null)], [[], []]);
  assert.deepEqual(
    [sessions.runs("2"), sessions.runs("3"), sessions.recalling],
    [true, true, false],
  );
});

test("permits of a connection that is lost while they are revoked are not revoked by the next one", async () => {
  const { sessions } = openSession();
  const recalls = new Recalls(sessions);
  recalls.add(recall({ ids: ["2"], behind: null, permit: 7 }));
  const lost = Object.create(server(11, []), {
    query: {
      value: async () => {
        recalls.lose();
        throw new Error("Connection terminated unexpectedly");
      },
    },
  });
  await assert.rejects(recalls.send(lost));
  assert.equal(recalls.pending, false);
});

test("what is left in a session that is to run nothing more is called back again", () => {
  const { sessions, assign, recalled } = openSession();
  assign("1", "2", "3");
  sessions.recall(["2"], true);
  // By now "2" is called back, but only as long as others hold it up.
  sessions.renew();
  assert.deepEqual(recalled(), [["2"], ["3"]]);
  sessions.withhold({ session: 1, ids: ["2"], behind: "1" }, new Set());
  assert.deepEqual(recalled(), [["2"], ["3"], ["2"]]);
  // That one depends on nothing: what comes of it is final.
  sessions.withhold({ session: 1, ids: ["2"], behind: null }, new Set());
  assert.equal(recalled().length, 3);
});

test("a task that waits behind one of its own group could run nowhere else", () => {
  const { sessions, groups, assign } = openSession();
  assign("1", "2", "3");
  assert.equal(groups.get(1)?.running, 1);
  assert.equal(sessions.countMovable(10), 0);
});
