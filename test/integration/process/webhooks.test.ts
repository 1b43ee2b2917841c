import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { sqlState, type Client } from "../../../src/shared/postgres/client.js";
import { cli } from "../../support/cli.js";
import { connectTo } from "../../support/connectTo.js";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { startProcess, type TestProcess } from "../../support/process.js";
import { insertTask, newName, rowsOf, waitForRow, waitForState } from "../../support/tasks.js";
import { WebhookReceiver, accept, webhookSecret } from "../../support/webhookReceiver.js";

const receiver = await WebhookReceiver.started();
const database = await createDatabase();
const client = await database.connect();

/** Only the file and the environment have these texts. */
const hush = "hush-hush";
const env = { HOOK_SECRET: webhookSecret };
const configOf = (path: string) => ({
  url: database.url,
  "pg_task.sleep": 10,
  "pg_task.idle": 1,
  "pg_conf.log": "trace",
  "pg_http.webhooks": [
    { url: receiver.url(`/${hush}${path}`), name: "ends", secret: { env: "HOOK_SECRET" } },
    { url: receiver.url("/none"), name: "none", secret: webhookSecret, groups: ["none"] },
  ],
});

const config = configOf("");

const start = async (): Promise<TestProcess> => await startProcess({ config, env, until: "ready" });

const emptied = (): Promise<unknown> => waitForRow(client, "SELECT WHERE NOT EXISTS (SELECT FROM task_outbox)");

const asleepSql = `SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'pg\\_work %'
  HAVING count(*) = 1 AND min(application_name) = 'pg_work sleeping'`;

const asleep = (): Promise<unknown> => waitForRow(client, asleepSql);

test("ends are told although processes are killed while their webhook is down, and whoever leads", async () => {
  const leader = await start();
  const standby = await startProcess({ config, env, until: "standby" });
  await receiver.close();
  const ids: string[] = [];
  for (const input of ["SELECT 1", "SELECT 1/0"]) {
    const id = await insertTask(client, input);
    ids.push(id);
    await waitForState(client, id, input === "SELECT 1" ? "DONE" : "FAIL");
  }
  // Its row is gone when the process dies.
  const silent = await insertTask(client, "SELECT WHERE false", { delete: true });
  await waitForRow(client, "SELECT WHERE NOT EXISTS (SELECT FROM task WHERE id = $1)", [silent]);
  await leader.end("SIGKILL");
  const { reason } = await standby.line("webhook failed, retrying");
  assert.match(String(reason), /ECONNREFUSED/);
  await receiver.open();
  for (const id of [...ids, silent]) await receiver.endOf(id);
  await emptied();
  await standby.stop();
});

test("an end is sent again if the process is killed before it has heard that it was accepted", async () => {
  const first = await start();
  // Accepted, but without an answer.
  receiver.answer = () => {};
  const id = await insertTask(client, "SELECT 1");
  const { id: message } = await receiver.endOf(id);
  await first.end("SIGKILL");
  receiver.answer = accept;
  const second = await start();
  await receiver.until(() => receiver.ends(id).length === 2);
  await emptied();
  assert.ok(receiver.got.every((each) => each.body.data["id"] !== id || each.id === message));
  await second.stop();
});

test("the end of a task that is stopped is told when its table sleeps, and when pg-task does not run", async () => {
  const ids = [];
  for (let number = 0; number < 2; number += 1) ids.push(await insertTask(client, "SELECT 1", { plan: "infinity" }));
  const [sleeping = "", down = ""] = ids;
  const first = await start();
  await asleep();
  await client.query("SELECT task_stop($1)", [sleeping]);
  assert.equal((await receiver.endOf(sleeping)).body.type, "task.stop");
  await asleep();
  await first.stop();
  await client.query("UPDATE task SET state = 'STOP' WHERE id = $1", [down]);
  const second = await start();
  await receiver.endOf(down);
  await asleep();
  await emptied();
  await second.stop();
});

test("a table sleeps until the next try, and a changed URL gets what the former one has not accepted", async () => {
  const program = await start();
  receiver.answer = (response) => response.writeHead(404).end();
  const id = await insertTask(client, "SELECT 1");
  await waitForRow(client, "SELECT FROM task_outbox WHERE task = $1 AND tries > 0", [id]);
  const { stdout } = await cli(["status"], { cwd: program.cwd, env });
  assert.match(stdout, /webhook {4}ends: 1 waiting, \d+ failures? in a row, last error .*: status 404\n/);
  const doctor = await cli(["doctor"], { cwd: program.cwd, env });
  assert.match(doctor.stdout, /webhooks\tends: 1 waiting, /);
  // A request that is under way puts the next try off by less.
  const putOff = `UPDATE task_outbox SET next = now() + interval '1 hour';
    UPDATE task_webhooks SET next = now() + interval '1 hour' WHERE name = 'ends'`;
  do {
    await client.query(putOff);
    await pause(100);
  } while ((await rowsOf(client, asleepSql)).length === 0);
  await writeFile(join(program.cwd, "pg_task.json"), JSON.stringify(configOf("/moved")));
  receiver.answer = accept;
  program.child.kill("SIGHUP");
  await program.line("configuration reloaded");
  await client.query("UPDATE task_outbox SET next = now(); UPDATE task_webhooks SET next = NULL");
  const other = await insertTask(client, "SELECT 1");
  await receiver.endOf(other);
  const moved = await receiver.message(({ body, path }) => body.data["id"] === id && path.endsWith("/moved"));
  assert.ok(moved.isSigned);
  await emptied();
  await program.stop();
  const written = program.output.stdout + program.output.stderr + stdout + doctor.stdout;
  for (const secret of [hush, webhookSecret, webhookSecret.slice(6)]) assert.ok(!written.includes(secret), secret);
});

test("whoever inserts and changes tasks can neither write the outbox nor find the URL", async () => {
  const program = await start();
  const [producer, owner] = [newName(), database.target.user];
  await client.query(`CREATE ROLE ${producer} LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE, TRIGGER ON task TO ${producer};
    GRANT USAGE ON SEQUENCE task_id_seq TO ${producer}; CREATE SCHEMA ${producer} AUTHORIZATION ${producer}`);
  const other = await connectTo(database.url.replace(/\/\/[^@]*@/, `//${producer}@`));
  const refused = async (sql: string): Promise<void> =>
    await assert.rejects(other.query(sql), (error) => sqlState(error) === "42501", sql);
  await refused(
    "INSERT INTO task_outbox (webhook, task, state, \"group\", stop) VALUES ('ends', 1, 'DONE', 'x', now())",
  );
  await refused("SELECT FROM task_outbox");
  await refused("SELECT FROM task_webhooks");
  await refused("UPDATE task_webhooks SET states = '{}'");
  await refused("CREATE TRIGGER own AFTER INSERT ON task FOR EACH ROW EXECUTE FUNCTION task_webhook()");
  const id = await insertTask(other, "SELECT 1", { plan: "infinity" });
  await other.query("UPDATE task SET state = 'STOP' WHERE id = $1", [id]);
  assert.equal((await receiver.endOf(id)).body.type, "task.stop");
  await emptied();
  await program.stop();
  await other.end();
  await client.query(`DROP OWNED BY ${producer}; DROP ROLE ${producer}`);
  assert.ok(!(await databaseText(client)).includes(hush), owner);
});

/** Everything in which a URL could be. */
async function databaseText(reader: Client): Promise<string> {
  const rows = await rowsOf<{ text: string }>(
    reader,
    `SELECT t::text AS text FROM task_webhooks AS t UNION ALL SELECT t::text FROM task_outbox AS t
     UNION ALL SELECT prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace
     UNION ALL SELECT description FROM pg_description`,
  );
  return rows.map(({ text }) => text).join("\n");
}
