import assert from "node:assert/strict";
import { test } from "../../../support/limitedTest.js";
import { only } from "../../../support/tasks.js";
import { cli } from "../../../support/cli.js";
import { serve } from "../../../support/serve.js";

const options = { "pg_task.sleep": 50, "pg_task.idle": 3 };
const { pgTask, database, client, tasks } = await serve(options);
const configuration = { url: database.url, ...options };

async function checked(): Promise<unknown> {
  const { stdout } = await cli(["check", "--json"], { env: { DATABASE_URL: database.url } });
  const report: { entries: { paused: unknown }[] } = JSON.parse(stdout);
  return only(report.entries).paused;
}

/** Asserts that these tasks still wait after a task that was inserted later has run. */
async function wait(ids: readonly string[], group: string): Promise<void> {
  await tasks.run("SELECT 'another group'", { group });
  for (const id of ids) assert.equal((await tasks.row(id)).state, "PLAN");
}

test("tasks of a paused group wait while others run, and start when the pause ends", async () => {
  await client.query(`INSERT INTO task_pause ("group", reason) VALUES ('mail', 'moving')`);
  assert.deepEqual(await checked(), ["mail"]);
  const ids = await tasks.insert(
    { input: "SELECT 1", group: "mail", max: 5 },
    { input: "SELECT 2", group: "mail", max: 5 },
  );
  await wait(ids, "other");
  await client.query(`DELETE FROM task_pause WHERE "group" = 'mail'`);
  const rows = await tasks.ended(...ids);
  assert.deepEqual(
    rows.map((row) => row.output),
    ["1", "2"],
  );
  assert.deepEqual(await checked(), []);
});

test("a pause applies at once to tasks inserted after it, and a running task goes on", async () => {
  const running = only(await tasks.insert({ input: "SELECT pg_sleep(1)", group: "long", max: 1 }));
  await tasks.running(running);
  await client.query(`INSERT INTO task_pause ("group") VALUES ('long')`);
  const waiting = await tasks.insert({ input: "SELECT 1", group: "long", max: 1 });
  assert.equal((await tasks.end(running)).state, "DONE");
  await wait(waiting, "other");
  await client.query("TRUNCATE task_pause");
  await tasks.ended(...waiting);
});

test("the whole table can be paused", async () => {
  await client.query("INSERT INTO task_pause DEFAULT VALUES");
  assert.deepEqual(await checked(), [null]);
  const ids = await tasks.insert({ input: "SELECT 1" }, { input: "SELECT 2", group: "any" });
  await client.query("UPDATE task_pause SET reason = 'still'");
  for (const id of ids) assert.equal((await tasks.row(id)).state, "PLAN");
  await client.query(`DELETE FROM task_pause WHERE "group" IS NULL`);
  await tasks.ended(...ids);
});

test("finished rows older than keep are pruned, others stay", async () => {
  const [gone, short, long, planned] = await tasks.insert(
    { input: "SELECT 1", keep: "1 ms" },
    { input: "SELECT 1/0", keep: "1 ms" },
    { input: "SELECT 3", keep: "1 hour" },
    { input: "SELECT 4", keep: "1 ms", plan: "2200-01-01" },
  );
  const ever = await tasks.run("SELECT 5");
  await client.query("SET pg_task.keep = '1 ms'");
  const [bySession] = await tasks.insert({ input: "SELECT 6" });
  await client.query("RESET pg_task.keep");
  assert.equal(ever.state, "DONE");
  await tasks.removed(gone ?? "", short ?? "", bySession ?? "");
  assert.equal((await tasks.row(long ?? "")).state, "DONE");
  assert.equal((await tasks.row(planned ?? "")).state, "PLAN");
  assert.equal((await tasks.row(ever.id)).state, "DONE");
});

test("a row is pruned even if its task ended long after the last one started", async () => {
  const [slow = ""] = await tasks.insert({ input: "SELECT pg_sleep(1.5)", keep: "1 ms" });
  await tasks.removed(slow);
  const [late = ""] = await tasks.insert({
    input: "SELECT 1",
    keep: "1 ms",
    plan: "2001-01-01",
  });
  await tasks.removed(late);
});

test("a pause inserted while no pg-task ran applies after the next start", async () => {
  await pgTask.stop();
  await client.query(`INSERT INTO task_pause ("group") VALUES ('kept')`);
  const ids = await tasks.insert({ input: "SELECT 1", group: "kept", max: 3 });
  await pgTask.start(configuration);
  await wait(ids, "other");
  await client.query("DELETE FROM task_pause");
  await tasks.ended(...ids);
});
