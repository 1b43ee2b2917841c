import assert from "node:assert/strict";
import { describe } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import type { Client } from "../../../src/shared/postgres/client.js";
import { cli, envOf, failsWith, type CliResult } from "../../support/cli.js";
import { configFolder } from "../../support/configFile.js";
import { connectTo } from "../../support/connectTo.js";
import { createDatabase, dropDatabase, onServer } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { PgTask } from "../../support/pgTask.js";
import { waitForRow } from "../../support/tasks.js";
import { createRole } from "../../support/taskTables.js";
import { token, Web } from "../../support/web.js";

const [pgTask, standby] = [new PgTask(), new PgTask()];
const control = await createDatabase("empty");
const shop = await createDatabase();
const books = await createDatabase();
const name = shop.target.database;
const configuration = {
  url: control.url,
  "pg_task.sleep": 50,
  "pg_conf.grace": 1_000,
  "pg_task.json": [
    { data: name, user: shop.target.user },
    { data: books.target.database, user: books.target.user },
  ],
};
const cwd = await configFolder(configuration);
const run = (...args: readonly string[]): Promise<CliResult> => cli(args, { cwd });

/** Uses a connection to the released database only as long as it is needed. */
async function inShop<T>(work: (client: Client) => Promise<T>): Promise<T> {
  const client = await connectTo(shop.url);
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

const runInShop = (input: string): Promise<unknown> =>
  inShop(async (client) => {
    await client.query("INSERT INTO task (input) VALUES ($1)", [input]);
    await waitForRow(client, "SELECT FROM task WHERE input = $1 AND state = 'DONE'", [input]);
  });

/** Runs until somebody releases the database. */
const untilReleasing = `DO $$ BEGIN
  WHILE NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'pg-task release') LOOP
    PERFORM pg_sleep(0.02), pg_stat_clear_snapshot();
  END LOOP;
END $$`;

const sessions = (): Promise<number> =>
  onServer(async (client) => {
    const { rows } = await client.query<{ count: number }>(
      "SELECT count(*)::integer AS count FROM pg_stat_activity WHERE datname = $1 AND application_name ~ '^pg_'",
      [name],
    );
    return rows[0]?.count ?? 0;
  });

const entryOf = (database: string) => pgTask.entries.find((each) => each.database === database);

describe("pg-task release and serve", () => {
  test("a database can be copied and renamed once it is released, and is served again", async () => {
    await pgTask.start(configuration);
    await inShop(async (client) => {
      await client.query("INSERT INTO task (input, data, \"group\") VALUES ($1, 'ends', 'a'), ($2, 'lasts', 'b')", [
        untilReleasing,
        "SELECT pg_sleep(600)",
      ]);
      await waitForRow(client, "SELECT FROM task WHERE state = 'WORK' HAVING count(*) = 2");
    });
    const { code, stdout, stderr } = await run("release", name, "--reason", "copy for tests");
    assert.deepEqual({ code, stderr }, { code: 0, stderr: "" });
    assert.match(stdout, /is released: pg-task has no connection to it/);
    assert.equal(await sessions(), 0);

    const rows = await inShop(async (client) => {
      await client.query("INSERT INTO task (input) VALUES ('SELECT 2')");
      const { rows: found } = await client.query<{ state: string }>(
        "SELECT state::text FROM task WHERE data IN ('ends', 'lasts') ORDER BY data",
      );
      return found;
    });
    assert.deepEqual(
      rows.map(({ state }) => state),
      ["DONE", "PLAN"],
      "one has ended in the grace period, the other runs again later",
    );
    await onServer(async (client) => {
      await client.query(`CREATE DATABASE ${name}_copy TEMPLATE ${name}`);
      await dropDatabase(client, `${name}_copy`);
      await client.query(`ALTER DATABASE ${name} RENAME TO ${name}_old`);
      await client.query(`ALTER DATABASE ${name}_old RENAME TO ${name}`);
    });

    await inShop((client) => client.query("DELETE FROM task WHERE data = 'lasts'"));
    assert.match((await run("serve", name)).stdout, /is served again/);
    await inShop((client) => waitForRow(client, "SELECT FROM task WHERE input = 'SELECT 2' AND state = 'DONE'"));
    assert.match((await run("serve", name)).stdout, /was not released/);
  });

  test("the commands and the process say so, the other database is served, and a restart changes nothing", async () => {
    await run("release", name, "--reason", "copy for tests");
    assert.match((await run("release", name)).stdout, /was released already: pg-task has no connection/);
    const said = /has been released for maintenance since .* \(copy for tests\): pg-task serve /;
    const status = await run("status");
    assert.equal(status.code, 0);
    assert.match(status.stdout, /released {3}database .* has been released/);
    const { stdout: doctor } = await run("doctor");
    assert.match(doctor, new RegExp(`^warn\\t${name} public\\.task\\treleased\\t`, "m"));
    assert.doesNotMatch(doctor, /has other entries/);
    for (const command of [
      ["list", "--entry", name],
      ["why", "1", "--entry", name],
    ])
      assert.match((await run(...command)).stderr, said);
    assert.equal(entryOf(name)?.state, "waiting");
    assert.equal(entryOf(name)?.code, "CONNECTION_RELEASED");
    assert.match(entryOf(name)?.reason ?? "", said);

    await pgTask.stop();
    await pgTask.start(configuration);
    assert.equal(entryOf(name)?.code, "CONNECTION_RELEASED");
    assert.equal(entryOf(books.target.database)?.state, "working");
    assert.equal(await sessions(), 0);
  });

  test("a standby that takes over leaves it alone, until it is to be served again", async () => {
    await standby.start(configuration);
    await pgTask.stop();
    await standby.line("ready");
    assert.equal(await sessions(), 0);
    await run("serve", name);
    await runInShop("SELECT 3");
  });

  test("all databases can be released, also while no pg-task runs", async () => {
    await standby.stop();
    for (const database of [name, books.target.database])
      assert.match((await run("release", database)).stdout, /no pg-task runs now/);
    await pgTask.start(configuration);
    assert.ok(pgTask.entries.every(({ code }) => code === "CONNECTION_RELEASED"));
    for (const database of [name, books.target.database]) await run("serve", database);
    await runInShop("SELECT 4");
  });

  test("a table that sleeps deeply is released, too", async () => {
    await pgTask.stop();
    const more = Array.from({ length: 17 }, (_, n) => ({ data: name, user: shop.target.user, table: `task_${n}` }));
    await pgTask.start({
      ...configuration,
      "pg_task.sleep": 10,
      "pg_task.idle": 1,
      "pg_task.json": [...configuration["pg_task.json"], ...more],
    });
    while (entryOf(name)?.state !== "sleeping") await pause(20);
    await run("release", name);
    assert.equal(await sessions(), 0);
    await run("serve", name);
  });

  test("the page says so, and holds no connection either", async () => {
    await pgTask.stop();
    await pgTask.start({ ...configuration, "pg_http.listen": "127.0.0.1:0", "pg_http.token": token });
    const web = await Web.connect(pgTask);
    const read = async (): Promise<
      { database: string; error: string | null; manager: { state: string; code: string } }[]
    > => JSON.parse((await web.request("/api/tables")).text).tables;
    assert.deepEqual(
      (await read()).map(({ error }) => error),
      [null, null],
    );
    await run("release", name);
    const table = (await read()).find(({ database }) => database === name);
    assert.match(table?.error ?? "", /has been released for maintenance/);
    assert.equal(table?.manager.code, "CONNECTION_RELEASED");
    assert.equal(await sessions(), 0);
    await run("serve", name);
    while ((await read()).some(({ error, manager }) => error !== null || manager.state === "starting")) await pause(20);
  });

  test("refuses the control database, an unknown one, and a role that may not keep the list", async () => {
    await failsWith(
      run("release", "nowhere"),
      2,
      new RegExp(`no entry has a database nowhere; expected one of: .*${name}`),
    );
    const own = await cli(["release", control.target.database], { env: { DATABASE_URL: control.url } });
    assert.equal(own.code, 2);
    assert.match(own.stderr, /is the control database, to which pg-task has to stay connected: stop pg-task instead/);
    const role = await createRole(await control.connect(), `release_${control.target.database}`);
    const lacking = { ...configuration, url: envOf(control, role).DATABASE_URL, "pg_conf.name": "other" };
    const refused = await cli(["release", name], { cwd: await configFolder(lacking) });
    assert.equal(refused.code, 4);
    assert.match(refused.stderr, /pg_task_released in the control database .* give role/);
    const owner = await control.connect();
    await owner.query(
      `CREATE SCHEMA trap; CREATE TABLE trap.pg_task_released (); ALTER TABLE trap.pg_task_released OWNER TO ${role}`,
    );
    const trapped = await configFolder({ ...configuration, "pg_task.schema": "trap", "pg_conf.name": "third" });
    await failsWith(cli(["release", name], { cwd: trapped }), 4, /is no table of pg-task's: it belongs to role/);
  });
});
