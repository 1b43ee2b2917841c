import assert from "node:assert/strict";
import { test } from "../support/limitedTest.js";
import { projectText } from "../support/project.js";
import { serve } from "../support/serve.js";
import { until } from "../support/tasks.js";

const page = projectText("docs/failure.md");
const blocks = [...page.matchAll(/^```sql\n([^]*?)^```$/gm)].map(([, text = ""]) => text);

const { client, tasks } = await serve(
  { "pg_task.delete": false, "pg_task.ceiling": "10 ms" },
  `
  DO $$BEGIN CREATE ROLE billing; EXCEPTION WHEN duplicate_object THEN NULL; END$$;
  CREATE SEQUENCE cards;
  CREATE PROCEDURE charge_card(integer) LANGUAGE plpgsql AS $$BEGIN IF nextval('cards') < 3 THEN RAISE 'declined'; END IF; END$$;
  CREATE PROCEDURE post_ledger() LANGUAGE plpgsql AS $$BEGIN RAISE SQLSTATE '55P03'; END$$;
  CREATE PROCEDURE import_orders() LANGUAGE plpgsql AS $$BEGIN RAISE unique_violation; END$$`,
);

test("the examples do what the page says", async () => {
  assert.equal(blocks.length, 7);
  const [plan = "", waiting = "", errors = "", lists = ""] = blocks;
  const defaults = blocks[5] ?? "";
  for (const block of [plan, waiting, lists, defaults]) await client.query(block);
  await tasks.endedOf("SELECT id FROM task");
  assert.deepEqual(await tasks.rows('SELECT "group", state::text AS state, attempt FROM task ORDER BY id'), [
    { group: "billing", state: "DONE", attempt: 2 },
    { group: "ledger", state: "FAIL", attempt: 5 },
    { group: "import", state: "FAIL", attempt: null },
  ]);
  assert.deepEqual(
    (await tasks.rows<{ sqlstate: string; error: string }>(errors)).map(({ sqlstate, error }) => [sqlstate, error]),
    Array.from({ length: 2 }, () => ["P0001", "ERROR:  declined"]),
  );
});

test("the example of a role's defaults applies to its sessions", async () => {
  const config = await tasks.value<string[]>(
    "SELECT setconfig FROM pg_db_role_setting JOIN pg_roles AS r ON r.oid = setrole WHERE rolname = 'billing'",
  );
  assert.deepEqual(config.toSorted(), ["pg_task.backoff=5 sec", "pg_task.retry=3"]);
  await client.query("ALTER ROLE billing RESET ALL");
});

test("the example of a suspension pauses the schedule", async () => {
  await client.query("CREATE PROCEDURE load_rates() LANGUAGE plpgsql AS $$BEGIN RAISE 'no answer'; END$$");
  const example = blocks[4] ?? "";
  assert.match(example, /'0 \* \* \* \*', 10\)/);
  await client.query(example.replace("'0 * * * *', 10)", "'* * * * * *', 1)"));
  const paused = "SELECT FROM task WHERE key = 'rates' AND plan = 'infinity' AND failures = 1";
  await until(client, paused, ({ length }) => length === 1);
  await client.query("SELECT task_unschedule('rates')");
});

test("the example of a redrive makes all tries again", async () => {
  const { id } = await tasks.run("SELECT 1/0", { group: "billing", retry: 1 });
  const { rowCount } = await client.query(blocks.at(-1) ?? "");
  assert.equal(rowCount, 1);
  await tasks.ended(id);
  assert.ok(await tasks.holds(id, "attempt = 1"));
});

test("each row of the table of errors is refused with its message", async () => {
  const rows = [...page.matchAll(/^\| `(\w+) = ('[^']*'|-?\d+)`\s+\| (\w{5})\s+\| `(.*)`\s+\|$/gm)];
  assert.equal(rows.length, 4);
  for (const [, column, value, sqlstate, message] of rows) {
    const insert = client.query(`INSERT INTO task (input, ${column}) VALUES ('', ${value})`);
    await assert.rejects(insert, { code: sqlstate, message });
  }
});
