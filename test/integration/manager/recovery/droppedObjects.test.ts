import assert from "node:assert/strict";
import { describe } from "node:test";
import { test } from "../../../support/limitedTest.js";
import { serve } from "../../../support/serve.js";
import { only, Tasks } from "../../../support/tasks.js";

const { pgTask, database, client, tasks } = await serve({ "pg_task.sleep": 200 }, "CREATE TABLE effect (what text)");
const config = { url: database.url, "pg_task.sleep": 200 };
const writes = "INSERT INTO effect VALUES (current_setting('pg_task.id'))";

const { rows: resets } = await client.query<{ signature: string }>(
  "SELECT oid::regprocedure::text AS signature FROM pg_proc WHERE proname = 'task_reset' AND pronargs > 0",
);
/** Signature of the reset function, which is called at the beginning of the next run. */
const behind = only(resets).signature;

const said = "dropped objects created again";

const drops: Readonly<Record<string, readonly [statement: string, missing: readonly string[]]>> = {
  "a ledger": ["DROP TABLE task_ledger_1", ["task_ledger_1"]],
  "the other ledger": ["DROP TABLE task_ledger_2", ["task_ledger_2"]],
  "both ledgers": ["DROP TABLE task_ledger_1, task_ledger_2", ["task_ledger_1", "task_ledger_2"]],
  finish: ["DROP FUNCTION task_finish", ["task_finish"]],
  "a reset": ["DROP FUNCTION task_reset()", ["task_reset"]],
  "the reset of runs behind others": [`DROP FUNCTION ${behind}`, ["task_reset"]],
  "all of them": [
    `DROP FUNCTION task_finish, task_reset(), ${behind}; DROP TABLE task_ledger_1, task_ledger_2`,
    ["task_finish", "task_reset", "task_ledger_1", "task_ledger_2"],
  ],
};

async function effects(ids: readonly string[]): Promise<void> {
  const { rows } = await client.query<{ what: string }>(
    "SELECT what FROM effect WHERE what = ANY ($1::text[]) ORDER BY what::bigint",
    [ids],
  );
  assert.deepEqual(
    rows.map(({ what }) => what),
    ids,
  );
}

describe("dropped objects of pg-task are created again", () => {
  for (const [title, [statement, missing]] of Object.entries(drops)) {
    test(`at the next start: ${title}`, async () => {
      await pgTask.stop();
      await client.query(statement);
      const from = pgTask.lines.length;
      await pgTask.start(config);
      const line = await pgTask.logged(({ msg }) => msg === said, from);
      assert.deepEqual(line["missing"], missing);
      const row = await tasks.run(writes);
      assert.deepEqual([row.state, row.error], ["DONE", null]);
      await effects([row.id]);
    });

    // While tasks run, only a missing ledger that is in use is noticed.
    if (title === "the other ledger") continue;

    test(`while pg-task runs: ${title}`, async () => {
      const warm = await tasks.insert({ input: writes }, { input: "SELECT 1" });
      await tasks.ended(...warm);
      const from = pgTask.lines.length;
      await client.query(statement);
      const ids = await tasks.insert(...Array.from({ length: 20 }, (_, n) => ({ input: writes, group: `g${n % 4}` })));
      for (const row of await tasks.ended(...ids)) {
        assert.deepEqual([row.state, row.error], ["DONE", null]);
      }
      await effects(ids);
      await pgTask.logged(({ msg }) => msg === said, from);
    });
  }

  test("but a task that drops one of them itself fails, and other tasks continue", async () => {
    const row = await tasks.run(`${writes}; DROP TABLE task_ledger_1`);
    assert.equal(row.state, "FAIL");
    assert.match(row.error ?? "", /^ERROR: {2}relation "public.task_ledger_1" does not exist/);
    assert.equal((await tasks.run(writes)).state, "DONE");
    await effects([]);
  });
});

test("the other ledger keeps its rows", async () => {
  await pgTask.stop();
  await client.query("INSERT INTO task_ledger_2 (id, take, running) VALUES (-7, 1, true); DROP TABLE task_ledger_1");
  const owner = "1 2001-01-01T00:00:00.000000";
  const [id = ""] = await tasks.insert({ input: "SELECT 1", state: "WORK", id: -7, owner });
  await client.query("UPDATE task SET take = 'epoch'::timestamptz + '1 us' WHERE id = -7");
  await pgTask.start(config);
  assert.equal((await tasks.end(id)).state, "DONE");
});

test("a dropped table is created again, and the log says that its tasks are gone", async () => {
  await tasks.insert({ input: "SELECT 1", plan: "infinity" });
  const from = pgTask.lines.length;
  await client.query("DROP TABLE task; DROP FUNCTION test_announce");
  const line = await pgTask.logged(
    ({ msg }) => msg === "another table has this name now, without the tasks of the one before",
    from,
  );
  assert.deepEqual([line["level"], line["before"]], ["warn", "dropped"]);
  assert.ok(pgTask.lines.slice(from).some(({ msg }) => msg === "table created"));
  const inNewTable = await Tasks.create(client);
  const row = await inNewTable.run(writes);
  assert.deepEqual([row.state, row.error], ["DONE", null]);
});
