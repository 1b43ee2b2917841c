import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createDatabase } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { Tasks } from "../support/tasks.js";

const page = readFileSync(new URL("../../../docs/failure.md", import.meta.url), "utf8");
const blocks = [...page.matchAll(/^```sql\n([^]*?)^```$/gm)].map(([, text = ""]) => text);

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
await client.query(`
  DO $$BEGIN CREATE ROLE billing; EXCEPTION WHEN duplicate_object THEN NULL; END$$;
  CREATE SEQUENCE cards;
  CREATE PROCEDURE charge_card(integer) LANGUAGE plpgsql AS $$BEGIN IF nextval('cards') < 3 THEN RAISE 'declined'; END IF; END$$;
  CREATE PROCEDURE post_ledger() LANGUAGE plpgsql AS $$BEGIN RAISE SQLSTATE '55P03'; END$$;
  CREATE PROCEDURE import_orders() LANGUAGE plpgsql AS $$BEGIN RAISE unique_violation; END$$`);
await pgTask.start({ url: database.url, "pg_task.sleep": 50, "pg_task.delete": false, "pg_task.ceiling": "10 ms" });

interface Ended {
  readonly group: string;
  readonly state: string;
  readonly attempt: number | null;
}

test("the examples do what the page says", async () => {
  assert.equal(blocks.length, 6);
  const [plan = "", waiting = "", errors = "", lists = "", defaults = ""] = blocks;
  for (const block of [plan, waiting, lists, defaults]) await client.query(block);
  const { rows: ids } = await client.query<{ id: string }>("SELECT id FROM task");
  await tasks.ended(...ids.map(({ id }) => id));
  const ends = 'SELECT "group", state::text AS state, attempt FROM task ORDER BY id';
  const { rows } = await client.query<Ended>(ends);
  assert.deepEqual(rows, [
    { group: "billing", state: "DONE", attempt: 2 },
    { group: "ledger", state: "FAIL", attempt: 5 },
    { group: "import", state: "FAIL", attempt: null },
  ]);
  const { rows: earlier } = await client.query<{ sqlstate: string; error: string }>(errors);
  assert.deepEqual(
    earlier.map(({ sqlstate, error }) => [sqlstate, error]),
    Array.from({ length: 2 }, () => ["P0001", "ERROR:  declined"]),
  );
});

test("the example of a role's defaults applies to its sessions", async () => {
  const { rows } = await client.query<{ config: string[] }>(
    "SELECT setconfig AS config FROM pg_db_role_setting JOIN pg_roles AS r ON r.oid = setrole WHERE rolname = 'billing'",
  );
  assert.deepEqual(rows[0]?.config.toSorted(), ["pg_task.backoff=5 sec", "pg_task.retry=3"]);
  await client.query("ALTER ROLE billing RESET ALL");
});

test("the example of a redrive makes all tries again", async () => {
  const [id = ""] = await tasks.insert({ input: "SELECT 1/0", group: "billing", retry: 1 });
  await tasks.ended(id);
  const { rowCount } = await client.query(blocks.at(-1) ?? "");
  assert.equal(rowCount, 1);
  await tasks.ended(id);
  const { rows } = await client.query("SELECT attempt FROM task WHERE id = $1", [id]);
  assert.deepEqual(rows, [{ attempt: 1 }]);
});

test("each row of the table of errors is refused with its message", async () => {
  const rows = [...page.matchAll(/^\| `(\w+) = ('[^']*'|-?\d+)`\s+\| (\w{5})\s+\| `(.*)`\s+\|$/gm)];
  assert.equal(rows.length, 3);
  for (const [, column, value, sqlstate, message] of rows) {
    await assert.rejects(client.query(`INSERT INTO task (input, ${column}) VALUES ('', ${value})`), {
      code: sqlstate,
      message,
    });
  }
});
