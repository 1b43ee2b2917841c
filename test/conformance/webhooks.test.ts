import assert from "node:assert/strict";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { waitForRow } from "../support/tasks.js";
import { WebhookReceiver, accept, webhookSecret } from "../support/webhookReceiver.js";

const receiver = await WebhookReceiver.started();
const url = receiver.url();
const secret = webhookSecret;
const { client, database, pgTask, tasks } = await serve({
  "pg_http.webhooks": [
    { url, secret },
    {
      url: receiver.url("/failures"),
      secret,
      name: "failures",
      states: ["FAIL", "GONE"],
      groups: ["nightly", "month"],
    },
    { url: receiver.url("/elsewhere"), secret, name: "elsewhere", tables: ["public.other"] },
  ],
});

/** Paths on which the end of a task has been received. */
const pathsOf = (id: string): string[] =>
  receiver.got
    .filter(({ body }) => body.data["id"] === id)
    .map(({ path }) => path)
    .toSorted();

const emptied = (): Promise<unknown> => waitForRow(client, "SELECT WHERE NOT EXISTS (SELECT FROM task_outbox)");

test("a webhook is told the end of a task in a signed message", async () => {
  const { id } = await tasks.run("SELECT 1/0", { group: "nightly", key: "the job" });
  const { body, headers, isSigned, id: message } = await receiver.endOf(id);
  const { plan, start, stop } = await waitForRow<Record<"plan" | "start" | "stop", Date>>(
    client,
    "SELECT plan, start, stop FROM task WHERE id = $1",
    [id],
  );
  assert.deepEqual(body, {
    type: "task.fail",
    timestamp: stop.toISOString(),
    text: `task ${id} (nightly) FAIL: ERROR:  division by zero`,
    data: {
      database: database.target.database,
      table: "public.task",
      id,
      state: "FAIL",
      group: "nightly",
      key: "the job",
      plan: plan.toISOString(),
      start: start.toISOString(),
      stop: stop.toISOString(),
      error: "ERROR:  division by zero",
    },
  });
  assert.ok(isSigned);
  assert.match(message, /^msg_[\w-]{27}$/);
  assert.equal(headers["content-type"], "application/json");
  await emptied();
});

test("states, groups and tables limit what a webhook is told", async () => {
  const done = await tasks.run("SELECT 1", { group: "nightly" });
  const failed = await tasks.run("SELECT 1/0", { group: "month" });
  const other = await tasks.run("SELECT 1/0", { group: "other" });
  await receiver.until(() => pathsOf(other.id).length > 0);
  await emptied();
  assert.deepEqual(
    [done, failed, other].map(({ id }) => pathsOf(id)),
    [["/hook"], ["/failures", "/hook"], ["/hook"]],
  );
});

test("every way in which a task can end is told, and nothing else", async () => {
  const ends = async (id: string): Promise<string> => (await receiver.endOf(id)).body.type;
  // The row is deleted at once.
  const [silent = ""] = await tasks.insert({ input: "SELECT WHERE false", delete: true });
  assert.equal(await ends(silent), "task.done");
  assert.equal(await tasks.value("SELECT count(*)::integer FROM task WHERE id = $1", [silent]), 0);
  const [late = ""] = await tasks.insert({ input: "SELECT 1", plan: "2001-01-01" });
  assert.equal(await ends(late), "task.gone");
  const [planned = ""] = await tasks.insert({ input: "SELECT 1", plan: "infinity" });
  await client.query("SELECT task_stop($1)", [planned]);
  assert.equal(await ends(planned), "task.stop");
  const [running = ""] = await tasks.insert({ input: "SELECT pg_sleep(600)", group: "endless" });
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'WORK'", [running]);
  await client.query("UPDATE task SET state = 'STOP' WHERE id = $1", [running]);
  assert.equal(await ends(running), "task.stop");
  const [own = ""] = await tasks.insert({
    input: "UPDATE task SET state = 'FAIL' WHERE id = current_setting('pg_task.id')::bigint",
    group: "own",
  });
  assert.equal(await ends(own), "task.fail");
  const [first = ""] = await tasks.insert({ input: "SELECT 1/0" });
  await client.query("INSERT INTO task (input, after) VALUES ('SELECT 1', ARRAY[$1::bigint])", [first]);
  const { id: waits } = await waitForRow<{ id: string }>(
    client,
    "SELECT id::text FROM task WHERE after IS NOT NULL AND state = 'GONE'",
  );
  assert.equal(await ends(waits), "task.gone");
  const [tried = ""] = await tasks.insert({ input: "SELECT 1/0", retry: 2, backoff: "1 ms" });
  assert.equal(await ends(tried), "task.fail");
  await client.query(`INSERT INTO task (input, state, "group") VALUES ('SELECT 1', 'DONE', 'loaded')`);
  const [deleted = ""] = await tasks.insert({ input: "SELECT 1", plan: "infinity" });
  await client.query("DELETE FROM task WHERE id = $1", [deleted]);
  const { id: last } = await tasks.run("SELECT 1");
  await receiver.endOf(last);
  await emptied();
  assert.deepEqual(receiver.ends(deleted), []);
  assert.deepEqual(
    [silent, late, planned, running, own, waits, tried].map((id) => receiver.ends(id).length),
    [1, 1, 1, 1, 1, 1, 1],
  );
  assert.ok(receiver.got.every(({ body }) => body.data["group"] !== "loaded"));
});

test("an end is sent until it is accepted, with the same id and body, after the pause that the receiver asks for", async () => {
  const from = pgTask.lines.length;
  const answers: [status: number, headers: Record<string, string>][] = [
    [500, {}],
    [302, { location: receiver.url("/redirected") }],
    [429, { "retry-after": "1" }],
  ];
  const at: number[] = [];
  receiver.answer = (response) => {
    at.push(performance.now());
    const [status, headers] = answers.shift() ?? [204, {}];
    response.writeHead(status, headers).end("something");
  };
  const { id } = await tasks.run("SELECT 1");
  await receiver.until(() => receiver.ends(id).length === 4);
  receiver.answer = accept;
  const sent = receiver.got.filter(({ body }) => body.data["id"] === id);
  assert.equal(new Set(sent.map((each) => each.id)).size, 1);
  assert.equal(new Set(sent.map(({ body }) => JSON.stringify(body))).size, 1);
  assert.ok(sent.every(({ isSigned, path }) => isSigned && path === "/hook"));
  assert.ok((at[3] ?? 0) - (at[2] ?? 0) >= 990);
  const { reason } = await pgTask.logged(({ msg }) => msg === "webhook failed, retrying", from);
  assert.equal(reason, "status 500");
  await pgTask.logged(({ msg }) => msg === "webhook works again", from);
  const { error } = await waitForRow<{ error: string }>(
    client,
    "SELECT error FROM task_webhooks WHERE name LIKE '127%'",
  );
  assert.equal(error, "status 429");
  await emptied();
});

test("a table without webhooks has no triggers for them, and what is not told yet is dropped with its webhook", async () => {
  receiver.answer = (response) => response.writeHead(503).end();
  await tasks.run("SELECT 1");
  await waitForRow(client, "SELECT FROM task_outbox WHERE tries > 0");
  await pgTask.reload({ url: database.url, "pg_task.sleep": 50 });
  const { dropped } = await pgTask.line("webhooks removed, what they were to be told is dropped");
  assert.equal(dropped, 1);
  await waitForRow(client, "SELECT WHERE NOT EXISTS (SELECT FROM pg_trigger WHERE tgname LIKE 'task_webhook%')");
  const { id: untold } = await tasks.run("SELECT 1");
  assert.equal(await tasks.value("SELECT count(*)::integer FROM task_outbox"), 0);
  receiver.answer = accept;
  const again = [{ url, secret, name: "again", groups: ["again"] }];
  await pgTask.reload({ url: database.url, "pg_task.sleep": 50, "pg_http.webhooks": again });
  await waitForRow(client, "SELECT FROM pg_trigger HAVING count(*) FILTER (WHERE tgname LIKE 'task_webhook%') = 2");
  const { id } = await tasks.run("SELECT 1", { group: "again" });
  await receiver.endOf(id);
  assert.deepEqual(receiver.ends(untold), []);
});
