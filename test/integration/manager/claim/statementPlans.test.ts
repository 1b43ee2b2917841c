import assert from "node:assert/strict";
import { test } from "../../../support/limitedTest.js";
import { serve } from "../../../support/serve.js";

// Records which statements update tasks, and how many rows each of them updates.
const { client, tasks } = await serve(
  {},
  `
  CREATE TABLE seen (statement text, rows bigint);
  CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO public.seen SELECT current_query(), count(*) FROM updated; RETURN NULL; END $$;
  CREATE TRIGGER see AFTER UPDATE ON task REFERENCING NEW TABLE AS updated FOR EACH STATEMENT EXECUTE FUNCTION see()`,
);

/** For each statement that updates tasks, a pattern that only this statement matches. */
const marks = {
  "claim small": "%), fits AS MATERIALIZED%",
  "claim plain": "%needs_full%lead(id)%",
  claim: "%ranked AS MATERIALIZED%",
  "complete plain": "%cardinality(%",
  complete: "% AS holds, %",
};

/** Returns the statements that were used since the last call, with the number of rows that each of them updated. */
async function used(): Promise<Map<string, number>> {
  const { rows } = await client.query<{ name: string; count: number }>(
    `SELECT name, sum(rows)::integer AS count FROM unnest($1::text[], $2::text[]) AS m(name, mark)
     JOIN seen ON statement LIKE mark AND rows > 0 GROUP BY name ORDER BY name`,
    [Object.keys(marks), Object.values(marks)],
  );
  await client.query("TRUNCATE seen");
  return new Map(rows.map(({ name, count }) => [name, count]));
}

test("a single task is claimed by the small claim and completed by the plain completion", async () => {
  await tasks.run("SELECT 1");
  await used();
  await tasks.run("SELECT 2");
  assert.deepEqual([...(await used()).keys()], ["claim small", "complete plain"]);
});

test("queued tasks are claimed by the plain claim and completed by the plain completion", async () => {
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input) SELECT 'SELECT 1' FROM generate_series(1, 2000) RETURNING id`,
  );
  await tasks.ended(...rows.map(({ id }) => id));
  // How many also need the full statements depends on the load: a busy machine makes runs slow, and tasks behind them
  // are recalled.
  const names = [...(await used()).keys()];
  assert.ok(names.includes("claim plain") && names.includes("complete plain"), names.join());
});

test("a repeating task is completed by the full completion, which inserts its successor", async () => {
  const [id = ""] = await tasks.insert({ input: "SELECT 1", repeat: "1 day" });
  await tasks.ended(id);
  const { rows } = await client.query("SELECT FROM task WHERE plan > now()");
  assert.equal(rows.length, 1);
  assert.ok((await used()).has("complete"));
});

test("no task sees a now() before its planned time, whatever runs before it in its session", async () => {
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, plan) SELECT 'SELECT now() >= plan, now() >= take FROM task WHERE id = current_setting(''pg_task.id'')::bigint',
       now() + n * interval '2 ms' FROM generate_series(1, 400) AS n RETURNING id`,
  );
  const ended = await tasks.ended(...rows.map(({ id }) => id));
  assert.deepEqual(new Set(ended.map(({ output }) => output?.split("\n").at(-1))), new Set(["t\tt"]));
});
