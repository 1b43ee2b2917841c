import assert from "node:assert/strict";
import { after, it } from "node:test";
import { freePort } from "../../../src/embedded/port.js";
import { connectTo } from "../../support/connectTo.js";
import { RestartableServer } from "../../support/restartableServer.js";
import { startProcess } from "../../support/process.js";
import { waitForRow } from "../../support/waitFor.js";

const tables = 100;

const first = await RestartableServer.create(await freePort());
await first.start({ max_connections: 200 });
const second = await RestartableServer.create(await freePort());
await second.start();

const urlTo = (server: RestartableServer, database: string): string => {
  const url = new URL(server.url);
  url.pathname = `/${database}`;
  return url.href;
};

/**
 * Runs a task of this table.
 *
 * @returns the user, database and port with which the task ran
 */
async function runLocation(server: RestartableServer, database: string, table: string): Promise<string> {
  const client = await connectTo(urlTo(server, database));
  try {
    const { rows } = await client.query<{ id: string }>(
      `INSERT INTO ${table} (input)
       VALUES ('SELECT session_user || '' '' || current_database() || '' ''
                       || current_setting(''port'')') RETURNING id`,
    );
    const { output } = await waitForRow<{ output: string }>(
      client,
      `SELECT output FROM ${table} WHERE id = $1 AND state = 'DONE'`,
      [rows[0]?.id],
    );
    return output;
  } finally {
    await client.end();
  }
}

it("serves several roles, databases, schemas and tables, also on another server", async () => {
  const other = new URL(second.url);
  const program = await startProcess({
    config: {
      url: first.url,
      "pg_task.create": true,
      "pg_task.json": [
        { data: "shop" },
        { data: "shop", table: "Second Task" },
        { data: "shop", schema: "apart", table: "third" },
        { data: "books", user: "shop" },
        { user: "clerk", data: "clerks" },
        // The schema and table are the same as above, but on the other server.
        { url: other.href, schema: "apart", table: "third" },
        { url: other.href },
      ],
    },
  });
  await program.line("ready");
  assert.deepEqual(program.linesMatching(/unavailable, retrying$/), []);
  const here = first.port;
  assert.equal(await runLocation(first, "shop", "task"), `shop shop ${here}`);
  assert.equal(await runLocation(first, "shop", '"Second Task"'), `shop shop ${here}`);
  assert.equal(await runLocation(first, "shop", "apart.third"), `shop shop ${here}`);
  assert.equal(await runLocation(first, "books", "task"), `shop books ${here}`);
  assert.equal(await runLocation(first, "clerks", "task"), `clerk clerks ${here}`);
  const there = `postgres postgres ${second.port}`;
  assert.equal(await runLocation(second, "postgres", "apart.third"), there);
  assert.equal(await runLocation(second, "postgres", "task"), there);
  assert.equal((await program.end()).code, 0);
});

it("serves the other entries while the server of one is down", async () => {
  const program = await startProcess({
    config: {
      url: first.url,
      "pg_conf.restart": 1,
      "pg_task.json": [{ data: "shop" }, { url: second.url }],
    },
  });
  await program.line("ready");
  await second.stop();
  await program.line("manager unavailable, retrying");
  assert.match(await runLocation(first, "shop", "task"), /^shop shop /);
  await second.start();
  await program.line("serving table", 3);
  assert.match(await runLocation(second, "postgres", "task"), /^postgres postgres /);
  assert.equal((await program.end()).code, 0);
});

it(`starts ${tables} entries a few at a time, and keeps one connection for each and one for itself`, async () => {
  const observer = await connectTo(first.url);
  after(() => observer.end());
  const entries = Array.from({ length: tables }, (_, index) => ({
    data: "many",
    table: `task_${index}`,
  }));
  const config = { url: first.url, "pg_task.create": true, "pg_conf.fetch": 5, "pg_task.json": entries };
  const program = await startProcess({ config });
  let maxStarting = 0;
  while (program.linesMatching("ready").length === 0) {
    const { rows } = await observer.query<{ starting: number }>(
      `SELECT count(*)::integer AS starting FROM pg_stat_activity
       WHERE application_name = 'pg_conf' AND pid NOT IN
         (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted)`,
    );
    maxStarting = Math.max(maxStarting, rows[0]?.starting ?? 0);
  }
  // The server counts a connection until its backend has ended, a little longer than pg-task does.
  assert.ok(maxStarting <= 2 * 5, `${maxStarting} concurrent connections besides the managers'`);
  assert.deepEqual(program.linesMatching(/unavailable, retrying$/), [], "no entry hinders another");
  await waitForRow(
    observer,
    `SELECT FROM pg_stat_activity WHERE application_name ~ '^pg_(conf|work|task)( |$)'
     HAVING count(*) = $1 AND count(*) FILTER (WHERE application_name ~ '^pg_work many|^pg_work public task_') = $2`,
    [tables + 1, tables],
  );
  for (const index of [0, 57, tables - 1]) {
    assert.match(await runLocation(first, "many", `task_${index}`), /^many many /);
  }

  // A reload reaches all managers, and no more of them connect at the same time than at the start.
  await observer.query("ALTER DATABASE many SET pg_task.sleep = 700");
  program.child.kill("SIGHUP");
  await program.line("configuration reloaded");
  let maxRenewing = 0;
  while (program.linesMatching("settings changed").length < tables) {
    const { rows } = await observer.query<{ managers: number }>(
      "SELECT count(*)::integer AS managers FROM pg_stat_activity WHERE application_name ~ '^pg_work '",
    );
    maxRenewing = Math.max(maxRenewing, (rows[0]?.managers ?? 0) - tables);
  }
  assert.ok(maxRenewing <= 5, `${maxRenewing} concurrent connections besides the managers' own`);
  assert.deepEqual(await program.end(), { code: 0, signal: null });
});
