import assert from "node:assert/strict";
import type { Queryable } from "../../../../src/shared/postgres/client.js";
import { connectClient } from "../../../../src/shared/postgres/client.js";
import { batched } from "../../../../src/tasks/batched.js";
import { readTaskDetail } from "../../../../src/web/api/taskHandlers.js";
import { webSettings } from "../../../../src/web/data/connectionPool.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { ensureTaskTable, makeEntry } from "../../../support/taskTables.js";

const database = await createDatabase("task");
const client = await database.connect();
const entry = makeEntry(database.target);
const table = await ensureTaskTable(database.target);
const context = { entry, entries: [entry], maxSessions: 10, hasLeader: async () => true, lockOn: null };

/** Returns a connection that records its statements, and the statements. It sends one after another. */
async function recording(): Promise<{ readonly connection: Queryable; readonly sent: string[] }> {
  const web = await connectClient(database.target, { applicationName: "pg-task web", settings: webSettings });
  const sent: string[] = [];
  return {
    sent,
    connection: {
      query: async (text, values) => {
        sent.push(text);
        return await web.query(text, values);
      },
    },
  };
}

const insert = async (columns: string, values: string): Promise<string> =>
  (await client.query<{ id: string }>(`INSERT INTO task (${columns}) VALUES (${values}) RETURNING id`)).rows[0]?.id ??
  "";

test("the page's view of a task takes two statements, each of which is one round trip", async () => {
  const parent = await insert("input", "'SELECT 1'");
  const waiting = await insert(`input, parent, "group", key, gap`, `'SELECT 2', ${parent}, 'grüße', 'k', '1 h'`);
  const child = await insert("input, parent, plan", `'SELECT 3', ${waiting}, now() + interval '1 day'`);
  await client.query(`UPDATE task SET state = 'DONE', ready = NULL, output = 'x' WHERE id = $1`, [parent]);
  await client.query(`INSERT INTO task_pause ("group") VALUES ('grüße')`);
  for (const id of [waiting, parent]) {
    const { connection, sent } = await recording();
    const { task, reasons, ancestors, descendants } = await readTaskDetail(connection, table, id, context);
    assert.equal(sent.length, 2, sent.join("\n\n"));
    assert.equal(task.id, id);
    assert.deepEqual(reasons.map(({ code }) => code).slice(0, 1), [id === waiting ? "group-paused" : "ended"]);
    assert.deepEqual(
      [ancestors, descendants].map((list) => list.map((each) => each.id)),
      id === waiting ? [[parent], [child]] : [[], [waiting, child]],
    );
  }
});

test("a batch joins what is asked at the same time, asks nothing twice, and rejects what fails", async () => {
  const { connection, sent } = await recording();
  const batch = batched(connection);
  assert.equal(batched(batch), batch);
  const number = async (given: unknown): Promise<unknown> =>
    (await batch.query("SELECT $1::integer AS n, ARRAY[$2::text, '$1'] AS list", [given, "a"])).rows;
  const answers = await Promise.all([number(1), number(2), number(1), batch.query("SELECT WHERE false")]);
  assert.deepEqual(answers, [
    [{ n: 1, list: ["a", "$1"] }],
    [{ n: 2, list: ["a", "$1"] }],
    [{ n: 1, list: ["a", "$1"] }],
    { rows: [], rowCount: 0 },
  ]);
  assert.deepEqual(await number(2), [{ n: 2, list: ["a", "$1"] }]);
  assert.equal(sent.length, 1);
  const failed = await Promise.allSettled([number(3), batch.query("SELECT 1 / 0 AS n")]);
  assert.deepEqual(
    failed.map(({ status }) => status),
    ["rejected", "rejected"],
  );
});
