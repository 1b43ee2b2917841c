import assert from "node:assert/strict";
import { serve } from "../support/serve.js";
import { test } from "../support/limitedTest.js";
import { eventually, valueOf } from "../support/tasks.js";

const { database, client, tasks } = await serve({ "pg_task.delete": false, "pg_task.max": 5, "pg_task.sqlstate": "" });
const stranger = await database.connect();

const chain = (steps: readonly unknown[], more = ""): Promise<string[]> =>
  valueOf(
    client,
    `SELECT ARRAY(SELECT id::text FROM task_chain('${JSON.stringify(steps).replaceAll("'", "''")}'${more}) AS id)`,
  );

const turns = async (count: number): Promise<void> =>
  void (await eventually(client, `SELECT FROM task_turn HAVING count(*) = ${count}`));

/** Whether none of `ids` ran at the same time as the chain. */
async function assertApart(chainIds: readonly string[], ids: readonly string[]): Promise<void> {
  const overlaps = await valueOf<number>(
    client,
    `SELECT count(*)::integer FROM task AS t, (SELECT min(start) AS start, max(stop) AS stop FROM task WHERE id IN (${chainIds.join()}) AND state <> 'GONE') AS c
     WHERE t.id IN (${ids.join()}) AND t.start < c.stop AND t.stop > c.start`,
  );
  assert.equal(overlaps, 0);
}

test("§4 a chain with alone waits for what runs, and nothing else of the table starts before all its steps have ended", async () => {
  const first = await tasks.held({ group: "before" });
  const gate = await tasks.gate();
  const steps = await chain([{ input: "SELECT 1", alone: "table" }, gate.wait, "SELECT 3"], `, "group" => 'alone'`);
  await turns(1);
  const others = await tasks.together(
    ...["before", "alone", "others"].map((group) => ({ input: "SELECT 4", group, max: 9 })),
  );
  for (const { state } of await tasks.until([...steps, ...others], () => true)) assert.equal(state, "PLAN");
  await first.open();
  await tasks.running(steps[1] ?? "");
  for (const { state } of await tasks.until(others, () => true)) assert.equal(state, "PLAN");
  await gate.open();
  for (const { state } of await tasks.ended(...steps, ...others)) assert.equal(state, "DONE");
  await assertApart(steps, [first.id, ...others]);
});

test("§4 alone in its group, other groups go on", async () => {
  const held = await tasks.held({ group: "single" });
  const [id = ""] = await tasks.insert({ input: "SELECT 1", group: "single", alone: "group", max: 9 });
  await turns(1);
  const behind = await tasks.add("SELECT 2", { group: "single", max: 9 });
  const elsewhere = await tasks.add("SELECT 3", { group: "elsewhere" });
  await tasks.ended(elsewhere);
  for (const { state } of await tasks.until([id, behind], () => true)) assert.equal(state, "PLAN");
  await held.open();
  await tasks.ended(id, behind);
  await assertApart([id], [held.id, behind]);
});

test("§4 a chain ends with a step that fails, and its clean-up belongs to it", async () => {
  const gate = await tasks.gate();
  const steps = await chain(
    [{ input: "SELECT 1", alone: "table" }, "SELECT 1/0", "SELECT 3"],
    `, fail => '${gate.wait}'`,
  );
  await tasks.running(steps[3] ?? "");
  const other = await tasks.add("SELECT 4");
  await turns(1);
  await gate.open();
  const states = (await tasks.ended(...steps, other)).map(({ state }) => state);
  assert.deepEqual(states, ["DONE", "FAIL", "GONE", "DONE", "DONE"]);
  await assertApart(steps, [other]);
});

test("§4 while a step waits for its next try, nothing else starts", async () => {
  const [id = ""] = await tasks.insert({
    input:
      "SELECT 1 / (CASE WHEN attempt > 1 THEN 1 ELSE 0 END) FROM task WHERE id = current_setting('pg_task.id')::bigint",
    alone: "table",
    retry: 5,
    backoff: "100 ms",
    sqlstate: "{22012}",
  });
  await tasks.until([id], ({ error }) => error !== null);
  const other = await tasks.add("SELECT 4");
  const [row] = await tasks.ended(id, other);
  assert.equal(row?.state, "DONE");
  assert.ok(await tasks.holds(other, `start >= (SELECT stop FROM task WHERE id = ${id})`));
});

test("§4 two chains at once run one after the other, in the order of their plans, and others in between", async () => {
  const held = await tasks.held({ group: "before" });
  const one = await chain([{ input: "SELECT 1", alone: "table" }, "SELECT 2"], `, "group" => 'one'`);
  const two = await chain([{ input: "SELECT 1", alone: "group" }, "SELECT 2"], `, "group" => 'before'`);
  const three = await chain([{ input: "SELECT 1", alone: "table" }, "SELECT 2"], `, "group" => 'three'`);
  const other = await tasks.add("SELECT 4");
  await held.open();
  await tasks.ended(...one, ...two, ...three, other);
  await assertApart(one, [...two, ...three, other]);
  await assertApart(three, [...one, ...two, other]);
  assert.ok(await tasks.holds(three[0] ?? "", `start > (SELECT stop FROM task WHERE id = ${one[1]})`));
  assert.ok(await tasks.holds(other, `stop < (SELECT start FROM task WHERE id = ${three[0]})`));
});

test("§4 a chain that is stopped, deleted or replanned before its turn, or whose group is paused, lets the others go", async () => {
  for (const change of [
    "UPDATE task SET state = 'STOP' WHERE id = ",
    "DELETE FROM task WHERE id = ",
    "UPDATE task SET plan = 'infinity' WHERE id = ",
    "UPDATE task SET alone = NULL, state = 'STOP' WHERE id = ",
    `INSERT INTO task_pause ("group") SELECT "group" FROM task WHERE id = `,
  ]) {
    const held = await tasks.held({ group: "before" });
    const [id = ""] = await tasks.insert({ input: "SELECT 1", group: "changed", alone: "table" });
    const other = await tasks.add("SELECT 2");
    await turns(1);
    await client.query(`${change}${id}`);
    await tasks.ended(other);
    await held.open();
    await tasks.ended(held.id);
  }
  await client.query("UPDATE task SET state = 'STOP' WHERE state = 'PLAN'; DELETE FROM task_pause");
});

test("§4 a step that waits for a time of its own gives the turn back", async () => {
  const [first = "", second = ""] = await chain([
    { input: "SELECT 1", alone: "table" },
    { input: "SELECT 2", plan: "2100-01-01" },
  ]);
  const other = await tasks.add("SELECT 4");
  await tasks.ended(first, other);
  await client.query("UPDATE task SET plan = now() WHERE id = $1", [second]);
  await tasks.ended(second);
});

test("§4 what a task inserts belongs to its chain if it is to run alone and is planned for now", async () => {
  const inner = `SELECT task_chain('[{"input": "SELECT 1", "alone": "table"}, "SELECT 2"]')`;
  const [id = ""] = await tasks.insert({
    input: `${inner}; INSERT INTO task (input) VALUES ('SELECT 3'); INSERT INTO task (input, alone, plan) VALUES ('SELECT 4', 'table', '2100-01-01')`,
    alone: "table",
  });
  await tasks.end(id);
  const { rows } = await client.query<{ input: string; turn: string | null }>(
    "SELECT input, turn::text AS turn FROM task WHERE parent = $1 ORDER BY id",
    [id],
  );
  assert.deepEqual(
    rows.map(({ turn }) => turn),
    [id, id, null, null],
  );
  await client.query("UPDATE task SET state = 'STOP' WHERE state = 'PLAN' AND plan > now()");
  const ids = await valueOf<string[]>(
    client,
    `SELECT ARRAY(SELECT id::text FROM task WHERE parent = ${id} ORDER BY id)`,
  );
  const [one = "", two = "", child = ""] = ids;
  await tasks.ended(...ids);
  await assertApart([id, one, two], [child]);
});

test("§4 each run of a schedule takes a turn of its own", async () => {
  const [id = ""] = await tasks.insert({ input: "SELECT 1", repeat: "1 hour", alone: "group", group: "schedule" });
  await tasks.end(id);
  const { rows } = await client.query("SELECT alone, turn FROM task WHERE parent = $1", [id]);
  assert.deepEqual(rows, [{ alone: "group", turn: null }]);
  await turns(0);
});

test("§4 refuses what is neither group nor table", async () => {
  await assert.rejects(stranger.query("INSERT INTO task (input, alone) VALUES ('SELECT 1', 'chain')"), {
    code: "22023",
    message: 'alone must be group or table, not "chain"',
  });
});
