import assert from "node:assert/strict";
import { after, it } from "node:test";
import { freePort } from "../../../src/embedded/port.js";
import { connectTo } from "../../support/connectTo.js";
import { OwnServer } from "../../support/ownServer.js";
import { startProcess } from "../../support/process.js";
import { waitForRow } from "../../support/waitFor.js";

const tables = 100;

const first = await OwnServer.at(await freePort());
await first.start({ max_connections: 200 });
const second = await OwnServer.at(await freePort());
await second.start();

const urlTo = (server: OwnServer, database: string): string => {
  const url = new URL(server.url);
  url.pathname = `/${database}`;
  return url.href;
};

/** Runs a task in that table and says who ran it where. */
async function whoRuns(server: OwnServer, database: string, table: string): Promise<string> {
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
      "pg_task.json": [
        { data: "shop" },
        { data: "shop", table: "Second Task" },
        { data: "shop", schema: "apart", table: "third" },
        { data: "books", user: "shop" },
        { user: "clerk", data: "clerks" },
        // The same database, schema and table as one above, on the other server.
        { url: other.href, schema: "apart", table: "third" },
        { url: other.href },
      ],
    },
  });
  await program.line("ready");
  assert.deepEqual(program.said(/waits$/), []);
  const here = first.port;
  assert.equal(await whoRuns(first, "shop", "task"), `shop shop ${here}`);
  assert.equal(await whoRuns(first, "shop", '"Second Task"'), `shop shop ${here}`);
  assert.equal(await whoRuns(first, "shop", "apart.third"), `shop shop ${here}`);
  assert.equal(await whoRuns(first, "books", "task"), `shop books ${here}`);
  assert.equal(await whoRuns(first, "clerks", "task"), `clerk clerks ${here}`);
  const there = `postgres postgres ${second.port}`;
  assert.equal(await whoRuns(second, "postgres", "apart.third"), there);
  assert.equal(await whoRuns(second, "postgres", "task"), there);
  assert.equal((await program.end()).code, 0);
});

it("goes on with the other entries while one's server is away", async () => {
  const program = await startProcess({
    config: {
      url: first.url,
      "pg_conf.restart": 1,
      "pg_task.json": [{ data: "shop" }, { url: second.url }],
    },
  });
  await program.line("ready");
  await second.stop();
  await program.line("manager waits");
  assert.match(await whoRuns(first, "shop", "task"), /^shop shop /);
  await second.start();
  await program.line("manager works", 3);
  assert.match(await whoRuns(second, "postgres", "task"), /^postgres postgres /);
  assert.equal((await program.end()).code, 0);
});

it(`starts ${tables} entries a few at a time, and holds a connection for each and one more`, async () => {
  const observer = await connectTo(first.url);
  after(() => observer.end());
  const entries = Array.from({ length: tables }, (_, index) => ({
    data: "many",
    table: `task_${index}`,
  }));
  const config = { url: first.url, "pg_conf.fetch": 5, "pg_task.json": entries };
  const program = await startProcess({ config });
  let most = 0;
  while (program.said("ready").length === 0) {
    const { rows } = await observer.query<{ beyond: number }>(
      `SELECT count(*)::integer AS beyond FROM pg_stat_activity
       WHERE application_name = 'pg_conf' AND pid NOT IN
         (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted)`,
    );
    most = Math.max(most, rows[0]?.beyond ?? 0);
  }
  assert.ok(most <= 5, `${most} connections at once beside the managers'`);
  assert.deepEqual(program.said(/waits$/), [], "none is in another's way");
  await waitForRow(
    observer,
    `SELECT FROM pg_stat_activity WHERE application_name ~ '^pg_(conf|work|task)( |$)'
     HAVING count(*) = $1 AND count(*) FILTER (WHERE application_name ~ '^pg_work many|^pg_work public task_') = $2`,
    [tables + 1, tables],
  );
  for (const index of [0, 57, tables - 1]) {
    assert.match(await whoRuns(first, "many", `task_${index}`), /^many many /);
  }

  // All of them are told at a reload, and no more of them connect at once than at the start.
  await observer.query("ALTER DATABASE many SET pg_task.sleep = 700");
  program.child.kill("SIGHUP");
  await program.line("configuration reloaded");
  let renewing = 0;
  while (program.said("settings changed").length < tables) {
    const { rows } = await observer.query<{ managers: number }>(
      "SELECT count(*)::integer AS managers FROM pg_stat_activity WHERE application_name ~ '^pg_work '",
    );
    renewing = Math.max(renewing, (rows[0]?.managers ?? 0) - tables);
  }
  assert.ok(renewing <= 5, `${renewing} connections at once beside the managers' own`);
  assert.deepEqual(await program.end(), { code: 0, signal: null });
});
