import assert from "node:assert/strict";
import { describe } from "node:test";
import { claimFull } from "../../../../../src/manager/claim/claimFull.sql.js";
import { completeFull } from "../../../../../src/manager/results/completeFull.sql.js";
import { releaseTasks } from "../../../../../src/manager/results/releaseTasks.sql.js";
import { markDue } from "../../../../../src/manager/groups/plannedTasks.sql.js";
import { rescueTasks } from "../../../../../src/manager/recovery/rescue.sql.js";
import { readColumnSet } from "../../../../../src/manager/schema/columnSet.js";
import type { Client } from "../../../../../src/shared/postgres/client.js";
import { claimOf } from "../../../../support/claims.js";
import { PgTask } from "../../../../support/pgTask.js";
import { createDatabase } from "../../../../support/database.js";
import { partitionedById, partitionedByPlan } from "../../../../support/foreignTables.js";
import { test } from "../../../../support/limitedTest.js";
import { plannedNodes } from "../../../../support/plans.js";
import { ensureTaskTable, openManager } from "../../../../support/taskTables.js";
import { waitForRow } from "../../../../support/tasks.js";
import { retryPolicy } from "../../../../support/retryPolicy.js";

const pgTask = new PgTask();
const database = await createDatabase("empty");
const { target } = database;
const client = await database.connect();
const manager = await openManager(target);

await client.query(partitionedByPlan("ranges"));
await client.query(partitionedById("hashes"));
const ranges = await ensureTaskTable(target, { schema: "ranges" });
const hashes = await ensureTaskTable(target, { schema: "hashes" });

async function heard(schema: string, statement: string): Promise<number> {
  const listener = await database.connect();
  const { rows } = await client.query<{ oid: number }>(`SELECT '${schema}.task'::regclass::oid AS oid`);
  let count = 0;
  listener.on("notification", () => (count += 1));
  await listener.query(`LISTEN "pg_task_${rows[0]?.oid}"`);
  await client.query(statement);
  // All notifications that were sent before are delivered before the answer to this query.
  await listener.query("SELECT");
  return count;
}

const insertInto = (partition: string, plan: string): string =>
  `INSERT INTO ${partition} (id, input, plan) VALUES (nextval('ranges.task_id_seq'), 'SELECT 1', '${plan}')`;

async function ready(partition: string): Promise<(boolean | null)[]> {
  const { rows } = await client.query<{ ready: boolean | null }>(
    `SELECT ready FROM ${partition} ORDER BY id DESC LIMIT 1`,
  );
  return rows.map((row) => row.ready);
}

describe("a row inserted directly into a partition", () => {
  test("wakes the manager of the partitioned table, at any level", async () => {
    assert.equal(await heard("ranges", insertInto("ranges.before", "2001-01-01")), 1);
    assert.equal(await heard("ranges", insertInto('ranges."Later on"', "2040-01-01")), 1);
    assert.equal(await heard("ranges", insertInto("ranges.task", "2001-01-01")), 1);
  });

  test("is marked as due or planned, and gets its hash", async () => {
    await client.query(insertInto("ranges.before", "2001-01-01"));
    assert.deepEqual(await ready("ranges.before"), [true]);
    await client.query(insertInto('ranges."Later on"', "2040-01-01"));
    assert.deepEqual(await ready('ranges."Later on"'), [false]);
    const { rows } = await client.query("SELECT FROM ranges.task WHERE hash IS NULL");
    assert.equal(rows.length, 0);
  });

  test("is handled in a partition attached later, after the next start", async () => {
    await client.query(`
      ALTER TABLE ranges.task DETACH PARTITION ranges."Later on";
      CREATE TABLE ranges."new one" PARTITION OF ranges.task FOR VALUES FROM ('2030-01-01') TO ('2031-01-01')`);
    await ensureTaskTable(target, { schema: "ranges" });
    assert.equal(await heard("ranges", insertInto('ranges."new one"', "2030-06-01")), 1);
    assert.deepEqual(await ready('ranges."new one"'), [false]);
  });

  test("is handled in a partition attached while pg-task runs, after the next pg_task.reset", async () => {
    await client.query(partitionedByPlan("running"));
    await pgTask.start({
      url: database.url,
      "pg_task.reset": "200 ms",
      "pg_task.sleep": 100,
      "pg_task.schema": "running",
    });
    await client.query(
      `ALTER TABLE running.task DETACH PARTITION running.before;
       CREATE TABLE running.late PARTITION OF running.task FOR VALUES FROM ('2020-01-01') TO ('2021-01-01')`,
    );
    await waitForRow(
      client,
      "SELECT FROM pg_trigger WHERE tgrelid = 'running.late'::regclass AND tgname = 'task_wake_up'",
    );
    await pgTask.stop();
  });

  test('is not handled with "create": false', async () => {
    await client.query(
      "CREATE TABLE ranges.newer PARTITION OF ranges.task FOR VALUES FROM ('2031-01-01') TO ('2032-01-01')",
    );
    await assert.rejects(ensureTaskTable(target, { schema: "ranges", create: false }), {
      code: "SCHEMA_MISSING",
      message: /partition "ranges"."newer" lacks the trigger/,
    });
    await ensureTaskTable(target, { schema: "ranges" });
    await ensureTaskTable(target, { schema: "ranges", create: false });
  });
});

async function reads(work: (stub: Client) => Promise<unknown>): Promise<string[]> {
  return (
    (await plannedNodes(manager, work))
      .filter((node) => node["Node Type"].endsWith("Scan") && node["Relation Name"] !== undefined)
      // These are small and are read completely.
      .filter((node) => !/^task_(?:ledger_|turn$)/.test(node["Relation Name"] ?? ""))
      .map((node) => `${node["Node Type"]} ${node["Relation Name"]}`)
  );
}

const owner = "1 2001-01-01T00:00:00.000000";

describe("statements on a partitioned table", () => {
  for (const table of [ranges, hashes]) {
    test(`use an index on each partition of ${table.schema}`, async () => {
      await client.query(
        `INSERT INTO ${table.qualified} (input, plan, state)
         SELECT '', now() - n * interval '1 second', 'DONE' FROM generate_series(1, 5000) AS n; ANALYZE ${table.qualified}`,
      );
      const shape = await readColumnSet(manager, table);
      const result = {
        type: "result",
        outcome: "ended",
        id: "5",
        owner,
        start: "2001-01-01",
        stop: "2001-01-01",
        output: "",
        error: null,
        sqlstate: null,
        committed: false,
      } as const;
      const works: Record<string, (stub: Client) => Promise<unknown>> = {
        claim: (stub) => claimFull(stub, table, claimOf(new Map([[1, 0]]), { sessions: 1 })),
        complete: (stub) => completeFull(stub, table, shape, [{ ...result, session: 1 }], { retry: retryPolicy }),
        release: (stub) => releaseTasks(stub, table, [{ id: "5", owner }]),
        promote: (stub) => markDue(stub, table),
        rescue: (stub) => rescueTasks(stub, table, shape, { dead: [owner], ids: ["5"], blame: true, crashes: 3 }),
      };
      for (const [name, work] of Object.entries(works)) {
        // The pause table has few rows, so it may be read completely.
        const found = (await reads(work)).filter((read) => !read.endsWith(" task_pause"));
        assert.ok(found.length > 0, name);
        for (const read of found) assert.match(read, /^Index (Only )?Scan /, `${name}: ${found.join("; ")}`);
      }
    });
  }
});
