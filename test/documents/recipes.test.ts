import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import { documentedBlocks } from "../support/documentedPage.js";
import { test } from "../support/limitedTest.js";
import { projectPath, projectText } from "../support/project.js";
import { serve } from "../support/serve.js";
import { listen } from "../support/listen.js";

const page = projectText("docs/recipes.md");

const { database, client, tasks } = await serve(
  { "pg_task.delete": false },
  // Objects that the recipes use. Each function records that it was called.
  `
  CREATE TABLE called (name text, argument text);
  CREATE FUNCTION sum_hour(timestamptz) RETURNS void LANGUAGE sql AS $$INSERT INTO called VALUES ('sum_hour', date_part('minute', $1)::text)$$;
  CREATE PROCEDURE close_month() LANGUAGE sql AS $$INSERT INTO called VALUES ('close_month')$$;
  CREATE SEQUENCE try_number;
  -- The first two tries to post invoice 1 fail. A rollback does not reset the sequence.
  CREATE FUNCTION post_invoice(integer) RETURNS void LANGUAGE plpgsql AS $$
  BEGIN
    IF $1 = 1 AND nextval('try_number') < 3 THEN RAISE 'no connection'; END IF;
    INSERT INTO called VALUES ('post_invoice', $1);
  END $$;
  CREATE TABLE sale (at timestamptz, amount numeric);
  CREATE MATERIALIZED VIEW sales AS SELECT date_trunc('day', at) AS day, sum(amount) FROM sale GROUP BY 1;
  CREATE UNIQUE INDEX ON sales (day);
  CREATE TABLE workday (day timestamptz, is_last_of_month boolean);
  INSERT INTO workday VALUES ('2099-12-31 18:00Z', true)`,
);
await client.query("LISTEN paid; LISTEN failed");
const heard: Readonly<Record<string, string[]>> = { paid: [], failed: [] };
client.on("notification", ({ channel, payload }) => {
  heard[channel]?.push(payload ?? "");
});

test("the recipes do what they say", async () => {
  const blocks = documentedBlocks(page);
  for (const { sql } of blocks) await client.query(sql);
  // The plans of schedules and of the digest are moved to now. A task that waits for others keeps waiting.
  const { rowCount } = await client.query("UPDATE task SET plan = now() WHERE state = 'PLAN'");
  assert.ok(rowCount);
  for (const { state, error, group } of await tasks.endedOf("SELECT id FROM task WHERE parent IS NULL")) {
    assert.ok(state === "DONE" || (state === "GONE" && error === null), `${group}: ${state} ${error}`);
  }
  const called = "SELECT jsonb_object_agg(name, n) FROM (SELECT name, count(*) AS n FROM called GROUP BY name) AS c";
  assert.deepEqual(await tasks.value(called), { close_month: 2, post_invoice: 2, sum_hour: 1 });
  const invoices = await tasks.rows(
    `SELECT input, attempt, start >= lag(stop) OVER (ORDER BY id) AS "inOrder" FROM task WHERE "group" = 'customer 7' ORDER BY id`,
  );
  assert.deepEqual(invoices, [
    { input: "SELECT post_invoice(1)", attempt: 2, inOrder: null },
    { input: "SELECT post_invoice(2)", attempt: null, inOrder: true },
  ]);
  const failing = await failed();
  const { id: missed } = await tasks.run("SELECT 1", { plan: "2020-01-01Z", active: "1 hour", group: "month" });
  const error = "ERROR:  division by zero\nSTATEMENT:  SELECT 1/0";
  assert.deepEqual(await tasks.rows('SELECT task::text AS task, "group", state, error FROM failure ORDER BY at'), [
    { task: failing, group: "nightly", state: "FAIL", error },
    { task: missed, group: "month", state: "GONE", error: "ERROR:  task not active" },
  ]);
  assert.deepEqual(heard, {
    paid: ["order 42"],
    failed: [`${failing} nightly FAIL: ${error}`, `${missed} month GONE: ERROR:  task not active`],
  });
});

test("a setting for a VACUUM needs two tasks with save", async () => {
  const together = await tasks.run("SET vacuum_cost_delay = 5; VACUUM");
  assert.match(together.error ?? "", /VACUUM cannot .*transaction block/);
  const block = documentedBlocks(page).find(({ sql }) => sql.includes("'VACUUM'"))?.sql ?? "";
  const rows = await tasks.rows<{ id: string }>(`${block.replace(/;\s*$/, "")} RETURNING id`);
  const after = await tasks.add("SHOW vacuum_cost_delay", { group: "vacuum", save: true, live: "1 hour" });
  const ended = await tasks.ended(...rows.map(({ id }) => id), after);
  assert.deepEqual(
    ended.map(({ state, output }) => [state, output]),
    [
      ["DONE", "SET"],
      ["DONE", "VACUUM"],
      ["DONE", "5ms"],
    ],
  );
});

/** Inserts a task that fails, and returns its id when it has. */
const failed = async (): Promise<string> => (await tasks.run("SELECT 1/0", { group: "nightly" })).id;
const text = (id: string): string => `task ${id} (nightly) FAIL: ERROR:  division by zero\nSTATEMENT:  SELECT 1/0`;

test("the example program passes failures on, and keeps those that the webhook does not accept", async () => {
  const posts: string[] = [];
  let status = 200;
  const heardOf = (count: number): Promise<void> =>
    new Promise((resolve) => {
      const look = (): void => {
        if (posts.length < count) return;
        server.off("posted", look);
        resolve();
      };
      server.on("posted", look);
      look();
    });
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (part) => (body += part));
    request.on("end", () => {
      posts.push(JSON.parse(body).text);
      response.writeHead(status).end(() => server.emit("posted"));
    });
  });
  const port = await listen(server);
  const run = (): ChildProcess =>
    spawn(process.execPath, [projectPath("examples/report-failures.mjs")], {
      env: { ...process.env, DATABASE_URL: database.url, WEBHOOK: `http://127.0.0.1:${port}/` },
      stdio: "ignore",
    });
  await client.query("DELETE FROM failure");
  const before = await failed();
  const first = run();
  await heardOf(1);
  const notified = await failed();
  await heardOf(2);
  assert.deepEqual(posts, [text(before), text(notified)]);
  status = 500;
  const ended = once(first, "exit");
  const kept = await failed();
  const [code] = await ended;
  assert.equal(code, 1);
  assert.equal(await tasks.value("SELECT task::text FROM failure"), kept);
  status = 200;
  const second = run();
  await heardOf(4);
  second.kill();
  await once(second, "exit");
  assert.deepEqual(posts.slice(2), [text(kept), text(kept)]);
});
