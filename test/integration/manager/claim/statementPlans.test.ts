import assert from "node:assert/strict";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { Tasks } from "../../../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
// Notes which statement it is that updates tasks.
await client.query(`
  CREATE TABLE seen (statement text);
  CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO public.seen VALUES (current_query()); RETURN NULL; END $$;
  CREATE TRIGGER see AFTER UPDATE ON task FOR EACH STATEMENT EXECUTE FUNCTION see()`);
await pgTask.start({ url: database.url });

/** Those that update tasks, by what only each of them has. */
const marks = {
  "claim single": "%FROM due) = 1%",
  "claim queued": "%next_odd%",
  claim: "%ranked AS MATERIALIZED%",
  "complete plain": "%cardinality(%",
  complete: "%pause_left%",
};

async function used(): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT name FROM unnest($1::text[], $2::text[]) AS m(name, mark) WHERE EXISTS (SELECT FROM seen WHERE statement LIKE mark)`,
    [Object.keys(marks), Object.values(marks)],
  );
  await client.query("TRUNCATE seen");
  return rows.map(({ name }) => name).toSorted();
}

test("a single task is claimed and completed by the statements that do little", async () => {
  await tasks.run("SELECT 1");
  await used();
  await tasks.run("SELECT 2");
  assert.deepEqual(await used(), ["claim single", "complete plain"]);
});

test("tasks behind each other are claimed and completed by the statements that do little", async () => {
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input) SELECT 'SELECT 1' FROM generate_series(1, 2000) RETURNING id`,
  );
  await tasks.ended(...rows.map(({ id }) => id));
  const names = await used();
  assert.ok(names.includes("claim queued") && names.includes("complete plain"), names.join());
  assert.ok(!names.includes("complete"), names.join());
});

test("a task that repeats is planned again by the statement that does everything", async () => {
  const [id = ""] = await tasks.insert({ input: "SELECT 1", repeat: "1 day" });
  await tasks.ended(id);
  const { rows } = await client.query("SELECT FROM task WHERE plan > now()");
  assert.equal(rows.length, 1);
  assert.ok((await used()).includes("complete"));
});

test("no task sees a time before its plan, whatever runs before it in its session", async () => {
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, plan) SELECT 'SELECT now() >= plan, now() >= take FROM task WHERE id = current_setting(''pg_task.id'')::bigint',
       now() + n * interval '2 ms' FROM generate_series(1, 400) AS n RETURNING id`,
  );
  const ended = await tasks.ended(...rows.map(({ id }) => id));
  assert.deepEqual(new Set(ended.map(({ output }) => output?.split("\n").at(-1))), new Set(["t\tt"]));
});
