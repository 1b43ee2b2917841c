import assert from "node:assert/strict";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { until } from "../support/tasks.js";

const { database, client, tasks } = await serve({ "pg_task.sleep": 200 });
const listener = await database.connect();

const heard: string[] = [];
let hear = (): void => {};
listener.on("notification", ({ channel, payload }) => {
  if (channel === "ends") heard.push(payload ?? "");
  hear();
});
await listener.query("LISTEN ends");

/** Waits until this has been heard, and returns everything that has been heard since the last call. */
async function hears(text: string): Promise<string[]> {
  await new Promise<void>((resolve) => {
    hear = () => {
      if (heard.includes(text)) resolve();
    };
    hear();
  });
  return heard.splice(0);
}

const tell = "ends";

test("tell is notified of the id and the state of each task that has ended, and only once the row shows it", async () => {
  const [done = "", failed = "", silent = ""] = await tasks.insert(
    { input: "SELECT 1", tell, group: "a" },
    { input: "SELECT 1/0", tell, group: "a" },
    { input: "SELECT 1", group: "a" },
  );
  await tasks.ended(silent);
  assert.deepEqual(await hears(`${failed} FAIL`), [`${done} DONE`, `${failed} FAIL`]);
  // Without output and error, the row is deleted.
  const [gone = ""] = await tasks.insert({ input: "SELECT WHERE false", tell, group: "b", delete: true });
  assert.deepEqual(await hears(`${gone} DONE`), [`${gone} DONE`]);
  assert.equal(await tasks.value("SELECT count(*)::integer FROM task WHERE id = $1", [gone]), 0);
  const [late = ""] = await tasks.insert({ input: "SELECT 1", tell, group: "b", plan: "2001-01-01" });
  assert.deepEqual(await hears(`${late} GONE`), [`${late} GONE`]);
});

test("a retry is not told, and each run of a schedule is", async () => {
  const [tried = ""] = await tasks.insert({ input: "SELECT 1/0", tell, retry: 2, backoff: "1 ms", group: "b" });
  assert.deepEqual(await hears(`${tried} FAIL`), [`${tried} FAIL`]);
  await client.query(
    "INSERT INTO task (input, key, repeat, suspend, tell) VALUES ('SELECT 1/0', 'often', '1 ms', 2, 'ends')",
  );
  const rows = await until<{ id: string }>(
    client,
    "SELECT id::text FROM task WHERE key = 'often' ORDER BY id",
    ({ length }) => length === 3,
  );
  const [first, second] = rows.map(({ id }) => id);
  const all = await hears(`${second} SUSPENDED`);
  all.push(...heard.splice(0));
  assert.deepEqual(new Set(all), new Set([`${first} FAIL`, `${second} FAIL`, `${second} SUSPENDED`]));
});

test("a task that is stopped, that waits in vain, or that takes its session down is told", async () => {
  const [never = ""] = await tasks.insert({ input: "SELECT 1", tell, plan: "infinity" });
  const [vain = ""] = await tasks.insert({ input: "SELECT 1", tell, after: `{${never}}` });
  await tasks.set(never, "state = 'STOP'");
  assert.deepEqual(await hears(`${vain} GONE`), [`${never} STOP`, `${vain} GONE`]);
  const [failed = ""] = await tasks.insert({ input: "SELECT 1/0" });
  await tasks.ended(failed);
  const [refused = ""] = await tasks.insert({ input: "SELECT 1", tell, after: `{${failed}}` });
  assert.deepEqual(await hears(`${refused} GONE`), [`${refused} GONE`]);
  const [running = ""] = await tasks.insert({ input: "SELECT pg_sleep(60)", tell, group: "c" });
  await tasks.running(running);
  await client.query("SELECT task_stop($1)", [running]);
  assert.deepEqual(await hears(`${running} STOP`), [`${running} STOP`]);
  const [fatal = ""] = await tasks.insert({ input: "SELECT pg_terminate_backend(pg_backend_pid())", tell, group: "d" });
  assert.deepEqual(await hears(`${fatal} FAIL`), [`${fatal} FAIL`]);
});

test("a name that NOTIFY would refuse is refused by the INSERT", async () => {
  await assert.rejects(tasks.insert({ input: "", tell: "" }), /tell is empty/);
  await assert.rejects(tasks.insert({ input: "", tell: "é".repeat(32) }), /tell has 64 bytes, at most 63 are allowed/);
  const [id = ""] = await tasks.insert({ input: "SELECT 1", tell: "é".repeat(31) });
  assert.equal((await tasks.end(id)).state, "DONE");
});
