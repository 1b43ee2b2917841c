import assert from "node:assert/strict";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { until, statesOf } from "../support/tasks.js";

const { client, tasks } = await serve({}, "CREATE TABLE effect (what text)");

const own = "WHERE id = current_setting('pg_task.id')::bigint";

const effects = (what: string) => tasks.value<number>("SELECT count(*)::integer FROM effect WHERE what = $1", [what]);

test("§6 a task may read its own row, which is in WORK", async () => {
  const { output, pid } = await tasks.run(
    `SELECT state, pid = pg_backend_pid(), start <= clock_timestamp(), stop IS NULL FROM task ${own}`,
    { header: false, delimiter: "," },
  );
  assert.equal(output, "WORK,t,t,t");
  assert.notEqual(pid, null);
});

test("§6 a repeat that the task sets on its own row takes effect", async () => {
  const row = await tasks.run(`UPDATE task SET repeat = '10 years' ${own}`);
  assert.ok(await tasks.successorHolds(row.id, "n.plan = t.plan + interval '10 years'"));
});

test("§6 a task that clears its own repeat is not repeated", async () => {
  const row = await tasks.run(`UPDATE task SET repeat = '0' ${own}`, { repeat: "10 years" });
  const other = await tasks.run("SELECT 1", { repeat: "10 years" });
  await tasks.successorHolds(other.id, "true");
  assert.deepEqual(await tasks.rows("SELECT FROM task WHERE parent = $1", [row.id]), []);
});

test("§6 the successor's plan counts from a plan that the task sets on its own row", async () => {
  const row = await tasks.run(`UPDATE task SET plan = '2000-01-01' ${own}`, {
    repeat: "1000 years",
  });
  assert.ok(await tasks.successorHolds(row.id, "n.plan = timestamptz '2000-01-01' + interval '1000 years'"));
});

test("§6 a drift that the task sets on its own row takes effect", async () => {
  const row = await tasks.run(`UPDATE task SET drift = true ${own}`, { repeat: "10 years" });
  assert.ok(await tasks.successorHolds(row.id, "n.plan = t.stop + t.repeat AND n.drift"));
});

test("§6 a delete that the task sets on its own row takes effect", async () => {
  const silent = (value: boolean): string => `DO $$ BEGIN UPDATE task SET delete = ${value} ${own}; END $$`;
  const kept = await tasks.run(silent(true), { delete: false });
  // The command tag of DO counts as output, so the row is not deleted.
  assert.equal(kept.output, "DO");
  await client.query(`CREATE FUNCTION set_own_delete(value boolean) RETURNS SETOF integer LANGUAGE plpgsql AS
    $$ BEGIN UPDATE task SET delete = value ${own}; RETURN; END $$`);
  const stays = await tasks.run("SELECT FROM set_own_delete(false)", { delete: true });
  assert.deepEqual([stays.state, stays.output], ["DONE", null]);
  const [id = ""] = await tasks.insert({
    input: "SELECT FROM set_own_delete(true)",
    delete: false,
  });
  await until(client, `SELECT FROM task WHERE id = ${id}`, (rows) => rows.length === 0);
});

test("§6 a row that its own task deletes stays deleted", async () => {
  const id = await tasks.add(`DELETE FROM task ${own}; INSERT INTO effect VALUES ('own delete')`, {
    group: "own delete",
  });
  await tasks.run("SELECT 1", { group: "own delete" });
  assert.deepEqual(await tasks.rows("SELECT FROM task WHERE id = $1", [id]), []);
  assert.equal(await effects("own delete"), 1);
});

test("§6 a task that sets itself to PLAN runs again once its run has ended", async () => {
  const [id = ""] = await tasks.insert({
    input: `INSERT INTO effect VALUES ('again');
      UPDATE task SET state = CASE WHEN (SELECT count(*) FROM effect WHERE what = 'again') < 3 THEN 'PLAN' ELSE state END ${own}`,
  });
  await tasks.until([id], (each) => each.state === "DONE");
  assert.equal(await effects("again"), 3);
});

test("§6 a task inserted by a task has that task as its parent", async () => {
  const row = await tasks.run(
    "INSERT INTO task (input, data) VALUES ('INSERT INTO task (input, data) VALUES (''SELECT 1'', ''grandchild'')', 'child')",
  );
  const rows = await until<{ id: string; parent: string }>(
    client,
    "SELECT id, parent FROM task WHERE data IN ('child', 'grandchild') AND state = 'DONE' ORDER BY id",
    (found) => found.length === 2,
  );
  assert.equal(rows[0]?.parent, row.id);
  assert.equal(rows[1]?.parent, rows[0]?.id);
});

test("§8 a planned task that is set to STOP does not run", async () => {
  const id = await tasks.add("INSERT INTO effect VALUES ('planned stop')", { group: "stop", plan: "2100-01-01" });
  await tasks.set(id, "state = 'STOP', plan = now()");
  await tasks.run("SELECT 1", { group: "stop" });
  const row = await tasks.row(id);
  assert.deepEqual([row.state, row.start], ["STOP", null]);
  assert.equal(await effects("planned stop"), 0);
});

test("§8 a running task that is deleted is cancelled and has no effect", async () => {
  const id = await tasks.add("INSERT INTO effect VALUES ('deleted'); SELECT pg_sleep(60)", { group: "deleted" });
  await tasks.running(id);
  await client.query("DELETE FROM task WHERE id = $1", [id]);
  assert.equal((await tasks.run("SELECT 1", { group: "deleted" })).state, "DONE");
  assert.equal(await effects("deleted"), 0);
});

test("§8 stopping a task cancels no other, not even the next in its session", async () => {
  const stopped = await tasks.insert({ input: "SELECT pg_sleep(60)", group: "next", count: 9 });
  const next = await tasks.insert({ input: "SELECT pg_sleep(0.1)", group: "next", count: 9 });
  const other = await tasks.insert({ input: "SELECT pg_sleep(0.1)", group: "beside" });
  await tasks.running(stopped[0] ?? "");
  await client.query("UPDATE task SET state = 'STOP' WHERE id = $1", stopped);
  const rows = await tasks.ended(...next, ...other);
  assert.deepEqual(statesOf(rows), ["DONE", "DONE"]);
});
