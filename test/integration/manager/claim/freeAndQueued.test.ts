import assert from "node:assert/strict";
import { beforeEach, type TestContext } from "node:test";
import { test } from "../../../support/limitedTest.js";
import { SteppedTable } from "../../../support/steppedTable.js";

const stepped = await SteppedTable.create();
const { managerClient, user } = stepped;

beforeEach(() => stepped.clear());

const names = ["claim", "claim plain"];

/** Counts the full and plain claims that the manager sends from now on. */
function countClaims(context: TestContext): () => number {
  const query = context.mock.method(managerClient, "query");
  return () => query.mock.calls.filter(({ arguments: [sent] }) => names.includes(Object(sent).name)).length;
}

test("one claim starts short tasks in all free sessions and queues those of other groups", async (context) => {
  const manager = await stepped.manage(2, { a: 0.1, b: 0.1, c: 0.1, d: 0.1 });
  const claims = countClaims(context);
  await stepped.plant({ group: "a", gated: true }, { group: "b", gated: true }, { group: "c" }, { group: "d" });
  await manager.step();
  assert.deepEqual([await stepped.states(), claims()], [["WORK", "WORK", "TAKE", "TAKE"], 1]);
  await stepped.openGate();
  await manager.finish();
  assert.deepEqual(
    (await stepped.ran()).toSorted((a, b) => a - b),
    [1, 2, 3, 4],
  );
});

test("a second claim queues tasks behind those of their group that have just started", async (context) => {
  const manager = await stepped.manage(2, { a: 0.1, b: 0.1, c: 0.1 });
  const claims = countClaims(context);
  await stepped.plant({ group: "a", gated: true }, { group: "b", gated: true }, { group: "c" }, { group: "a" });
  await manager.step();
  assert.deepEqual([await stepped.states(), claims()], [["WORK", "WORK", "TAKE", "TAKE"], 2]);
  const { rows } = await user.query("SELECT count(DISTINCT owner) AS owners FROM task WHERE id IN (1, 4)");
  assert.deepEqual(rows, [{ owners: "1" }]);
  await stepped.openGate();
  await manager.finish();
  assert.deepEqual(
    (await stepped.ran()).toSorted((a, b) => a - b),
    [1, 2, 3, 4],
  );
});

test("no short task queues behind a long one that starts at once", async () => {
  const manager = await stepped.manage(2, { long: 100, b: 0.1, c: 0.1 }, true);
  await stepped.plant({ group: "long", gated: true, max: 9 }, { group: "b", gated: true }, { group: "c" });
  await manager.step();
  assert.deepEqual(await stepped.states(), ["WORK", "WORK", "TAKE"]);
  const { rows } = await user.query("SELECT count(DISTINCT owner) AS owners FROM task WHERE id IN (2, 3)");
  assert.deepEqual(rows, [{ owners: "1" }]);
  await stepped.openGate();
  await manager.finish();
});

test("a long task does not queue behind short ones while other sessions can be opened", async () => {
  const manager = await stepped.manage(2, { a: 0.1, b: 0.1, long: 100, d: 0.1 }, true);
  const starting = [
    { group: "a", gated: true, max: 9 },
    { group: "b", gated: true, max: 8 },
  ];
  await stepped.plant(...starting, { group: "long", max: 3 }, { group: "d" });
  const { more } = await manager.step({}, 5);
  assert.deepEqual([await stepped.states(), more > 0], [["WORK", "WORK", "PLAN", "TAKE"], true]);
  await stepped.openGate();
  await manager.finish();
});

test("nothing is queued behind the first runs of a new group, although tasks of other groups could be", async () => {
  const manager = await stepped.manage(1, { a: 0.1, b: 0.1 }, true);
  const task = { group: "new", max: 9, gated: true };
  await stepped.plant(task, task, task, { group: "a" }, { group: "b" });
  await manager.step();
  assert.deepEqual((await stepped.states()).slice(0, 3), ["WORK", "PLAN", "PLAN"]);
  await stepped.openGate();
  await manager.finish();
});

test("a free session gets another task if the one it was to start is gone, although others are queued", async (context) => {
  const manager = await stepped.manage(2, { own: 0.1, gone: 0.1, long: 100 }, true);
  await stepped.plant({ group: "own", gated: true });
  await manager.step();
  await stepped.plant({ group: "gone" }, { group: "own" }, { group: "long", gated: true });
  const query: (...sent: unknown[]) => unknown = managerClient.query.bind(managerClient);
  let isDeleted = false;
  context.mock.method(managerClient, "query", async (...sent: unknown[]) => {
    if (!isDeleted && names.includes(Object(sent[0]).name)) {
      isDeleted = true;
      await user.query("DELETE FROM task WHERE id = 2");
    }
    return query(...sent);
  });
  await manager.step();
  assert.deepEqual(await stepped.states(), ["WORK", "TAKE", "WORK"]);
  await stepped.openGate();
  await manager.finish();
});

test("while each claim takes a single task, a cycle still gives one to each free session", async (context) => {
  const manager = await stepped.manage(3, { a: 0.1, b: 0.1, c: 0.1 }, true);
  await user.query(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
    IF (SELECT count(*) FROM changed WHERE state = 'WORK') > 1 THEN RAISE 'one at a time'; END IF; RETURN NULL; END$$`);
  await user.query(`CREATE TRIGGER refuse AFTER UPDATE ON task REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION refuse()`);
  context.after(() => user.query("DROP FUNCTION refuse CASCADE"));
  await stepped.plant(...["a", "b", "c"].map((group) => ({ group, gated: true })));
  await manager.step();
  await manager.step();
  assert.deepEqual(await stepped.states(), ["WORK", "WORK", "WORK"]);
  await stepped.openGate();
  await manager.finish();
});

test("when no session is free, tasks of other groups queue in order of rank", async () => {
  const manager = await stepped.manage(1, { g: 0.1, a: 0.1, b: 0.1, long: 100 }, true);
  await stepped.plant({ gated: true, max: 9 }, { group: "a" }, { group: "b", max: 3 });
  await manager.step();
  assert.deepEqual(await stepped.states(), ["WORK", "TAKE", "TAKE"]);
  await stepped.openGate();
  await manager.finish();
  assert.deepEqual(await stepped.ran(), [1, 3, 2]);
});

test("no lower-ranked task starts while a slow task has to wait", async () => {
  const manager = await stepped.manage(1, { g: 0.1, a: 0.1, long: 100 }, true);
  await stepped.plant({ gated: true, max: 9 }, { group: "a", max: 2 }, { group: "long", max: 1 }, { group: "a" });
  await manager.step();
  assert.deepEqual(await stepped.states(), ["WORK", "TAKE", "PLAN", "PLAN"]);
  await stepped.openGate();
  await manager.finish();
  assert.deepEqual(await stepped.ran(), [1, 2, 3, 4]);
});

test("tasks of a group with max 1 queue in two sessions at most", async () => {
  const manager = await stepped.manage(3, { g: 0.1 }, true);
  await stepped.plant(...Array.from({ length: 8 }, () => ({ gated: true, max: 1 })));
  await manager.step();
  assert.deepEqual(await stepped.states(), ["WORK", "WORK", ...Array.from({ length: 6 }, () => "TAKE")]);
  const { rows } = await user.query("SELECT count(*)::integer AS tasks FROM task GROUP BY owner ORDER BY 1");
  assert.deepEqual(rows, [{ tasks: 4 }, { tasks: 4 }]);
  assert.equal(manager.groups.get(await stepped.hashOf("g"))?.running, 2);
  await stepped.openGate();
});

test("one statement claims at most fetch tasks, one cycle at most limit", async () => {
  const manager = await stepped.manage(1, { g: 0.1 }, true);
  await stepped.plant({ gated: true }, ...Array.from({ length: 20 }, () => ({})));
  await manager.step({ fetch: 4, limit: 10 });
  const { rows } = await user.query(
    "SELECT count(*)::integer AS tasks FROM task WHERE take IS NOT NULL GROUP BY take ORDER BY take",
  );
  assert.deepEqual(
    rows.map((row) => row["tasks"]),
    [1, 4, 4, 1],
  );
  await stepped.openGate();
});

test("tasks of a new group are not queued behind others until their run time is known", async () => {
  const manager = await stepped.manage(2, { g: 0.1 });
  await stepped.plant(...Array.from({ length: 4 }, () => ({ group: "new", max: 9, gated: true })));
  await manager.step();
  assert.deepEqual(await stepped.states(), ["WORK", "WORK", "PLAN", "PLAN"]);
  await manager.step();
  assert.deepEqual(await stepped.states(), ["WORK", "WORK", "PLAN", "PLAN"]);
  await stepped.openGate();
  await manager.finish();
  assert.equal((await stepped.ran()).length, 4);
});
