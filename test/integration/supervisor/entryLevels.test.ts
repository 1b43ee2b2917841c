import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { EventEmitter, once } from "node:events";
import type { Socket } from "node:net";
import { after, it } from "node:test";
import { eventually } from "../../support/tasks.js";
import { createDatabase, onServer } from "../../support/database.js";
import { startRawServer } from "../../support/listen.js";
import { startPgTask, PgTask } from "../../support/pgTask.js";

const database = await createDatabase("empty");
const client = await database.connect();
const name = database.target.database;
const role = `location_${randomBytes(4).toString("hex")}`;
after(() => onServer((server) => server.query(`DROP ROLE ${role}`)));
await client.query(
  `CREATE ROLE ${role} LOGIN; GRANT CREATE ON DATABASE ${name} TO ${role};
   GRANT CREATE ON SCHEMA public TO ${role}`,
);

const entry = { data: name, user: role };
const onDatabase = `DATABASE ${name}`;

const start = async (config: object): Promise<PgTask> =>
  await startPgTask({ url: database.url, "pg_task.json": [entry], ...config });

/** Waits until exactly these tables ("schema table") of the database have managers. */
async function waitForManagers(...tables: string[]): Promise<void> {
  await eventually<{ application_name: string }>(
    client,
    `SELECT application_name FROM pg_stat_activity
     WHERE datname = current_database() AND application_name LIKE 'pg\\_work %' ORDER BY 1`,
    (rows) => rows.map((row) => row.application_name).join() === tables.map((table) => `pg_work ${table} 1000`).join(),
  );
}

/**
 * Runs a task of a table. Waits until the table exists, because the manager shows the table's name before it creates
 * the table.
 */
async function runIn(table: string): Promise<void> {
  await eventually(client, `SELECT FROM pg_trigger WHERE tgrelid = to_regclass('${table}')`, (rows) => rows.length > 0);
  await client.query(`INSERT INTO ${table} (input) VALUES ('SELECT 1')`);
  await eventually(client, `SELECT FROM ${table} WHERE state = 'DONE'`, (rows) => rows.length === 1);
  await client.query(`DELETE FROM ${table}`);
}

/** Executes the statements one by one, because together they would be one transaction. */
async function alter(...statements: string[]): Promise<void> {
  for (const statement of statements) await client.query(statement);
}

/** Starts a server that accepts connections but never answers. */
async function startSilentServer(): Promise<{
  readonly url: string;
  /** Resolves when there are this many connections. Fails if there are more. */
  readonly connections: (count: number) => Promise<void>;
}> {
  const accepted = new EventEmitter();
  const sockets: Socket[] = [];
  const port = await startRawServer((socket) => {
    sockets.push(socket);
    accepted.emit("connection");
  });
  return {
    url: `postgresql://nobody@127.0.0.1:${port}/none?connect_timeout=0&sslmode=disable`,
    connections: async (count) => {
      while (sockets.length < count) await once(accepted, "connection");
      assert.equal(sockets.length, count);
    },
  };
}

it("the location of the table comes from the entry, the role in the database, the role, the database, then the file", async () => {
  await client.query("CREATE SCHEMA of_file");
  await client.query(`GRANT ALL ON SCHEMA of_file TO ${role}`);
  const pgTask = await start({ "pg_task.schema": "of_file", "pg_task.table": "job" });
  await waitForManagers("of_file job");

  await alter(
    `ALTER ${onDatabase} SET pg_task.schema = 'of_database'`,
    `ALTER ${onDatabase} SET pg_task."table" = 'work'`,
  );
  await pgTask.reload();
  await waitForManagers("of_database work");
  await runIn("of_database.work");
  await alter(`ALTER ROLE ${role} SET pg_task.schema = 'of_role'`);
  await pgTask.reload();
  await waitForManagers("of_role work");
  await alter(`ALTER ROLE ${role} IN ${onDatabase} SET pg_task.schema = 'of_both'`);
  await pgTask.reload();
  await waitForManagers("of_both work");
  await runIn("of_both.work");

  const own = { ...entry, schema: "of_entry" };
  await pgTask.reload({ url: database.url, "pg_task.json": [own] });
  await waitForManagers("of_entry work");
  await alter(`ALTER ${onDatabase} RESET pg_task."table"`);
  await pgTask.reload();
  await waitForManagers("of_entry task");
  await pgTask.reload({
    url: database.url,
    "pg_task.json": [own, { ...own, table: "second" }],
  });
  await waitForManagers("of_entry second", "of_entry task");
  await alter(
    `ALTER ${onDatabase} RESET ALL`,
    `ALTER ROLE ${role} RESET ALL`,
    `ALTER ROLE ${role} IN ${onDatabase} RESET ALL`,
  );
  await pgTask.stop();
});

it("finishes running tasks before a manager moves to another table", async () => {
  const pgTask = await start({});
  await waitForManagers("public task");
  await client.query("SELECT pg_advisory_lock(4711)");
  await client.query("INSERT INTO public.task (input) VALUES ('SELECT pg_advisory_lock(4711)')");
  // The state would not be enough: a task is WORK as soon as it is claimed, and a manager that stops releases tasks
  // that do not run yet.
  await eventually(
    client,
    "SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted",
    (rows) => rows.length === 1,
  );
  await client.query(`ALTER ROLE ${role} SET pg_task."table" = 'other'`);
  await pgTask.reload();
  const moves = await pgTask.line("table location changed, replacing the manager");
  assert.equal(moves["table"], "other");
  await client.query("SELECT pg_advisory_unlock(4711)");
  await waitForManagers("public other");
  const { rows } = await client.query("SELECT state, error FROM task");
  assert.deepEqual(rows, [{ state: "DONE", error: null }]);
  await client.query(`ALTER ROLE ${role} RESET ALL`);
  await pgTask.stop();
});

it("ignores an invalid table name set for the role, with a warning", async () => {
  const long = "x".repeat(64);
  await client.query(`ALTER ROLE ${role} SET pg_task."table" = '${long}'`);
  const pgTask = await start({ "pg_task.table": "job" });
  await waitForManagers("public job");
  const line = await pgTask.line("invalid server setting ignored, file's value used");
  assert.deepEqual([line["setting"], line["value"], line["used"]], ["pg_task.table", long, "job"]);
  await client.query(`ALTER ROLE ${role} RESET ALL`);
  await pgTask.stop();
});

it("warns of a zone that the server does not know, at the start, after a reload and after ALTER ROLE", async () => {
  const message = "time zone unknown to the server, rules that need it are refused";
  const pgTask = await start({ "pg_task.zone": "Europe/Belrin" });
  const first = await pgTask.line(message);
  const of = { setting: "pg_task.zone", level: "warn" };
  const { setting, level, value, from } = first;
  assert.deepEqual({ setting, level, value, from }, { ...of, value: "Europe/Belrin", from: "configuration" });
  await pgTask.line("ready");
  const file = { url: database.url, "pg_task.json": [entry] };
  await pgTask.reload({ ...file, "pg_task.zone": "Europe/Rmoe" });
  const reloaded = await pgTask.line(message, 2);
  assert.deepEqual([reloaded["value"], reloaded["from"]], ["Europe/Rmoe", "configuration"]);
  await pgTask.reload({ ...file, "pg_task.zone": "Europe/Rome" });
  await pgTask.line("configuration reloaded", 2);
  await client.query(`ALTER ROLE ${role} SET pg_task.zone = 'Moon/Sea'`);
  await pgTask.reload();
  const altered = await pgTask.line(message, 3);
  assert.deepEqual([altered["value"], altered["from"]], ["Moon/Sea", `ROLE ${role}`]);
  await client.query(`ALTER ROLE ${role} RESET ALL`);
  await pgTask.stop();
});

it("says that a separator of two characters, set for the role, is cut off", async () => {
  await client.query(`ALTER ROLE ${role} SET pg_task.delimiter = '||'`);
  const pgTask = await start({});
  const line = await pgTask.line("server setting longer than one character, the rest is cut off");
  assert.deepEqual([line["setting"], line["value"], line["used"]], ["pg_task.delimiter", "||", "|"]);
  await client.query(`ALTER ROLE ${role} RESET ALL`);
  await pgTask.stop();
});

it("the control database's pg_conf.fetch limits how many entries start at once, also after a reload", async () => {
  const silent = await startSilentServer();
  const pgTask = new PgTask();
  pgTask.launch({
    url: database.url,
    "pg_conf.fetch": 1,
    "pg_task.json": [1, 2, 3].map((n) => ({ url: silent.url, schema: `s${n}` })),
  });
  await silent.connections(1);
  await alter(`ALTER ${onDatabase} SET pg_conf."fetch" = 2`);
  await pgTask.reload();
  const changed = await pgTask.line("control database settings changed");
  assert.deepEqual(changed["settings"], { "pg_conf.fetch": 2 });
  await silent.connections(2);
  await alter(`ALTER ${onDatabase} SET pg_conf."fetch" = 'few'`);
  await pgTask.reload();
  const refused = await pgTask.line("invalid server setting ignored, file's value used");
  assert.deepEqual([refused["setting"], refused["value"], refused["used"]], ["pg_conf.fetch", "few", 1]);
  await pgTask.line("control database settings changed", 2);
  await alter(`ALTER ${onDatabase} SET pg_conf."fetch" = 3`);
  await pgTask.reload();
  await silent.connections(3);
  await alter(`ALTER ${onDatabase} RESET ALL`);
  await pgTask.stop();
});
