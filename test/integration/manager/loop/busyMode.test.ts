import assert from "node:assert/strict";
import { lockClasses } from "../../../../src/shared/postgres/advisoryLocks.js";
import { test } from "../../../support/limitedTest.js";
import { serve } from "../../../support/serve.js";
import { statesOf, eventually, only } from "../../../support/tasks.js";

const { database, tasks } = await serve({ "pg_task.sleep": 600_000, "pg_conf.max": 8 });
const observer = await database.connect();

const busy = `SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = ${lockClasses.busy}::oid
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`;

/**
 * Inserts tasks as fast as possible until `stop` is called.
 *
 * @param commitMs how long each commit takes at least, in ms, as on a slow disk
 */
async function startLoad(commitMs = 0): Promise<{ readonly stop: () => Promise<string[]> }> {
  const state = { over: false };
  const ids: string[] = [];
  const producers = [1, 2, 3, 4].map(async () => {
    const producer = await database.connect();
    await producer.query(`SET commit_siblings = 0; SET commit_delay = ${commitMs * 1_000}`);
    while (!state.over) {
      const { rows } = await producer.query<{ id: string }>(
        `INSERT INTO task (input, "group") VALUES ('SELECT 1', 'load ' || floor(random() * 50)) RETURNING id`,
      );
      ids.push(only(rows).id);
    }
  });
  return {
    stop: async () => {
      state.over = true;
      await Promise.all(producers);
      return ids;
    },
  };
}

test("in busy mode the manager polls, and still notices stopped, deleted and changed tasks", async () => {
  const [stopped = "", deleted = "", planned = "", failed = ""] = await tasks.insert(
    { input: "SELECT pg_sleep(60)", group: "stopped" },
    { input: "SELECT pg_sleep(60)", group: "deleted" },
    { input: "SELECT pg_sleep(60)", group: "planned" },
    { input: "SELECT pg_sleep(60)", group: "failed" },
  );
  for (const id of [stopped, planned, failed]) await tasks.sleeping(id);
  const { pid } = await tasks.sleeping(deleted);
  const { stop } = await startLoad();
  await eventually(observer, busy, (rows) => rows.length === 1);
  await observer.query("UPDATE task SET state = 'STOP' WHERE id = $1", [stopped]);
  await observer.query("DELETE FROM task WHERE id = $1", [deleted]);
  await observer.query("UPDATE task SET state = 'PLAN', plan = '2100-01-01' WHERE id = $1", [planned]);
  await observer.query("UPDATE task SET state = 'FAIL' WHERE id = $1", [failed]);
  const others = await tasks.until([planned, failed], ({ owner }) => owner === null);
  assert.deepEqual(statesOf(others), ["PLAN", "FAIL"]);
  const [row] = await tasks.until([stopped], ({ owner }) => owner === null);
  assert.equal(row?.state, "STOP");
  await eventually(
    observer,
    `SELECT FROM pg_stat_activity WHERE pid = ${pid} AND state = 'active' AND query LIKE '%pg_sleep(60)%'`,
    (rows) => rows.length === 0,
  );
  const ids = await stop();
  assert.ok((await tasks.ended(...ids)).every(({ state }) => state === "DONE"));
});

test("after busy mode changes are notified again, even from transactions that began in busy mode", async () => {
  const { stop } = await startLoad();
  await eventually(observer, busy, (rows) => rows.length === 1);
  const slow = await database.connect();
  await slow.query("BEGIN");
  const { rows } = await slow.query<{ id: string }>("INSERT INTO task (input) VALUES ('SELECT 2') RETURNING id");
  await tasks.ended(...(await stop()));
  await eventually(observer, busy, (found) => found.length === 0);
  await slow.query("COMMIT");
  assert.equal(only(await tasks.ended(only(rows).id)).output, "2");
  assert.equal((await tasks.run("SELECT 3")).output, "3");
});

// With notifications, commits of 20 ms follow each other, so no more than 50 a second arrive.
test("on a slow disk, busy mode begins when writers wait for each other", async () => {
  const { stop } = await startLoad(20);
  await eventually(observer, busy, (rows) => rows.length === 1);
  const ids = await stop();
  assert.ok((await tasks.ended(...ids)).every(({ state }) => state === "DONE"));
});
