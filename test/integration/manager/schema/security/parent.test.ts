import assert from "node:assert/strict";
import { it } from "node:test";
import { sqlState } from "../../../../../src/shared/postgres/client.js";
import { serve } from "../../../../support/serve.js";
import { only } from "../../../../support/tasks.js";

const { client, tasks } = await serve();

const inserted = async (): Promise<string | null> =>
  (await tasks.row(only(await tasks.insert({ input: "SELECT 1" })))).parent;

it("leaves parent null for a session that sets nothing, or resets the setting", async () => {
  assert.equal(await inserted(), null);
  await client.query("SET pg_task.id = 7");
  await client.query("RESET pg_task.id");
  assert.equal(await inserted(), null);
});

it("lets an ordinary session set a parent, which has no other effect", async () => {
  const running = only(await tasks.insert({ input: "SELECT pg_sleep(60)", group: "running" }));
  await tasks.sleeping(running);
  await client.query(`SET pg_task.id = ${running}`);
  const id = only(await tasks.insert({ input: "SELECT current_setting('pg_task.id')", group: "other" }));
  const claimed = only(await tasks.ended(id));
  assert.equal(claimed.parent, running);
  assert.equal(claimed.output, id, "the task knows better");
  await client.query("DELETE FROM task WHERE id = $1", [id]);
  assert.equal((await tasks.row(running)).state, "WORK");
  await client.query("RESET pg_task.id");
  await client.query("UPDATE task SET state = 'STOP' WHERE id = $1", [running]);
  await tasks.until([running], (row) => row.stop !== null);
});

it("rejects a parent that is not a number, without affecting other sessions", async () => {
  await client.query("SET pg_task.id = 'nonsense'");
  await assert.rejects(tasks.insert({ input: "SELECT 1" }), (error) => sqlState(error) === "22P02");
  await client.query("DELETE FROM task");
  await client.query("RESET pg_task.id");
  assert.equal((await tasks.run("SELECT 1")).state, "DONE");
});

it("gives each task its own id, whatever the previous one set in the same session", async () => {
  const shared = { group: "shared", count: 2, save: true };
  const child = "INSERT INTO task (input, data) VALUES ('SELECT 1', current_setting('pg_task.id'))";
  // A session serves the group as long as it can, but the second task may start in another one if that is free first.
  for (let isShared = false; !isShared;) {
    const ids = await tasks.insert({ input: "SET pg_task.id = 99", ...shared }, { input: child, ...shared });
    const [first, second] = await tasks.ended(...ids);
    isShared = first?.pid === second?.pid;
    const { rows } = await client.query<{ id: string }>("SELECT id FROM task WHERE parent = $1", [second?.id]);
    assert.equal(rows.length, 1);
  }
});
