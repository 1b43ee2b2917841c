import assert from "node:assert/strict";
import { it } from "node:test";
import { createDatabase } from "../../../support/database.js";
import { startProcess } from "../../../support/process.js";
import { insertTask, waitForRun } from "../../../support/waitFor.js";
import { token, Web } from "../../../support/web.js";

const database = await createDatabase();
const client = await database.connect();
const { database: data, user } = database.target;

it("changes every metric, and resets those of the current state", async () => {
  const program = await startProcess({
    config: {
      url: database.url,
      "pg_http.listen": "127.0.0.1:0",
      "pg_http.token": token,
      "pg_task.json": [
        { data, user },
        { data, user, table: "locked" },
      ],
    },
  });
  const web = await Web.connect(program);
  await program.line("ready");
  /** The largest value of each metric so far. For a histogram, the largest value of its sum. */
  const largest = new Map<string, number>();
  const last = new Map<string, number>();
  const scrape = async (): Promise<void> => {
    const { text } = await web.requestWithoutToken("/metrics");
    last.clear();
    for (const [, name = "", type = ""] of text.matchAll(/^# TYPE (\S+) (\S+)$/gm)) {
      const series = type === "histogram" ? `${name}_sum` : name;
      const values = text
        .split("\n")
        .filter((line) => line.startsWith(`${series} `) || line.startsWith(`${series}{`))
        .map((line) => Number(line.split(" ").at(-1)));
      last.set(name, Math.max(0, ...values));
      largest.set(name, Math.max(largest.get(name) ?? 0, last.get(name) ?? 0));
    }
  };

  await client.query(
    `WITH awaited AS (INSERT INTO task (input, plan) VALUES ('SELECT 4', 'infinity') RETURNING id)
     INSERT INTO task (input, after) SELECT 'SELECT 5', ARRAY[id] FROM awaited`,
  );
  do await scrape();
  while (last.get("pg_task_held_total") !== 1);
  await client.query("UPDATE task SET plan = now() WHERE plan = 'infinity' AND after IS NULL");
  await insertTask(client, "SELECT pg_sleep(0.01)");
  await insertTask(client, "SELECT 1/0");
  await client.query(
    "INSERT INTO task (input, plan, active) VALUES ('SELECT 2', now() - interval '2 hours', '1 hour')",
  );
  await client.query("INSERT INTO task (input, retry, backoff) VALUES ('SELECT 2/0', 1, '1 ms')");
  await client.query("SELECT pg_advisory_lock(1)");
  const blocked = await insertTask(client, "SELECT pg_advisory_lock_shared(1)", "blocked");
  const { pid } = await waitForRun(client, blocked);
  await insertTask(client, "SELECT 3", "blocked");
  await client.query("SELECT pg_terminate_backend($1)", [pid]);
  await program.line(/^orphaned tasks rescued/);
  await client.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE datname = current_database() AND application_name LIKE 'pg_work public task %'`,
  );
  await waitForRun(client, blocked);
  await client.query("BEGIN; LOCK TABLE locked IN ACCESS EXCLUSIVE MODE");
  const unchanged = (): string[] => [...largest].flatMap(([name, value]) => (value > 0 ? [] : [name]));
  do await scrape();
  while (unchanged().length > 0);
  assert.ok(largest.size > 20, `${largest.size} metrics`);

  await client.query("COMMIT");
  await client.query("SELECT pg_advisory_unlock(1)");
  const currentState = ["pg_task_running", "pg_task_backlog", "pg_task_oldest_due_seconds", "pg_task_scrape_error"];
  do await scrape();
  while (currentState.some((name) => last.get(name) !== 0));
  await program.end();
});
