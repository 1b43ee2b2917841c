import assert from "node:assert/strict";
import { documentedBlocks } from "../support/documentedPage.js";
import { test } from "../support/limitedTest.js";
import { projectText } from "../support/project.js";
import { serve } from "../support/serve.js";
import { WebhookReceiver, webhookSecret } from "../support/webhookReceiver.js";

const page = projectText("docs/recipes.md");

const receiver = await WebhookReceiver.started();
const [, json = ""] = /^```json\n([^]*?)^```$/m.exec(page) ?? [];
const { "pg_http.webhooks": webhooks } = JSON.parse(json.replace("https://chat.example/hook", receiver.url()));

const { client, tasks } = await serve(
  {
    "pg_task.delete": false,
    "pg_http.webhooks": webhooks.map((webhook: object) => ({ ...webhook, secret: webhookSecret })),
  },
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
await client.query("LISTEN paid");
const heard: Readonly<Record<string, string[]>> = { paid: [] };
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
  const { id: failing } = await tasks.run("SELECT 1/0", { group: "nightly" });
  const { id: missed } = await tasks.run("SELECT 1", { plan: "2020-01-01Z", active: "1 hour", group: "month" });
  await Promise.all([failing, missed].map((id) => receiver.endOf(id)));
  const ended = receiver.got.map(({ body }) => body.text).filter((each) => !each.endsWith("GONE"));
  assert.deepEqual(ended.toSorted(), [
    `task ${failing} (nightly) FAIL: ERROR:  division by zero`,
    `task ${missed} (month) GONE: ERROR:  task not active`,
  ]);
  assert.deepEqual(heard, { paid: ["order 42"] });
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
