import assert from "node:assert/strict";
import { before, describe } from "node:test";
import { taskTable, type TaskTable } from "../../../../src/manager/schema/taskTable.js";
import { connectClient, type Client } from "../../../../src/shared/postgres/client.js";
import { countMatches, listSlowest } from "../../../../src/tasks/queries/matchingTasks.js";
import { readBacklog, readLatencies, readRates, readRowCounts } from "../../../../src/tasks/queries/counts.js";
import { readErrorGroups, readHourlyRuns } from "../../../../src/tasks/queries/history.js";
import { readChain } from "../../../../src/tasks/queries/taskChain.js";
import { readGroups } from "../../../../src/tasks/queries/groups.js";
import { listTasks, type TaskList } from "../../../../src/tasks/queries/listTasks.js";
import { indexScanSettings } from "../../../../src/tasks/sqlFragments.js";
import { readSituation } from "../../../../src/tasks/explain/taskSituation.js";
import { createDatabase } from "../../../support/database.js";
import { extensionTable, partitionedById, partitionedByPlan, type MakeTable } from "../../../support/foreignTables.js";
import { test } from "../../../support/limitedTest.js";
import { atLeast, exactly, unknownCount } from "../../../../src/shared/count.js";
import { ensureTaskTable } from "../../../support/taskTables.js";

/** Number of rows. They are more than any query may read, and their content is larger than 32 MB. */
const rows = 60_000;
const database = await createDatabase("empty");
const client = await database.connect();

const settings = `SELECT set_config('pg_task.' || name, value, false) FROM (VALUES
  ('active', '1 hour'), ('live', '0'), ('repeat', '0'), ('timeout', '0'), ('count', '0'), ('max', '0'), ('delete', 'true'),
  ('drift', 'false'), ('header', 'true'), ('save', 'false'), ('string', 'true'), ('delimiter', ','), ('escape', ''),
  ('quote', ''), ('group', 'group'), ('null', 'N'), ('id', '0')) AS s(name, value)`;

/** Inserts tasks of every kind: most have ended, every tenth waits, some have parents. */
async function fill(schema: string): Promise<void> {
  await client.query(
    `INSERT INTO ${schema}.task (id, parent, input, "group", plan, state, start, stop, error, data, output)
     SELECT i, CASE WHEN i IN (31, 61, 59000) THEN i - 30 END, 'SELECT ' || i, 'group ' || i % 10,
       now() - (${rows} - i) * interval '1 s' + CASE WHEN i % 20 = 1 THEN interval '1 day' ELSE interval '0' END,
       CASE WHEN i % 10 = 1 THEN 'PLAN' WHEN i % 1000 = 2 THEN 'FAIL' ELSE 'DONE' END::${schema}.state,
       now(), now(), CASE WHEN i % 1000 = 2 THEN 'ERROR:  no' END, CASE WHEN i = 40 THEN 'Needle' END, repeat('x', 600)
     FROM generate_series(1, ${rows}) AS i`,
  );
  await client.query(`VACUUM ANALYZE ${schema}.task`);
}

/**
 * Returns how many rows of the table and its partitions a query reads, and whether it scans any of these tables
 * completely.
 */
async function visited(
  { qualified }: TaskTable,
  work: (client: Client) => Promise<unknown>,
): Promise<{ readonly whole: boolean; readonly rows: number }> {
  const reader = await connectClient(database.target, {
    applicationName: "test",
    settings: indexScanSettings,
  });
  await reader.query("BEGIN");
  await work(reader);
  const { rows: found } = await reader.query<{ whole: boolean; rows: number }>(
    `SELECT bool_or(seq_tup_read > 0) AS whole, sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::float8 AS rows
     FROM pg_stat_xact_all_tables WHERE relid = $1::regclass
       OR relid IN (SELECT p.relid FROM pg_partition_tree($1::regclass) AS p)`,
    [qualified],
  );
  await reader.end();
  return found[0] ?? { whole: true, rows: Infinity };
}

const all = { characters: 100, scanLimitMs: Infinity };
const noBacklog = { due: exactly(0), planned: exactly(0) };

const questions: readonly (readonly [string, number, (client: Client, table: TaskTable) => Promise<unknown>])[] = [
  ["a page of tasks", 200, (on, table) => listTasks(on, table, { filter: {}, limit: 50, characters: 300 })],
  [
    "a page of tasks that fit, as far as it is looked at first",
    3_000,
    (on, table) => listTasks(on, table, { filter: { text: "nothing has it" }, limit: 50, characters: 300 }, () => true),
  ],
  ["the backlog", 20_000, readBacklog],
  ["groups", 20_000, (on, table) => readGroups(on, table, { limit: 50, ended: true })],
  ["rows by state", 0, (on, table) => readRowCounts(on, table, noBacklog)],
  [
    "waiting tasks that fit, beyond the first look",
    20_000,
    (on, table) =>
      listTasks(on, table, { filter: { states: ["PLAN"], group: "nobody" }, limit: 50, characters: 300 }, () => true),
  ],
  ["errors, as far as they are looked at first", 3_000, (on, table) => readErrorGroups(on, table, 10, () => true)],
  ["runs by hour, as far as they are looked at first", 3_000, (on, table) => readHourlyRuns(on, table, 24, () => true)],
  ["latencies", 1_000, readLatencies],
  ["rates", 5_000, (on, table) => readRates(on, table, 5_000)],
  ["why a task does not run", 25_000, (on, table) => readSituation(on, table, "30001")],
  [
    "the chain of a task, in its first window",
    3_000,
    (on, table) => readChain(on, table, "1", { characters: 100, scanLimitMs: -1 }),
  ],
];

const kinds: readonly (readonly [string, MakeTable | null])[] = [
  ["own", null],
  ["extension", extensionTable],
  ["by_id", partitionedById],
  ["by_plan", partitionedByPlan],
];

for (const [schema, make] of kinds) {
  const table = taskTable(schema, "task");
  describe(`of a large table, ${schema}`, () => {
    before(async () => {
      await client.query(settings);
      if (make !== null) await client.query(make(schema));
      // Adoption adds columns that the partitioned table lacks and that the rows need.
      await ensureTaskTable(database.target, { schema });
      await fill(schema);
    });

    for (const [what, most, ask] of questions) {
      test(`reads few rows for ${what}`, async () => {
        const found = await visited(table, (on) => ask(on, table));
        assert.equal(found.whole, false);
        // In each partition, one row more than needed is read.
        assert.ok(found.rows <= most + 10, `${found.rows} rows`);
      });
    }

    test("finds all matching tasks, across as many windows as needed", async () => {
      const found: string[] = [];
      const scanned: number[] = [];
      for (let from: string | undefined; ;) {
        const list: TaskList = await listTasks(
          client,
          table,
          { filter: { states: ["FAIL"] }, limit: 7, before: from, characters: 300 },
          () => true,
        );
        found.push(...list.tasks.map(({ id }) => id));
        scanned.push(list.scanned);
        if (list.next === null) break;
        from = list.next;
      }
      assert.deepEqual(
        found,
        Array.from({ length: rows / 1000 }, (_, place) => String(rows - 1000 * place - 998)),
      );
      assert.ok(scanned.length > 9);
      const needle = await listTasks(client, table, {
        filter: { text: "needLE" },
        limit: 5,
        characters: 300,
      });
      assert.deepEqual([needle.tasks.map(({ id }) => id), needle.next], [["40"], null]);
      assert.equal(needle.scanned, rows);
    });

    test("finds the whole chain of a task, however far apart its rows are", async () => {
      await client.query(`UPDATE ${schema}.task SET parent = 61 WHERE id = ${rows}`);
      const { ancestors, descendants, ...rest } = await readChain(client, table, "31", all);
      assert.deepEqual(
        [ancestors.map(({ id }) => id), descendants.map(({ id, depth }) => [id, depth])],
        [
          ["1"],
          [
            ["61", 1],
            [String(rows), 2],
          ],
        ],
      );
      assert.deepEqual(rest, { ancestorsComplete: true, descendantsComplete: true });
    });

    test("marks estimated counts as estimates", async () => {
      const { rows: counted, states } = await readRowCounts(client, table, await readBacklog(client, table));
      assert.equal(counted.exact, false);
      assert.ok(Math.abs((counted.value ?? 0) - rows) < rows / 10, String(counted.value));
      // The indexes of waiting tasks have those in PLAN.
      assert.deepEqual(states.PLAN, exactly(rows / 10));
      assert.ok(Math.abs((states.DONE.value ?? 0) - rows * 0.899) < rows / 20, String(states.DONE.value));
      assert.deepEqual([states.DONE.exact, states.GONE], [false, unknownCount]);
    });
  });
}

describe("a chain", () => {
  const table = taskTable("public", "task");
  before(async () => {
    await ensureTaskTable(database.target, {});
    await client.query(
      `INSERT INTO task (id, parent, input, plan) SELECT i, nullif(i - 1, 0), '', 'infinity' FROM generate_series(1, 300) AS i;
       INSERT INTO task (id, parent, input, plan) SELECT i, 1000, '', 'infinity' FROM generate_series(1000, 1300) AS i`,
    );
  });

  for (const index of [null, "CREATE INDEX by_parent ON task (parent)"]) {
    test(`reports that it was cut ${index === null ? "without" : "with"} an index on parent`, async () => {
      if (index !== null) await client.query(index);
      const long = await readChain(client, table, "150", all);
      assert.deepEqual([long.ancestors.length, long.ancestors.at(-1)?.id, long.ancestorsComplete], [100, "50", false]);
      assert.deepEqual(
        [long.descendants.length, long.descendants.at(-1)?.depth, long.descendantsComplete],
        [100, 100, false],
      );
      const end = await readChain(client, table, "250", all);
      assert.deepEqual([end.descendants.length, end.descendantsComplete], [50, true]);
      const broad = await readChain(client, table, "1000", all);
      assert.deepEqual([broad.ancestors, broad.descendants.length, broad.descendantsComplete], [[], 100, false]);
    });
  }
});

const never = (): boolean => false;

test("in a small table, the ended tasks of each group and all that match are counted", async () => {
  const table = await ensureTaskTable(database.target, { schema: "small" });
  await client.query(
    `INSERT INTO small.task (input, "group", state, start, stop)
     SELECT '', CASE WHEN i <= 3000 THEN 'old' ELSE 'new' END, CASE WHEN i <= 3000 THEN 'FAIL' ELSE 'DONE' END::small.state,
       now() - interval '1 day', now() - interval '1 day' + interval '1 ms' * ((i * 7919) % 20000)
     FROM generate_series(1, 14000) AS i`,
  );
  const { groups, newest, newestComplete } = await readGroups(client, table, { limit: 50, ended: true });
  assert.deepEqual([newest, newestComplete], [14_000, true]);
  assert.deepEqual(
    groups.map(({ group, done, failed }) => [group, done, failed]),
    [
      ["old", 0, 3_000],
      ["new", 11_000, 0],
    ],
  );
  assert.deepEqual(await countMatches(client, table, { filter: { group: "old" } }, never), exactly(3_000));
  assert.deepEqual(await countMatches(client, table, { filter: { group: "new" } }, never), atLeast(10_000));
  assert.deepEqual(await countMatches(client, table, { filter: { group: "old" } }, () => true), atLeast(0));
  const request = { filter: { group: "old" }, limit: 5, characters: 100 };
  const { tasks, next } = await listSlowest(client, table, request, never);
  const { rows: expected } = await client.query(
    `SELECT id::text FROM small.task WHERE "group" = 'old' ORDER BY stop - start DESC LIMIT 5`,
  );
  assert.deepEqual([tasks.map(({ id }) => ({ id })), next], [expected, null]);
  const part = await listSlowest(client, table, request, () => true);
  assert.deepEqual([part.tasks, part.next, part.scanned], [[], "12001", 2_000]);
});

test("a backlog larger than the counting limit is estimated if there are statistics", async () => {
  const table = await ensureTaskTable(database.target, { schema: "backlog" });
  await client.query(
    `INSERT INTO backlog.task (input, plan, state)
     SELECT '', CASE WHEN i % 3 = 0 THEN now() + interval '1 day' ELSE now() - interval '1 hour' END,
       CASE WHEN i <= 40000 THEN 'PLAN' ELSE 'DONE' END::backlog.state FROM generate_series(1, 60000) AS i`,
  );
  const uncounted = await readBacklog(client, table);
  assert.deepEqual([uncounted.due, uncounted.planned], [atLeast(10_000), atLeast(10_000)]);
  await client.query("ANALYZE backlog.task");
  const { due, planned, oldestDueMs } = await readBacklog(client, table);
  assert.deepEqual([due.exact, planned.exact], [false, false]);
  assert.ok(Math.abs((due.value ?? 0) - 26_667) < 5_000, String(due.value));
  assert.ok(Math.abs((planned.value ?? 0) - 13_333) < 5_000, String(planned.value));
  assert.ok((oldestDueMs ?? 0) >= 3_600_000, String(oldestDueMs));
  await client.query("INSERT INTO backlog.task (input, plan) SELECT '', now() FROM generate_series(1, 80000)");
  // The server may count them only now.
  await client.query("SELECT pg_sleep(1.1)");
  const later = await readBacklog(client, table);
  assert.deepEqual(later.due, atLeast(10_000), "the statistics are too old");
});

describe("300,000 rows before the first ANALYZE", () => {
  const table = taskTable("many", "task");
  before(async () => {
    await ensureTaskTable(database.target, { schema: "many" });
    await client.query("ALTER TABLE many.task SET (autovacuum_enabled = off)");
    await client.query(
      `INSERT INTO many.task (input, state, plan, "group", output)
       SELECT 'SELECT 1', 'DONE', now(), 'ended', repeat('x', 100) FROM generate_series(1, 299200)`,
    );
    await client.query(
      `INSERT INTO many.task (input, plan, "group", state)
       SELECT 'SELECT 1', CASE i.kind WHEN 'chain' THEN 'infinity' ELSE now() - interval '1 hour' END, i.kind, 'PLAN'
       FROM (SELECT 'chain' AS kind FROM generate_series(1, 300) UNION ALL SELECT 'halted' FROM generate_series(1, 500)) AS i`,
    );
    await client.query(`INSERT INTO many.task_pause ("group") VALUES ('halted')`);
    await client.query("SELECT pg_sleep(1.1)");
  });

  test("no number is false", async () => {
    const { rows: counted, states } = await readRowCounts(client, table, await readBacklog(client, table));
    assert.deepEqual(states, {
      PLAN: exactly(800),
      ...Object.fromEntries(["TAKE", "WORK", "DONE", "FAIL", "GONE", "STOP"].map((state) => [state, unknownCount])),
    });
    assert.deepEqual([counted.exact, Math.abs((counted.value ?? 0) - 300_000) < 3_000], [false, true]);
    const { groups, total, complete } = await readGroups(client, table, { limit: 50, ended: false });
    assert.deepEqual([total, complete], [exactly(2), true]);
    assert.deepEqual(
      groups.map(({ group, due, waiting, paused }) => [group, due, waiting, paused]),
      [
        ["halted", exactly(500), exactly(500), true],
        ["chain", exactly(0), exactly(300), false],
      ],
    );
  });

  test("beside a group with more due tasks than are counted, the others are exact", async () => {
    await client.query(
      `INSERT INTO many.task (input, plan, "group")
       SELECT 'SELECT 1', now() - interval '1 hour', 'crowd' FROM generate_series(1, 30000)`,
    );
    const { groups, complete } = await readGroups(client, table, { limit: 50, ended: false });
    assert.equal(complete, false);
    const told = new Map(groups.map(({ group, due, waiting, paused }) => [group, [due, waiting, paused]]));
    assert.deepEqual(Object.fromEntries(told), {
      crowd: [atLeast(10_000), atLeast(10_000), false],
      halted: [exactly(500), exactly(500), true],
      chain: [exactly(0), exactly(300), false],
    });
  });
});

test("3,000 groups are counted, and read by name without a skip or repeat", async () => {
  const table = await ensureTaskTable(database.target, { schema: "groups" });
  await client.query(
    `INSERT INTO groups.task (input, plan, "group")
     SELECT '', now() - interval '1 hour', 'group ' || i % 3000 FROM generate_series(1, 30000) AS i
     UNION ALL SELECT '', now() - interval '1 hour', 'group 7' FROM generate_series(1, 50)`,
  );
  const busiest = await readGroups(client, table, { limit: 50, ended: false });
  assert.deepEqual([busiest.groups.length, busiest.total, busiest.complete], [50, exactly(3_000), false]);
  assert.deepEqual([busiest.groups[0]?.group, busiest.groups[0]?.due], ["group 7", exactly(60)]);
  assert.ok(busiest.groups.slice(1).every(({ due }) => due.value === 10));
  const names: string[] = [];
  for (let after: string | null | undefined; after !== null;) {
    const page = await readGroups(client, table, { limit: 1_000, ended: false, order: "name", after });
    names.push(...page.groups.map(({ group }) => group));
    after = page.next;
  }
  assert.deepEqual(new Set(names).size, 3_000);
  assert.deepEqual(names, names.toSorted());
  const few = await readGroups(client, table, { limit: 50, ended: false, text: "GROUP 299" });
  assert.deepEqual([few.groups.length, few.complete], [11, true]);
});
