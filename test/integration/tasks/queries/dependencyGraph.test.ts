import type { TaskFilter } from "../../../../src/tasks/types.js";
import assert from "node:assert/strict";
import { before, describe } from "node:test";
import { readDependencyGraph, type DependencyGraph } from "../../../../src/tasks/queries/dependencyGraph.js";
import { listTasks } from "../../../../src/tasks/queries/listTasks.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { until, Tasks } from "../../../support/tasks.js";
import { ensureTaskTable } from "../../../support/taskTables.js";

const database = await createDatabase();
const client = await database.connect();
const table = await ensureTaskTable(database.target);
const tasks = await Tasks.create(client);

const graphOf = async (id: string): Promise<DependencyGraph> => {
  const graph = await readDependencyGraph(client, table, id, { characters: 100, scanLimitMs: 5_000 });
  assert.ok(graph, `there is no task ${id}`);
  return graph;
};

/** The edges of a graph as text, `task status predecessor`, in order. */
const edgesOf = ({ edges }: DependencyGraph): string[] =>
  edges.map(({ task, status, predecessor }) => `${task} ${status} ${predecessor}`).toSorted();

const statesOf = ({ nodes }: DependencyGraph): Record<string, string | null> =>
  Object.fromEntries(nodes.map(({ id, state }) => [id, state]));

async function waitingFor(id: string, filter: TaskFilter = {}, limit = 50, below?: string): Promise<string[]> {
  const found = await listTasks(client, table, { filter, limit, characters: 10, waitingFor: id, before: below });
  return found.tasks.map((task) => task.id);
}

/** Waits until the manager has looked up the predecessors of these tasks. */
const lookedUp = async (...ids: readonly string[]): Promise<void> => {
  const sql = `SELECT id FROM task WHERE id = ANY ('{${ids.join(",")}}') AND wait = 0`;
  await until(client, sql, (rows) => rows.length === ids.length);
};

describe("while no manager runs", () => {
  test("what is in after and has not ended counts, and a row that is not there counts as done", async () => {
    const [planned = "", done = "", failed = "", gone = ""] = await tasks.insert(
      { input: "SELECT 1", plan: "infinity" },
      { input: "SELECT 2", plan: "infinity" },
      { input: "SELECT 3", plan: "infinity" },
      { input: "SELECT 4", plan: "infinity" },
    );
    await client.query(`UPDATE task SET state = 'DONE' WHERE id = ${done}; UPDATE task SET state = 'FAIL' WHERE id = ${failed};
      DELETE FROM task WHERE id = ${gone}`);
    const [waits = ""] = await tasks.insert({
      input: " SELECT\n5",
      after: `{${planned},${done},${failed},${gone},${planned}}`,
      upon: "end",
      plan: "2100-01-01 00:00+00",
    });
    const [last = ""] = await tasks.insert({ input: "SELECT 6", after: `{${waits}}` });
    const graph = await graphOf(waits);
    assert.deepEqual(
      edgesOf(graph),
      [
        `${waits} waits ${planned}`,
        `${waits} done ${done}`,
        `${waits} failed ${failed}`,
        `${waits} done ${gone}`,
        `${last} waits ${waits}`,
      ].toSorted(),
    );
    assert.deepEqual(statesOf(graph), {
      [planned]: "PLAN",
      [done]: "DONE",
      [failed]: "FAIL",
      [gone]: null,
      [waits]: "PLAN",
      [last]: "PLAN",
    });
    assert.deepEqual(graph.nodes[0], {
      id: waits,
      state: "PLAN",
      group: "group",
      upon: "end",
      plan: "2100-01-01T00:00:00+00:00",
      input: "SELECT",
      error: null,
      predecessors: 4,
      waitsFor: 1,
      morePredecessors: 0,
      moreDependents: 0,
    });
    assert.deepEqual(await waitingFor(planned), [waits]);
    assert.deepEqual(await waitingFor(done), []);
    assert.deepEqual(await waitingFor(gone), []);
    assert.deepEqual(await waitingFor(waits), [last]);
    await client.query(`UPDATE task SET state = 'STOP' WHERE id = ${last}`);
    assert.deepEqual(await waitingFor(waits), []);
    assert.deepEqual(edgesOf(await graphOf(last)).includes(`${last} over ${waits}`), true);
  });

  test("a task that does not exist has no graph, and one without after stands alone", async () => {
    assert.equal(await readDependencyGraph(client, table, "404404", { characters: 9, scanLimitMs: 9 }), null);
    const [alone = ""] = await tasks.insert({ input: "SELECT 1", plan: "infinity" });
    const { nodes, edges, formerComplete } = await graphOf(alone);
    assert.deepEqual([nodes.length, edges, formerComplete], [1, [], true]);
    assert.deepEqual(nodes[0]?.upon, null);
  });

  test("dependencies of rows that are gone, as TRUNCATE leaves them, do not count", async () => {
    const [waiting = "", ended = ""] = await tasks.insert(
      { input: "SELECT 1", plan: "infinity" },
      { input: "SELECT 2", plan: "infinity" },
    );
    await client.query(`UPDATE task SET state = 'DONE' WHERE id = ${ended};
      INSERT INTO task_after (predecessor, task) VALUES (${waiting}, ${ended}), (${waiting}, 987654321)`);
    const { nodes } = await graphOf(waiting);
    assert.deepEqual([nodes.length, nodes[0]?.moreDependents], [1, 0]);
  });
});

describe("while a manager runs", () => {
  const pgTask = new PgTask();
  before(async () => {
    await client.query("TRUNCATE task, task_after");
    await pgTask.start({ url: database.url, "pg_task.sleep": 50, "pg_task.delete": false });
  });

  test("the table of dependencies counts, and the end of a task shows in those that waited for it", async () => {
    const group = "ends";
    const [one = "", two = ""] = await tasks.insert(
      { input: "SELECT 1/0", plan: "infinity", group },
      { input: "SELECT 2", plan: "infinity", group },
    );
    const [three = ""] = await tasks.insert({ input: "SELECT 3", after: `{${one},${two}}`, group });
    const [four = ""] = await tasks.insert({ input: "SELECT 4", after: `{${three}}`, group });
    const [five = ""] = await tasks.insert({ input: "SELECT 5", after: `{${one},${two}}`, upon: "fail", group });
    const [other = ""] = await tasks.insert({ input: "SELECT 6", after: `{${two}}`, group: "another" });
    await lookedUp(three, four, five, other);
    assert.deepEqual(await waitingFor(two), [other, five, three]);
    assert.deepEqual(await waitingFor(two, { group }), [five, three]);
    assert.deepEqual(await waitingFor(two, {}, 2), [other, five]);
    assert.deepEqual(await waitingFor(two, {}, 2, five), [three]);
    assert.deepEqual(await waitingFor(two, { text: "select 5" }), [five]);
    assert.deepEqual(edgesOf(await graphOf(one)), [
      `${three} waits ${one}`,
      `${four} waits ${three}`,
      `${five} waits ${one}`,
    ]);
    await client.query(`UPDATE task SET plan = now() WHERE id = ${one}`);
    await tasks.ended(one, three, four);
    await until(client, `SELECT FROM task_after WHERE task = ${five} AND failed`, (rows) => rows.length === 1);
    const ended = await graphOf(one);
    assert.deepEqual(edgesOf(ended), [`${three} failed ${one}`, `${four} failed ${three}`, `${five} failed ${one}`]);
    assert.deepEqual(statesOf(ended), { [one]: "FAIL", [three]: "GONE", [four]: "GONE", [five]: "PLAN" });
    assert.equal(ended.nodes.find(({ id }) => id === three)?.error, `ERROR:  task ${one}, which it waits for, is FAIL`);
    assert.deepEqual(ended.formerComplete, true);
    assert.deepEqual(await waitingFor(one), []);
    assert.deepEqual(await waitingFor(two), [other, five]);
    const waits = await graphOf(five);
    assert.deepEqual([waits.nodes[0]?.predecessors, waits.nodes[0]?.waitsFor], [2, 1]);
    // One of the predecessors is deleted, so it is not DONE.
    await client.query(`DELETE FROM task WHERE id = ${two}`);
    await tasks.ended(five, other);
    assert.deepEqual(edgesOf(await graphOf(other)), [`${other} failed ${two}`]);
    assert.equal((await graphOf(other)).nodes[1]?.state, null);
    assert.deepEqual(edgesOf(await graphOf(five)), [`${five} done ${two}`, `${five} failed ${one}`].toSorted());
  });

  test("a task that failed and was tried again is over for those that had waited for it", async () => {
    const [first = ""] = await tasks.insert({ input: "SELECT 1/0", group: "again" });
    const [second = ""] = await tasks.insert({ input: "SELECT 2", after: `{${first}}`, upon: "end", group: "again" });
    await tasks.ended(first, second);
    assert.deepEqual(edgesOf(await graphOf(second)), [`${second} failed ${first}`]);
    await client.query(`UPDATE task SET state = 'PLAN', plan = 'infinity' WHERE id = ${first}`);
    assert.deepEqual(edgesOf(await graphOf(first)), [`${second} over ${first}`]);
  });
});

describe("large graphs", () => {
  before(async () => {
    await client.query("TRUNCATE task, task_after");
    await client.query(`
      INSERT INTO task (id, input, plan, state) SELECT n, 'SELECT ' || n, 'infinity', CASE WHEN n = 7777 THEN 'FAIL' WHEN n < 9990 THEN 'DONE' ELSE 'PLAN' END::state
      FROM generate_series(1, 10000) AS n;
      INSERT INTO task (id, input, after, "group") SELECT 10001, 'SELECT 1', array_agg(n), 'fan-in' FROM generate_series(1, 10000) AS n;
      INSERT INTO task (id, input, after, "group") SELECT n, 'SELECT 1', '{10000}', 'fan-out' FROM generate_series(10002, 20000) AS n`);
    // As after the look-up by a manager.
    await client.query(`
      INSERT INTO task_after (predecessor, task) SELECT n, 10001 FROM generate_series(9990, 10000) AS n
      UNION ALL SELECT 10000, n FROM generate_series(10002, 20000) AS n;
      SELECT set_config('pgtask.manager', 'on', false);
      UPDATE task SET wait = 0 WHERE wait > 0;
      RESET pgtask.manager; ANALYZE task; ANALYZE task_after;
      -- As on the web server's connections.
      SET statement_timeout = '5s'`);
  });

  test("the graph is bounded, shows the tasks first that matter, and counts the others", async () => {
    const waits = await graphOf("10001");
    const [self] = waits.nodes;
    assert.deepEqual(
      [self?.predecessors, self?.waitsFor, self?.morePredecessors, self?.moreDependents],
      [10_000, 11, 9_970, 0],
    );
    assert.equal(waits.edges.length, 30);
    assert.equal(waits.edges.filter(({ status }) => status === "waits").length, 11);
    assert.deepEqual(
      waits.edges.filter(({ status }) => status === "failed"),
      [{ task: "10001", predecessor: "7777", status: "failed" }],
    );
    const [awaited, ...behind] = (await graphOf("10000")).nodes;
    assert.equal(behind.length, 100);
    assert.deepEqual([awaited?.moreDependents, awaited?.waitsFor], [10_000 - 100, 0]);
    assert.equal((await waitingFor("10000", {}, 20_000)).length, 10_000);
    assert.deepEqual(await waitingFor("10000", {}, 3), ["20000", "19999", "19998"]);
  });

  test("a long chain is cut at both ends", async () => {
    await client.query(
      "INSERT INTO task (id, input, after) SELECT n, 'SELECT 1', ARRAY[n - 1] FROM generate_series(20001, 20100) AS n",
    );
    const { nodes, edges } = await graphOf("20050");
    assert.deepEqual(
      nodes.map(({ id }) => Number(id)).toSorted((a, b) => a - b),
      Array.from({ length: 71 }, (_, index) => 20_030 + index),
    );
    assert.equal(edges.length, 70);
    assert.equal(nodes.find(({ id }) => id === "20030")?.morePredecessors, 1);
  });
});
