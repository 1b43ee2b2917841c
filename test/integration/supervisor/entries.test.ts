import assert from "node:assert/strict";
import { after, it } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { freePort } from "../../../src/embedded/port.js";
import { connectTo, withConnectionTo } from "../../support/connectTo.js";
import { createDatabase } from "../../support/database.js";
import { PgTask, startPgTask } from "../../support/pgTask.js";
import { RestartableServer } from "../../support/restartableServer.js";
import { valueOf, waitForRow } from "../../support/tasks.js";

const first = await RestartableServer.create(await freePort());
await first.start();
const second = await createDatabase("empty");

/**
 * Runs a task of this table.
 *
 * @returns the user, database and port with which the task ran
 */
async function runLocation(url: string, table: string): Promise<string> {
  return await withConnectionTo(url, async (client) => {
    const id = await valueOf(
      client,
      `INSERT INTO ${table} (input)
       VALUES ('SELECT session_user || '' '' || current_database() || '' ''
                       || current_setting(''port'')') RETURNING id`,
    );
    const ended = `SELECT output FROM ${table} WHERE id = $1 AND state = 'DONE'`;
    return (await waitForRow<{ output: string }>(client, ended, [id])).output;
  });
}

/** Does the same in a database of the first server. */
async function runInFirst(database: string, table: string): Promise<string> {
  const url = new URL(first.url);
  url.pathname = `/${database}`;
  return await runLocation(url.href, table);
}

it("serves several roles, databases, schemas and tables, also on another server", async () => {
  const pgTask = await startPgTask({
    url: first.url,
    "pg_task.create": true,
    "pg_task.json": [
      { data: "shop" },
      { data: "shop", table: "Second Task" },
      { data: "shop", schema: "apart", table: "third" },
      { data: "books", user: "shop" },
      { user: "clerk", data: "clerks" },
      // The schema and table are the same as above, but on the other server.
      { url: second.url, schema: "apart", table: "third" },
      { url: second.url },
    ],
  });
  assert.deepEqual(pgTask.linesMatching(/unavailable, retrying$/), []);
  const here = first.port;
  assert.equal(await runInFirst("shop", "task"), `shop shop ${here}`);
  assert.equal(await runInFirst("shop", '"Second Task"'), `shop shop ${here}`);
  assert.equal(await runInFirst("shop", "apart.third"), `shop shop ${here}`);
  assert.equal(await runInFirst("books", "task"), `shop books ${here}`);
  assert.equal(await runInFirst("clerks", "task"), `clerk clerks ${here}`);
  const { user, database, port } = second.target;
  const there = `${user} ${database} ${port}`;
  assert.equal(await runLocation(second.url, "apart.third"), there);
  assert.equal(await runLocation(second.url, "task"), there);
  await pgTask.stop();
});

it("serves the other entries while the server of one is down", async () => {
  const pgTask = await startPgTask({
    url: second.url,
    "pg_conf.restart": 1,
    "pg_task.json": [{ url: second.url }, { url: first.url }],
  });
  await first.stop();
  await pgTask.line("manager unavailable, retrying");
  await runLocation(second.url, "task");
  await first.start();
  await pgTask.line("serving table", 3);
  assert.match(await runLocation(first.url, "task"), /^postgres postgres /);
  await pgTask.stop();
});

it("starts many entries a few at a time, and keeps one connection for each and one for itself", async () => {
  const [tables, atOnce] = [12, 2];
  const observer = await connectTo(first.url);
  after(() => observer.end());
  const config = {
    url: first.url,
    "pg_task.create": true,
    "pg_conf.fetch": atOnce,
    // None may fall asleep before the last one has started.
    "pg_task.idle": 1_000_000,
    "pg_task.json": Array.from({ length: tables }, (_, index) => ({ data: "many", table: `task_${index}` })),
  };
  const pgTask = new PgTask();
  pgTask.launch(config);
  let maxStarting = 0;
  while (pgTask.linesMatching("ready").length === 0) {
    const { rows } = await observer.query<{ starting: number }>(
      `SELECT count(*)::integer AS starting FROM pg_stat_activity
       WHERE application_name = 'pg_conf' AND pid NOT IN
         (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted)`,
    );
    maxStarting = Math.max(maxStarting, rows[0]?.starting ?? 0);
    await pause(2);
  }
  // The server counts a connection until its backend has ended, a little longer than pg-task does.
  assert.ok(maxStarting <= 2 * atOnce, `${maxStarting} concurrent connections besides the managers'`);
  assert.deepEqual(pgTask.linesMatching(/unavailable, retrying$/), [], "no entry hinders another");
  await waitForRow(
    observer,
    `SELECT FROM pg_stat_activity WHERE application_name ~ '^pg_(conf|work|task)( |$)'
     HAVING count(*) = $1 AND count(*) FILTER (WHERE application_name ~ '^pg_work many|^pg_work public task_') = $2`,
    [tables + 1, tables],
  );
  for (const index of [0, 7, tables - 1]) assert.match(await runInFirst("many", `task_${index}`), /^many many /);

  // A reload reaches all managers, and no more of them connect at the same time than at the start.
  await observer.query("ALTER DATABASE many SET pg_task.sleep = 700");
  await pgTask.reload();
  let maxRenewing = 0;
  while (pgTask.linesMatching("settings changed").length < tables) {
    const { rows } = await observer.query<{ managers: number }>(
      "SELECT count(*)::integer AS managers FROM pg_stat_activity WHERE application_name ~ '^pg_work '",
    );
    maxRenewing = Math.max(maxRenewing, (rows[0]?.managers ?? 0) - tables);
    await pause(2);
  }
  assert.ok(maxRenewing <= atOnce, `${maxRenewing} concurrent connections besides the managers' own`);
  await pgTask.stop();
});
