import assert from "node:assert/strict";
import { beforeEach } from "node:test";
import { claimFull } from "../../../../src/manager/claim/claimFull.sql.js";
import { claimSingle } from "../../../../src/manager/claim/claimSingle.sql.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { claimOf } from "../../../support/claims.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { openManager } from "../../../support/taskTables.js";
import type { ClaimedTask } from "../../../../src/manager/model.js";

const database = await createDatabase();
const user = await database.connect();
const manager = await openManager(database.target);
const table = taskTable("public", "task");
const session = { owner: "owner 0", pid: 1000 };

beforeEach(async () => {
  await user.query("TRUNCATE task, task_pause RESTART IDENTITY");
});

const single = async (except: readonly string[] = []): Promise<ClaimedTask | null> =>
  await claimSingle(manager, table, { session, except, traced: false });

/** Returns id, state and owner of all rows, as one text. */
async function owners(): Promise<string> {
  const { rows } = await user.query<{ text: string }>(
    "SELECT string_agg(concat(id, state, owner), ' ' ORDER BY id) AS text FROM task",
  );
  return rows[0]?.text ?? "";
}

test("the only due task is claimed with the same result as by the full claim", async () => {
  const insert = `INSERT INTO task (input, "group", max, count, timeout, header, "null", remote)
    VALUES ('SELECT max(1)', 'mine', 3, 2, '1.5 s', false, 'nil', 'host=elsewhere') RETURNING hash`;
  await user.query(`${insert}; INSERT INTO task (input, plan) VALUES ('SELECT 2', now() + '1 day')`);
  const task = await single();
  const shown = "SELECT to_jsonb(t) - '{id,take,start,plan,created}'::text[] AS row FROM task AS t";
  const { rows: row } = await user.query(`${shown} WHERE id = 1`);
  await user.query("TRUNCATE task RESTART IDENTITY");
  const { rows } = await user.query<{ hash: number }>(insert);
  const request = claimOf(new Map([[rows[0]?.hash ?? 0, 0]]), { sessions: 1 });
  const { claimed } = await claimFull(manager, table, request);
  assert.deepEqual(
    [{ ...task, claimedAt: "", planned: 0, version: "" }],
    claimed.map((each) => ({ ...each, claimedAt: "", planned: 0, version: "" })),
  );
  assert.deepEqual(row, (await user.query(shown)).rows);
});

const several = "INSERT INTO task (input, \"group\") VALUES ('SELECT 1', 'a'), ('SELECT 2', 'b')";
const one = "INSERT INTO task (input) VALUES ('SELECT 1')";

for (const [what, statements] of Object.entries({
  "none is due": "INSERT INTO task (input, plan) VALUES ('SELECT 1', now() + '1 day')",
  "several are due": several,
  "it is not active any more":
    "INSERT INTO task (input, plan, active) VALUES ('SELECT 1', now() - interval '1 hour', '1 s')",
  "its group is paused": `${one}; INSERT INTO task_pause ("group") VALUES ('group')`,
  "the table is paused": `${one}; INSERT INTO task_pause ("group") VALUES (NULL)`,
})) {
  test(`nothing is claimed when ${what}`, async () => {
    await user.query(statements);
    const before = await owners();
    assert.equal(await single(), null);
    assert.equal(await owners(), before);
  });
}

test("an excepted or locked task is not claimed", async () => {
  await user.query(several);
  assert.equal((await single(["1"]))?.id, "2");
  const holder = await database.connect();
  await holder.query("BEGIN; SELECT FROM task WHERE id = 1 FOR UPDATE");
  assert.equal(await single(), null);
  await holder.query("COMMIT");
  assert.equal((await single())?.id, "1");
});
