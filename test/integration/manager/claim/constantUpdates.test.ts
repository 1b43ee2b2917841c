import assert from "node:assert/strict";
import { test } from "../../../support/limitedTest.js";
import { serve } from "../../../support/serve.js";
import { eventually } from "../../../support/tasks.js";

// Locked rows are retried so rarely that only the rechecks and the waiting claim can be in time.
const { database, client, tasks } = await serve({ "pg_task.sleep": 600_000, "pg_task.delete": false });

/**
 * Makes several sessions update the row in short transactions, one after another, so that it is locked all the time.
 * Returns a function that ends this.
 */
async function keepUpdating(id: string): Promise<() => Promise<void>> {
  const over = new AbortController();
  const sessions = await Promise.all(Array.from({ length: 4 }, () => database.connect()));
  // Both statements are one transaction.
  const update = `UPDATE task SET data = 'x' WHERE id = ${id} AND state = 'PLAN'; SELECT pg_sleep(0.005)`;
  await Promise.all(sessions.map((session) => session.query(update)));
  const ended = sessions.map(async (session) => {
    while (!over.signal.aborted) await session.query(update);
  });
  return async () => {
    over.abort();
    await Promise.all(ended);
  };
}

test("a task whose row other sessions update all the time starts while the updates go on", async () => {
  const [id = ""] = await tasks.insert({ input: "SELECT 1", group: "updated", plan: "infinity" });
  const stop = await keepUpdating(id);
  await client.query("UPDATE task SET plan = now() WHERE id = $1", [id]);
  // The others are not held up.
  assert.equal((await tasks.run("SELECT 2", { group: "other" })).state, "DONE");
  await tasks.until([id], ({ state }) => state !== "PLAN");
  await stop();
  assert.equal((await tasks.end(id)).state, "DONE");
});

test("a task whose row one long transaction holds is skipped, and starts after the transaction", async () => {
  await client.query(`INSERT INTO task_pause ("group") VALUES ('held')`);
  const [held = ""] = await tasks.insert({ input: "SELECT 1", group: "held" });
  const holder = await database.connect();
  await holder.query("BEGIN");
  await holder.query("UPDATE task SET data = 'held' WHERE id = $1", [held]);
  await client.query("DELETE FROM task_pause");
  for (const group of ["held", "not held", "held", "not held"])
    assert.equal((await tasks.run("SELECT 2", { group })).state, "DONE");
  assert.equal((await tasks.row(held)).state, "PLAN");
  await holder.query("COMMIT");
  assert.deepEqual(
    (await tasks.ended(held)).map(({ state, data }) => [state, data]),
    [["DONE", "held"]],
  );
});

/** Finds sessions of this database that wait for a lock. Other tests use other databases of the server. */
const lockWaits = `SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)
  WHERE NOT granted AND datname = current_database() AND pid <> pg_backend_pid()`;

/** Finds the manager's connection while a claim waits for a row. */
const waiting = `${lockWaits} AND query LIKE '%WITH candidate AS%'`;

/**
 * Makes two sessions change the row in turn, so that one always waits while the other has it locked, until a claim waits
 * as well. Returns a function that ends both transactions, or null if a claim has got the row in between.
 */
async function contend(id: string): Promise<(() => Promise<void>) | null> {
  let [holder, next] = [await database.connect(), await database.connect()];
  const update = `UPDATE task SET data = 'x' WHERE id = ${id} AND state = 'PLAN'`;
  await holder.query("BEGIN");
  await holder.query(update);
  await client.query("DELETE FROM task_pause");
  for (;;) {
    await next.query("BEGIN");
    const updated = next.query(update);
    await eventually(client, lockWaits, (rows) => rows.length > 0);
    const end = async (): Promise<void> => {
      await holder.query("COMMIT");
      await updated;
      await next.query("COMMIT");
    };
    if ((await client.query(waiting)).rows.length > 0) return end;
    await holder.query("COMMIT");
    if ((await updated).rowCount === 0) {
      await next.query("COMMIT");
      return null;
    }
    [holder, next] = [next, holder];
  }
}

test("a claim gives up waiting for a contended row that a long transaction holds, and does not wait again", async () => {
  let [id, end]: [string, (() => Promise<void>) | null] = ["", null];
  while (end === null) {
    await client.query(`INSERT INTO task_pause ("group") VALUES ('contended')`);
    id = (await tasks.insert({ input: "SELECT 1", group: "contended" }))[0] ?? "";
    end = await contend(id);
  }
  for (const group of ["contended", "other", "contended", "other"])
    assert.equal((await tasks.run("SELECT 2", { group })).state, "DONE");
  assert.equal((await tasks.row(id)).state, "PLAN");
  assert.equal((await client.query(waiting)).rows.length, 0);
  await end();
  assert.equal((await tasks.end(id)).state, "DONE");
});
