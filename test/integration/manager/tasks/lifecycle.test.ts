import assert from "node:assert/strict";
import { test } from "../../../support/limitedTest.js";
import { eventually, until, only } from "../../../support/tasks.js";
import { serve } from "../../../support/serve.js";

const { pgTask, database, client, tasks } = await serve({ "pg_task.sleep": 200 });

test("an inserted task runs, and its row shows the result", async () => {
  const row = await tasks.run("SELECT 1 AS a, 2 AS b", { data: "mine" });
  assert.equal(row.state, "DONE");
  assert.equal(row.output, "a\tb\n1\t2");
  assert.equal(row.error, null);
  assert.equal(row.owner, null);
  assert.equal(row.data, "mine");
  assert.equal(row.crash, 0);
  assert.ok(row.plan <= (row.take ?? ""));
  assert.ok((row.take ?? "") <= (row.start ?? ""));
  assert.ok((row.start ?? "") <= (row.stop ?? ""));
});

test("the row of a running task shows its backend and its start", async () => {
  const [id = ""] = await tasks.insert({ input: "SELECT pg_backend_pid(), pg_sleep(60)" });
  const row = await tasks.running(id);
  assert.notEqual(row.start, null);
  assert.equal(row.stop, null);
  const busy = await eventually<{ application_name: string }>(
    client,
    `SELECT application_name FROM pg_stat_activity WHERE pid = ${row.pid} AND query LIKE '%pg_sleep(60)%'`,
    (rows) => rows.length === 1,
  );
  assert.equal(only(busy).application_name, "pg_task public task group");
  await client.query("SELECT pg_cancel_backend($1)", [row.pid]);
  const [ended] = await tasks.ended(id);
  assert.equal(ended?.state, "FAIL");
  assert.match(ended?.error ?? "", /^ERROR: {2}canceling statement due to user request\n/);
});

test("an error is formatted as in the server's log", async () => {
  const row = await tasks.run("SELECT 1/0");
  assert.equal(row.state, "FAIL");
  assert.equal(row.error, "ERROR:  division by zero\nSTATEMENT:  SELECT 1/0");
  assert.equal(row.output, "");
});

test("rows produced before an error are kept", async () => {
  const row = await tasks.run("SELECT 7 AS a; SELECT 1/0");
  assert.equal(row.state, "FAIL");
  assert.equal(row.output, "7");
});

test("the format columns shape the output", async () => {
  const row = await tasks.run(`SELECT 1 AS a, 'x"y' AS b, NULL AS c`, {
    delimiter: ";",
    quote: '"',
    escape: "\\",
    null: "nil",
    header: false,
  });
  assert.equal(row.output, String.raw`1;"x\"y";nil`);
  const all = await tasks.run("SELECT 1 AS a, 2 AS b", { quote: "'", string: false });
  assert.equal(all.output, "'a'\t'b'\n'1'\t'2'");
});

test("characters outside ASCII are returned unchanged", async () => {
  const row = await tasks.run("SELECT 'žluťoučký 🐘' AS a", { group: "skupina ž" });
  assert.equal(row.output, "žluťoučký 🐘");
});

test("a task with delete, without output and error, is deleted", async () => {
  const [gone = "", kept = "", wordy = ""] = await tasks.insert(
    { input: "", delete: true },
    { input: "", delete: false },
    { input: "SELECT 1", delete: true },
  );
  const rows = await until<{ id: string; state: string; output: string | null }>(
    client,
    `SELECT id, state::text AS state, output FROM task WHERE id IN (${gone}, ${kept}, ${wordy}) ORDER BY id`,
    (found) => found.length === 2 && found.every((row) => row.state === "DONE"),
  );
  assert.deepEqual(rows, [
    { id: kept, state: "DONE", output: null },
    { id: wordy, state: "DONE", output: "1" },
  ]);
});

test("a failed task that is set to PLAN runs again", async () => {
  await client.query("CREATE TABLE missing_at_first (a int)");
  await client.query("ALTER TABLE missing_at_first RENAME TO elsewhere");
  const first = await tasks.run("SELECT count(*) FROM missing_at_first");
  assert.equal(first.state, "FAIL");
  await client.query("ALTER TABLE elsewhere RENAME TO missing_at_first");
  await client.query("UPDATE task SET state = 'PLAN' WHERE id = $1", [first.id]);
  const [second] = await tasks.until([first.id], (row) => row.state === "DONE");
  assert.deepEqual([second?.output, second?.error], ["0", null]);
  assert.ok((second?.start ?? "") > (first.start ?? ""));
});

test("a planned task that is set to STOP does not run", async () => {
  const [id = ""] = await tasks.insert({ input: "SELECT 1", plan: "2100-01-01" });
  await client.query("UPDATE task SET state = 'STOP', plan = statement_timestamp() WHERE id = $1", [id]);
  // All due tasks are claimed together, so when later tasks have run, the stopped task has been passed over.
  await tasks.run("SELECT 2");
  await tasks.run("SELECT 3");
  const row = await tasks.row(id);
  assert.deepEqual([row.state, row.start, row.output], ["STOP", null, null]);
});

test("a task that could not start within active is GONE", async () => {
  const [id = ""] = await tasks.insert({
    input: "SELECT 1",
    plan: "2001-01-01",
    active: "1 hour",
  });
  const row = only(await tasks.ended(id));
  assert.equal(row.state, "GONE");
  assert.equal(row.error, "ERROR:  task not active");
  assert.equal(row.start, row.stop);
  assert.notEqual(row.start, null);
  assert.equal(row.output, null);
});

test("a task with a pause runs however late it is", async () => {
  const row = await tasks.run("SELECT 1", { plan: "2001-01-01", active: "1 hour", max: -1 });
  assert.equal(row.state, "DONE");
});

test("a timeout ends a task and does not apply to the next one in its session", async () => {
  const slow = await tasks.run("SELECT pg_sleep(60)", { timeout: "50 ms" });
  assert.equal(slow.state, "FAIL");
  assert.match(slow.error ?? "", /^ERROR: {2}canceling statement due to statement timeout\n/);
  const next = await tasks.run("SELECT current_setting('statement_timeout')");
  assert.equal(next.output, "0");
});

test("a timeout limits several statements together", async () => {
  const input = "SELECT pg_sleep(0.06);".repeat(20);
  const row = await tasks.run(input, { timeout: "100 ms" });
  assert.match(row.error ?? "", /^ERROR: {2}canceling statement due to statement timeout\n/);
});

test("a task knows its id, schema, table and group", async () => {
  const row = await tasks.run(
    `SELECT current_setting('pg_task.id') AS id, current_setting('pg_task.schema') AS schema,
            current_setting('pg_task.table') AS table, current_setting('pg_task.group') AS group`,
    { group: "it's" },
  );
  assert.equal(row.output, `id\tschema\ttable\tgroup\n${row.id}\tpublic\ttask\tit's`);
});

test("a task inserted by a task has that task as its parent", async () => {
  const parent = await tasks.run("INSERT INTO task (input) VALUES ('SELECT 5')");
  assert.equal(parent.state, "DONE");
  assert.equal(parent.parent, null);
  const rows = await until<{ output: string | null }>(
    client,
    `SELECT output FROM task WHERE parent = ${parent.id} AND state = 'DONE'`,
    (found) => found.length === 1,
  );
  assert.equal(only(rows).output, "5");
});

test("a task may change its own row", async () => {
  const row = await tasks.run("UPDATE task SET data = 'changed' WHERE id = current_setting('pg_task.id')::bigint");
  assert.deepEqual([row.state, row.data, row.output], ["DONE", "changed", "UPDATE 1"]);
});

test("a task that deletes its own row ends without one, and others go on", async () => {
  const [id = ""] = await tasks.insert({
    input: "DELETE FROM task WHERE id = current_setting('pg_task.id')::bigint",
  });
  await until(client, `SELECT FROM task WHERE id = ${id}`, (rows) => rows.length === 0);
  const next = await tasks.run("SELECT 1");
  assert.equal(next.state, "DONE");
});

test("supervisor, manager and sessions have different application names", async () => {
  await tasks.run("SELECT 1");
  const rows = await eventually<{ application_name: string }>(
    client,
    `SELECT DISTINCT application_name FROM pg_stat_activity
     WHERE datname = current_database() AND application_name <> 'test' ORDER BY 1`,
    (found) => found.length === 3,
  );
  assert.deepEqual(
    rows.map((row) => row.application_name),
    ["pg_conf", "pg_task public task", "pg_work public task 200"],
  );
});

test("ready is logged once, with pid and server but without password", () => {
  const ready = pgTask.lines.filter((line) => line.msg === "ready");
  assert.equal(ready.length, 1);
  assert.equal(ready[0]?.["pid"], pgTask.pid);
  assert.equal(ready[0]?.["url"], database.url);
});
