import type { Client } from "../../src/shared/postgres/client.js";
import { insertTask, waitForRun, waitForState } from "./tasks.js";

const slowGroup = "import";

const groups = ["mail", "reports", slowGroup, "billing", "search-index", "thumbnails", "webhooks", "cleanup"];

const inputs = [
  "SELECT send_mail(address, 'Your order has been shipped', body) FROM mail_of_order(%s)",
  "CALL refresh_report(%s)",
  "COPY orders FROM PROGRAM 'curl -s https://partner.example.com/orders/%s.csv' (FORMAT csv)",
  "INSERT INTO invoice SELECT * FROM invoice_of(%s)",
  "REFRESH MATERIALIZED VIEW CONCURRENTLY search_%s",
  "SELECT make_thumbnail(id, 256) FROM image WHERE album = %s",
  "SELECT http_post('https://hooks.example.com/order', order_json(%s))",
  "DELETE FROM session WHERE expires < now() - interval '1 day' AND shard = %s",
];

const errors = [
  'ERROR:  could not connect to server: Connection refused\nDETAIL:  Is the server running on host "partner.example.com"?',
  'ERROR:  duplicate key value violates unique constraint "invoice_number_key"\nDETAIL:  Key (number)=(2026-4711) already exists.',
  "ERROR:  canceling statement due to statement timeout",
  "ERROR:  the hook of customer 4711 answered 503 Service Unavailable, and its retry header asks to wait for 120 seconds: the order has been saved, and is sent again with the next run of the queue, at the latest after an hour",
];

/** Inserts the rows of a week with a slow hour, failures and expired tasks. Deterministic, except for the time of day. */
async function insertWeek(client: Client): Promise<void> {
  await client.query(
    `INSERT INTO task ("group", input, plan, start, stop, state, output, error)
     SELECT g.name, format(g.input, n), r.plan, CASE WHEN r.state <> 'GONE' THEN r.start END,
       r.start + r.took, r.state::state, CASE WHEN r.state = 'DONE' THEN 'rows' || chr(10) || n % 90 END,
       CASE r.state WHEN 'FAIL' THEN ($3::text[])[1 + n % 4] WHEN 'GONE' THEN 'ERROR:  it was due for longer than its active of 01:00:00 allows' END
     FROM generate_series(1, 9000) AS n,
       LATERAL (SELECT ($1::text[])[1 + n % 8] AS name, ($2::text[])[1 + n % 8] AS input) AS g,
       LATERAL (SELECT now() - (9000 - n) * interval '66 seconds' - interval '2 minutes' AS plan) AS p,
       LATERAL (SELECT p.plan >= date_trunc('hour', now()) - interval '22 hours' AND p.plan < date_trunc('hour', now()) - interval '21 hours' AS slow) AS h,
       LATERAL (SELECT p.plan, p.plan + interval '1 ms' * (40 + n * 37 % 160) * CASE WHEN h.slow THEN 12 ELSE 1 END AS start,
         interval '1 ms' * (150 + n * 7919 % 900) * CASE WHEN h.slow THEN 30 ELSE 1 END AS took,
         CASE WHEN n % 331 = 0 THEN 'GONE' WHEN n % 29 = 0 OR h.slow AND n % 3 = 0 THEN 'FAIL' ELSE 'DONE' END AS state) AS r`,
    [groups, inputs, errors],
  );
}

const schedules: readonly (readonly [group: string, key: string, rule: string, zone: string, input: string])[] = [
  ["reports", "daily sales", "0 6 * * *", "Europe/Berlin", "CALL refresh_report('sales')"],
  ["reports", "weekly board", "0 7 * * 1", "Europe/Berlin", "CALL refresh_report('board')"],
  ["cleanup", "sessions", "*/15 * * * *", "UTC", "DELETE FROM session WHERE expires < now()"],
  [
    "billing",
    "invoices",
    "FREQ=MONTHLY;BYMONTHDAY=-1;BYHOUR=22;BYMINUTE=0;BYSECOND=0",
    "America/New_York",
    "CALL make_invoices()",
  ],
  ["billing", "dunning", "30 9 * * 1-5", "America/New_York", "CALL send_reminders()"],
  ["search-index", "rebuild", "0 3 * * *", "UTC", "REFRESH MATERIALIZED VIEW CONCURRENTLY search_all"],
  [
    slowGroup,
    "partner files",
    "10 * * * *",
    "Europe/London",
    "COPY orders FROM PROGRAM 'fetch-partner-files' (FORMAT csv)",
  ],
  [slowGroup, "exchange rates", "5 16 * * 1-5", "Europe/Berlin", "SELECT import_rates('ecb')"],
  ["mail", "digest", "0 8 * * *", "Asia/Tokyo", "SELECT send_digest(id) FROM account WHERE wants_digest"],
  ["mail", "birthday", "0 9 * * *", "Europe/Berlin", "SELECT congratulate(id) FROM account WHERE is_birthday(id)"],
  ["cleanup", "old logs", "20 2 * * *", "UTC", "DELETE FROM log WHERE at < now() - interval '90 days'"],
  ["cleanup", "vacuum", "40 2 * * 0", "UTC", "VACUUM ANALYZE orders"],
  ["webhooks", "resend", "*/10 * * * *", "UTC", "SELECT resend_hook(id) FROM hook WHERE failed"],
  ["thumbnails", "missing", "50 * * * *", "UTC", "SELECT make_thumbnail(id, 256) FROM image WHERE thumbnail IS NULL"],
  ["reports", "quarter", "0 5 1 1,4,7,10 *", "Europe/Berlin", "CALL refresh_report('quarter')"],
  ["billing", "currency check", "0 */6 * * *", "UTC", "SELECT check_currencies()"],
  ["search-index", "synonyms", "15 4 * * 2", "UTC", "CALL load_synonyms()"],
  [
    "reports",
    "stock",
    "FREQ=DAILY;BYHOUR=5,13,21;BYMINUTE=30;BYSECOND=0",
    "Australia/Sydney",
    "CALL refresh_report('stock')",
  ],
];

/** Each schedule with four past runs. The last one of every fifth has failed. */
async function insertSchedules(client: Client): Promise<void> {
  await client.query("SET pgtask.manager = on");
  for (const [index, [group, key, rule, zone, input]] of schedules.entries()) {
    let parent: string | null = null;
    for (let ago = 4; ago > 0; ago--) {
      const failed = index % 5 === 2 && ago === 1;
      parent = await insertTask(client, input, {
        group,
        key,
        parent,
        state: failed ? "FAIL" : "DONE",
        plan: new Date(Date.now() - ago * 86_400_000),
        start: new Date(Date.now() - ago * 86_400_000 + 300),
        stop: new Date(Date.now() - ago * 86_400_000 + 1_000 + index * 431),
        error: failed ? errors[index % errors.length] : null,
      });
    }
    await client.query(
      `INSERT INTO task (input, "group", key, parent, rule, zone, plan) VALUES ($1, $2, $3, $4, $5, $6, task_next($5, $6, now()))`,
      [input, group, key, parent, rule, zone],
    );
  }
  await client.query("RESET pgtask.manager");
}

/** Returns the ids of a task whose retries have failed, of one that waits for others, and of one that runs. */
async function insertLiveTasks(client: Client): Promise<SampleTasks> {
  await client.query(
    `INSERT INTO task_pause ("group", reason) VALUES ('billing', 'the bank is down until noon');
     INSERT INTO task ("group", input) SELECT 'billing', format('INSERT INTO invoice SELECT * FROM invoice_of(%s)', n) FROM generate_series(1, 340) AS n;
     INSERT INTO task ("group", input, plan) SELECT 'mail', format('SELECT send_reminder(%s)', n), now() + n * interval '7 minutes' FROM generate_series(1, 60) AS n`,
  );
  const failed = await insertTask(
    client,
    "-- The partner sends no file on holidays\nSELECT total / 0 FROM (VALUES (4711)) AS orders_of (total)",
    {
      group: "webhooks",
      retry: 2,
      backoff: "1 ms",
      args: null,
    },
  );
  const load = await insertTask(client, "SELECT 'loaded'", { group: "etl load" });
  await waitForState(client, load, "DONE");
  const parts: string[] = [];
  for (const part of ["orders", "customers", "prices", "stock", "returns"]) {
    const input =
      part === "prices" ? "SELECT 1/0 AS prices" : part === "stock" ? "SELECT pg_sleep(3600)" : `SELECT '${part}'`;
    parts.push(await insertTask(client, input, { group: `etl ${part}`, after: `{${load}}` }));
  }
  const waiting = await insertTask(client, "CALL publish_figures()", {
    group: "etl sum",
    after: `{${parts.join()}}`,
    upon: "end",
  });
  await insertTask(client, "SELECT notify_board()", { group: "etl report", after: `{${waiting}}` });
  await insertTask(client, "DROP TABLE IF EXISTS etl_stage", {
    group: "etl clean",
    after: `{${[load, ...parts, waiting].join()}}`,
    upon: "fail",
  });
  await waitForState(client, failed, "FAIL");
  await waitForState(client, parts[2] ?? "", "FAIL");
  const running = parts[3] ?? "";
  await waitForRun(client, running);
  await insertTask(client, "SELECT pg_sleep(3600) FROM generate_series(1, 2)", { group: slowGroup });
  return { failed, waiting, running };
}

export interface SampleTasks {
  readonly failed: string;
  readonly waiting: string;
  readonly running: string;
}

/** Fills a task table that pg-task serves with what each view of the page can show. */
export async function insertSampleTasks(client: Client): Promise<SampleTasks> {
  await insertWeek(client);
  await insertSchedules(client);
  const tasks = await insertLiveTasks(client);
  await client.query("ANALYZE task");
  return tasks;
}
