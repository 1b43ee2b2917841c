import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { beforeEach, it } from "node:test";
import { createDatabase } from "../../support/database.js";
import { PgTask } from "../../support/pgTask.js";
import { projectPath } from "../../support/project.js";
import { insertTask, waitForRun, waitForState } from "../../support/tasks.js";
import { token, Web } from "../../support/web.js";
import { WebhookReceiver, webhookSecret } from "../../support/webhookReceiver.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const other = await database.connect();
const { database: data, user } = database.target;

beforeEach(() => client.query("DELETE FROM task"));

/** Starts pg-task anew, so that all counters are 0. */
async function start(more: object = {}): Promise<Web> {
  await pgTask.stop();
  pgTask.lines.length = 0;
  await pgTask.start({ url: database.url, "pg_http.listen": "127.0.0.1:0", "pg_http.token": token, ...more });
  return await Web.connect(pgTask);
}

/** Returns the value of the first matching sample in a scrape. */
function value(text: string, name: string, labels = ""): number | null {
  const line = text.split("\n").find((each) => each.startsWith(name) && each.includes(labels));
  return line === undefined ? null : Number(line.split(" ").at(-1));
}

/** Scrapes until samples have these values, and returns the last scrape. The keys are the beginnings of the lines. */
async function scrapeUntil(web: Web, samples: Readonly<Record<string, number>>): Promise<string> {
  return await web.metricsUntil((text) =>
    Object.entries(samples).every(([name, expected]) => value(text, name) === expected),
  );
}

it("exports counters, histograms and current numbers for Prometheus", async () => {
  const web = await start();
  const done = await insertTask(client, "SELECT 1");
  const failed = await insertTask(client, "SELECT 1/0");
  await client.query("INSERT INTO task (input, plan) VALUES ('SELECT 2', now() + interval '1 day')");
  await waitForState(client, done, "DONE");
  await waitForState(client, failed, "FAIL");
  // Managers report their counts in batches, so it takes a while until all are counted.
  const text = await scrapeUntil(web, { "pg_task_failed_total{": 1, "pg_task_finished_total{": 1 });
  assert.equal(value(text, "pg_task_started_total{"), 2);
  assert.equal(value(text, "pg_task_run_seconds_count{"), 2);
  assert.equal(value(text, "pg_task_run_seconds_bucket{", 'le="+Inf"'), 2);
  assert.equal(value(text, "pg_task_queue_wait_seconds_count{"), 2);
  assert.equal(value(text, "pg_task_claim_seconds_bucket{", 'le="0.001"') !== null, true);
  assert.equal(value(text, "pg_task_leader "), 1);
  assert.equal(value(text, "pg_task_manager_up{"), 1);
  assert.equal(value(text, "pg_task_connections{", 'role="manager"'), 1);
  assert.equal(text.includes("pg_task_retries_total{"), false);
  await client.query("INSERT INTO task (input, retry, backoff) VALUES ('SELECT 2/0', 2, '1 ms')");
  // The summary is cached for a second, and the event loop delay is measured between two scrapes.
  const later = await web.metricsUntil(
    (each) =>
      value(each, "pg_task_retries_total{", 'class="22"') === 2 &&
      value(each, "pg_task_tasks{", 'state="FAIL"') === 2 &&
      value(each, "pg_task_event_loop_delay_p99_seconds ") !== null,
  );
  assert.equal(value(later, "pg_task_tasks{", 'state="PLAN"'), 1);
  assert.equal(value(later, "pg_task_backlog{"), 0);
  checkUses(later);
});

const read = (file: string): string => readFileSync(projectPath(file), "utf8");

/** Returns the names of pg-task's metrics that occur in a text. */
const namesIn = (text: string): Set<string> => new Set(text.match(/\b(?:pg_task|process)_[a-z_0-9]+\b/g) ?? []);

/** Returns the names by which an expression may refer to a metric. */
function seriesNames(name: string, type: string): string[] {
  return type === "histogram" ? [`${name}_bucket`, `${name}_sum`, `${name}_count`] : [name];
}

/** Asserts that a scrape has exactly the metrics of docs/web.md, and all that the dashboard and the alert rules use. */
function checkUses(text: string): void {
  const exported = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name = "", type = ""]) => ({ name, type }));
  const dashboard: { panels: { targets: { expr: string }[] }[] } = JSON.parse(read("examples/grafana.json"));
  const expressions = dashboard.panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));
  // The names of the alerts have no underscores.
  const used = namesIn([...expressions, read("examples/alerts.yml")].join("\n"));
  assert.ok(used.size > 10);
  const known = new Set(exported.flatMap(({ name, type }) => seriesNames(name, type)));
  assert.deepEqual(
    [...used].filter((name) => !known.has(name)),
    [],
  );

  /** Labels by metric. */
  const labels = new Map<string, Set<string>>();
  for (const [, name = "", list = ""] of text.matchAll(/^(\w+)\{(.*)\} \S+$/gm)) {
    const names = labels.get(name) ?? new Set();
    for (const [, label = ""] of list.matchAll(/(\w+)="/g)) labels.set(name, names.add(label));
  }
  for (const expression of expressions) {
    // The label `instance` is left out, because Prometheus adds it.
    const by = [...expression.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, list = ""]) =>
      list.split(", ").filter((label) => label !== "instance"),
    );
    for (const name of namesIn(expression)) {
      const matched = [...expression.matchAll(new RegExp(`${name}\\{([^}]*)\\}`, "g"))].flatMap(([, list = ""]) =>
        [...list.matchAll(/(\w+)[=!]/g)].map(([, label = ""]) => label),
      );
      const own = labels.get(name) ?? new Set();
      const unknown = [...by, ...matched].filter((label) => !own.has(label));
      assert.deepEqual(unknown, [], `${expression} uses labels that ${name} does not have`);
    }
  }

  const rows = read("docs/web.md")
    .split("\n")
    .flatMap((line) => /^\| `([a-z_0-9]+)` /.exec(line)?.[1] ?? [])
    .filter((name) => /^(pg_task|process)_/.test(name));
  assert.deepEqual(new Set(rows), new Set(exported.map(({ name }) => name)));
}

it("counts a task that took its own session down as failed, once", async () => {
  const web = await start({ "pg_task.crash": 2 });
  const id = await insertTask(client, "SELECT pg_terminate_backend(pg_backend_pid())");
  await waitForState(client, id, "FAIL");
  const text = await scrapeUntil(web, { "pg_task_rescued_total{": 2 });
  assert.equal(value(text, "pg_task_failed_total{", 'schema="public",table="task"'), 1);
  assert.deepEqual([value(text, "pg_task_finished_total{"), value(text, "pg_task_gone_total{")], [0, 0]);
});

it("counts tasks that wait for others and are released, rescued tasks, rescues and reconnections", async () => {
  const web = await start();
  await client.query("SELECT pg_advisory_lock(2)");
  const awaited = await insertTask(client, "SELECT pg_advisory_lock_shared(2)", { group: "awaited" });
  const failing = await insertTask(client, "SELECT 1/0, pg_advisory_lock_shared(2)", { group: "failing" });
  await client.query(
    "INSERT INTO task (input, after) VALUES ('SELECT 1', ARRAY[$1::bigint]), ('SELECT 2', ARRAY[$2::bigint])",
    [awaited, failing],
  );
  const text = await scrapeUntil(web, { "pg_task_held_total{": 2 });
  assert.equal(value(text, "pg_task_released_total{"), 0);
  await client.query("SELECT pg_advisory_unlock(2)");
  await scrapeUntil(web, { "pg_task_released_total{": 1, "pg_task_gone_total{": 1 });

  await client.query("SELECT pg_advisory_lock(1)");
  const id = await insertTask(client, "SELECT pg_advisory_lock_shared(1)");
  const { pid } = await waitForRun(client, id);
  await client.query("SELECT pg_terminate_backend($1)", [pid]);
  await pgTask.line(/^orphaned tasks rescued/);
  await client.query("SELECT pg_advisory_unlock(1)");
  await waitForState(client, id, "DONE");
  await client.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE datname = current_database() AND application_name LIKE 'pg_work %'`,
  );
  await scrapeUntil(web, {
    "pg_task_rescued_total{": 1,
    "pg_task_rescues_total{": 1,
    "pg_task_reconnects_total{": 1,
  });
});

it("measures from the planned time of a run to its start", async () => {
  const web = await start();
  // One task is claimed alone, and the others by a claim of many.
  await client.query("INSERT INTO task (input, plan) VALUES ('SELECT 1', now() - interval '100 seconds')");
  await client.query(
    `INSERT INTO task (input, plan, "group")
     SELECT 'SELECT 1', now() - interval '100 seconds', n % 3 FROM generate_series(1, 99) AS n`,
  );
  await client.query("INSERT INTO task (input, plan) VALUES ('SELECT 2', '-infinity')");
  const text = await scrapeUntil(web, { "pg_task_finished_total{": 100, "pg_task_gone_total{": 1 });
  const [count, sum] = ["count", "sum"].map((name) => value(text, `pg_task_queue_wait_seconds_${name}{`) ?? 0);
  assert.equal(count, 100, "a wait since -infinity is not counted");
  const { rows } = await client.query<{ sum: number }>(
    "SELECT sum(date_part('epoch', start - plan)) AS sum FROM task WHERE plan > '-infinity'",
  );
  // The server has microseconds, and the metric milliseconds.
  assert.ok(Math.abs((sum ?? 0) - (rows[0]?.sum ?? 0)) < 0.11, `${sum} ${rows[0]?.sum}`);
});

it("does not count tasks of paused groups as late", async () => {
  const web = await start();
  await client.query(`INSERT INTO task_pause ("group") VALUES ('halted')`);
  const late = `INSERT INTO task (input, "group", plan) VALUES ('SELECT 1', $1, now() - interval '500 seconds')`;
  await client.query(late, ["halted"]);
  const text = await scrapeUntil(web, { "pg_task_backlog{": 1 });
  assert.equal(value(text, "pg_task_oldest_due_seconds{"), 0);
  assert.match(text, /^pg_task_paused\{[^}]*group="halted"\} 1$/m);
  await client.query("INSERT INTO task_pause DEFAULT VALUES");
  await client.query(late, ["free"]);
  const whole = await scrapeUntil(web, { "pg_task_backlog{": 2 });
  assert.equal(value(whole, "pg_task_oldest_due_seconds{"), 0);
  assert.match(whole, /^pg_task_paused\{[^}]*group=""\} 1$/m);
  // The manager cannot claim the task while its row is locked.
  await client.query(`BEGIN; SELECT FROM task WHERE "group" = 'free' FOR UPDATE`);
  await other.query(`DELETE FROM task_pause WHERE "group" IS NULL`);
  await web.metricsUntil((found) => (value(found, "pg_task_oldest_due_seconds{") ?? 0) >= 500);
  await client.query("COMMIT");
  await other.query("DELETE FROM task_pause");
  await scrapeUntil(web, { "pg_task_backlog{": 0 });
});

it("changes every metric, and resets those of the current state", async () => {
  const receiver = await WebhookReceiver.started();
  receiver.answer = (response) => response.writeHead(500).end();
  const web = await start({
    "pg_http.webhooks": [{ url: receiver.url("/ends"), secret: webhookSecret }],
    "pg_task.slow": "1 ms",
    "pg_task.share": "/",
    "pg_task.json": [
      { data, user },
      { data, user, table: "locked" },
    ],
  });
  /** The largest value of each metric so far. For a histogram, the largest value of its sum. */
  const largest = new Map<string, number>();
  /** Reads a scrape into `largest`, and returns its values. */
  const note = (text: string): Map<string, number> => {
    const last = new Map<string, number>();
    for (const [, name = "", type = ""] of text.matchAll(/^# TYPE (\S+) (\S+)$/gm)) {
      const series = type === "histogram" ? `${name}_sum` : name;
      const values = text
        .split("\n")
        .filter((line) => line.startsWith(`${series} `) || line.startsWith(`${series}{`))
        .map((line) => Number(line.split(" ").at(-1)));
      last.set(name, Math.max(0, ...values));
      largest.set(name, Math.max(largest.get(name) ?? 0, last.get(name) ?? 0));
    }
    return last;
  };

  await client.query(
    `WITH awaited AS (INSERT INTO task (input, plan) VALUES ('SELECT 4', 'infinity') RETURNING id)
     INSERT INTO task (input, after) SELECT 'SELECT 5', ARRAY[id] FROM awaited`,
  );
  await web.metricsUntil((text) => note(text).get("pg_task_held_total") === 1);
  // The manager has looked at the owed successors by now. It looks again when it reconnects, and finds that this row owes
  // nothing.
  await client.query("INSERT INTO task_owed VALUES (0)");
  await web.metricsUntil((text) => note(text).get("pg_task_owed") === 1);
  await client.query("UPDATE task SET plan = now() WHERE plan = 'infinity' AND after IS NULL");
  await insertTask(client, "SELECT pg_sleep(0.01)");
  await insertTask(client, "SELECT 1/0");
  await client.query(
    "INSERT INTO task (input, plan, active) VALUES ('SELECT 2', now() - interval '2 hours', '1 hour')",
  );
  await client.query("INSERT INTO task (input, retry, backoff) VALUES ('SELECT 2/0', 1, '1 ms')");
  await client.query(`INSERT INTO task_pause ("group") VALUES ('halted')`);
  await client.query("SELECT pg_advisory_lock(1)");
  const blocked = await insertTask(client, "SELECT pg_advisory_lock_shared(1)", { group: "blocked" });
  const { pid } = await waitForRun(client, blocked);
  await insertTask(client, "SELECT 3", { group: "blocked" });
  await client.query("SELECT pg_terminate_backend($1)", [pid]);
  await pgTask.line(/^orphaned tasks rescued/);
  await client.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE datname = current_database() AND application_name LIKE 'pg_work public task %'`,
  );
  await waitForRun(client, blocked);
  // A listener in a transaction keeps the queue of notifications from being emptied.
  await client.query("LISTEN filling");
  await client.query("BEGIN; LOCK TABLE locked IN ACCESS EXCLUSIVE MODE");
  await other.query("SELECT pg_notify('filling', n || repeat('x', 7000)) FROM generate_series(1, 3) AS n");
  await web.metricsUntil((text) => {
    note(text);
    // Only tables with users have roles, and only large tables have estimates.
    return [...largest].every(([name, number]) => number > 0 || /^pg_task_(?:role_|tasks_estimated$)/.test(name));
  });
  assert.ok(largest.size > 20, `${largest.size} metrics`);

  await client.query("COMMIT; UNLISTEN filling; DELETE FROM task_pause");
  await client.query("SELECT pg_advisory_unlock(1)");
  const currentState = [
    "pg_task_running",
    "pg_task_overruns",
    "pg_task_share_running",
    "pg_task_backlog",
    "pg_task_paused",
    "pg_task_oldest_due_seconds",
    "pg_task_scrape_error",
  ];
  await web.metricsUntil((text) => {
    const last = note(text);
    return currentState.every((name) => last.get(name) === 0);
  });
});
