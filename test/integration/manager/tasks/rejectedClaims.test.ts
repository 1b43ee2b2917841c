import assert from "node:assert/strict";
import { test } from "../../../support/limitedTest.js";
import { type TaskRow } from "../../../support/tasks.js";
import { serve } from "../../../support/serve.js";

const { pgTask, client, tasks } = await serve(
  { "pg_task.sleep": 1_000 },
  `
  CREATE FUNCTION forbid() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'no start'; END $$`,
);

/**
 * Creates a trigger that rejects claims that would set rows with this `data` to one of these states. Returns a function
 * that drops the trigger.
 */
async function forbidding(data: string, ...states: readonly string[]): Promise<() => Promise<void>> {
  const list = states.map((state) => `'${state}'`).join();
  await client.query(
    `CREATE TRIGGER forbid BEFORE UPDATE ON task FOR EACH ROW
     WHEN (OLD.state = 'PLAN' AND NEW.state IN (${list}) AND NEW.data = '${data}') EXECUTE FUNCTION forbid()`,
  );
  return async () => void (await client.query("DROP TRIGGER forbid ON task"));
}

/** Inserts `count` tasks in `groups` groups, in one statement. */
async function insert(
  count: number,
  groups: number,
  more: { readonly data: string; readonly prefix: string; readonly max?: number },
): Promise<string[]> {
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, "group", data, max)
     SELECT 'SELECT 1', $1 || n % $2, $3, $4 FROM generate_series(1, $5) AS n RETURNING id`,
    [more.prefix, groups, more.data, more.max ?? 0, count],
  );
  return rows.map(({ id }) => id);
}

const waitedMs = ({ plan, start }: TaskRow): number => Date.parse(`${start}Z`) - Date.parse(`${plan}Z`);

for (const [count, groups] of [
  [30, 7],
  [200, 7],
  [2_000, 7],
  [2_000, 1],
] as const) {
  test(`${count} tasks in ${groups} groups whose start is rejected delay no other`, async (context) => {
    const data = `refused ${count} ${groups}`;
    const allow = await forbidding(data, "TAKE", "WORK");
    const from = pgTask.lines.length;
    const prefix = `group ${count} ${groups} `;
    const refused = await insert(count, groups, { data, prefix });
    const others = await tasks.insert(
      { input: "SELECT 1", group: "another" },
      { input: "SELECT 2", group: `${prefix}0` },
      { input: "SELECT 3", group: `${prefix}0` },
    );
    const ended = await tasks.ended(...others);
    context.diagnostic(`waited ${ended.map(waitedMs).join(", ")} ms`);
    const later = await tasks.run("SELECT 4", { group: "yet another" });
    context.diagnostic(`later waited ${waitedMs(later)} ms`);
    const said = (): unknown[] => pgTask.lines.slice(from).filter(({ msg }) => msg.startsWith("claim rejected"));
    await tasks.until(refused, ({ state }) => state === "PLAN");
    const last = refused.at(-1);
    await pgTask.logged((line) => line["id"] === last, from);
    assert.equal(said().length, count);
    await allow();
    await tasks.ended(...refused);
    assert.equal(said().length, count);
    assert.deepEqual(
      pgTask.lines.slice(from).filter(({ msg }) => msg === "manager unavailable, retrying"),
      [],
    );
  });
}

test("tasks that may not be queued, or claimed two at once, still start", async () => {
  const allow = await forbidding("no queue", "TAKE");
  const from = pgTask.lines.length;
  const mixed = [
    ...(await insert(300, 3, { data: "any", prefix: "queue " })),
    ...(await insert(6, 3, { data: "no queue", prefix: "queue " })),
    ...(await insert(300, 3, { data: "any", prefix: "queue " })),
  ];
  await tasks.ended(...mixed);
  await allow();
  await client.query(`CREATE UNIQUE INDEX one ON task ("group") WHERE state = 'WORK' AND "group" = 'one'`);
  const alone = await tasks.insert(
    ...Array.from({ length: 3 }, () => ({
      input: "SELECT pg_sleep(0.2)",
      group: "one",
      max: 5,
    })),
  );
  await tasks.ended(...alone);
  await client.query("DROP INDEX one");
  assert.deepEqual(
    pgTask.lines.slice(from).filter(({ msg }) => msg === "manager unavailable, retrying"),
    [],
  );
});

test("deferred constraints, assertions and columns with our names are handled too", async () => {
  await client.query(`
    ALTER TABLE task ADD COLUMN tries text, ADD COLUMN message text, ADD COLUMN done text;
    CREATE FUNCTION deny() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN ASSERT NEW.data <> 'denied', 'denied'; RETURN NEW; END $$;
    CREATE CONSTRAINT TRIGGER deny AFTER UPDATE ON task DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW WHEN (NEW.data = 'denied' AND NEW.state = 'WORK') EXECUTE FUNCTION deny()`);
  const from = pgTask.lines.length;
  const denied = await insert(5, 1, { data: "denied", prefix: "deferred " });
  const [free = ""] = await tasks.insert({ input: "SELECT 5", group: "deferred 0" });
  assert.equal((await tasks.end(free)).output, "5");
  for (const id of denied)
    await pgTask.logged((line) => line["id"] === id && line.msg.startsWith("claim rejected"), from);
  await client.query("DROP TRIGGER deny ON task");
  await tasks.ended(...denied);
});
