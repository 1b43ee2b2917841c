import assert from "node:assert/strict";
import { identifier, literal } from "../../../src/shared/postgres/quoting.js";
import { clusterSchema } from "../../../src/web/api/schemas.js";
import { cli } from "../../support/cli.js";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { PgTask } from "../../support/pgTask.js";
import { eventually, Tasks } from "../../support/tasks.js";
import { token, Web } from "../../support/web.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
const env = { DATABASE_URL: database.url };
await client.query("CREATE TABLE effect (what text)");

/** Settings that are not tested, and why. */
const excluded: Readonly<Record<string, string>> = {
  local_preload_libraries: "connecting would fail",
  session_preload_libraries: "connecting would fail",
  transaction_isolation: "applies to a transaction, not a session",
  transaction_read_only: "applies to a transaction, not a session",
  transaction_deferrable: "applies to a transaction, not a session",
  default_transaction_read_only: "tasks could not write; has its own test",
  commit_delay: "only makes everything slow",
  temp_buffers: "needs more memory than a server has",
};

/** Values for text settings, and for numeric settings whose extreme values would make every task fail. */
const fixedValues: Readonly<Record<string, string>> = {
  DateStyle: "SQL, DMY",
  TimeZone: "Asia/Kathmandu",
  application_name: "odd",
  client_encoding: "LATIN1",
  default_tablespace: "pg_default",
  default_text_search_config: "pg_catalog.simple",
  dynamic_library_path: "/nowhere:$libdir",
  idle_in_transaction_session_timeout: "10min",
  idle_session_timeout: "1s",
  lc_messages: "C",
  lock_timeout: "10min",
  max_stack_depth: "200kB",
  "plpgsql.extra_errors": "all",
  "plpgsql.extra_warnings": "all",
  restrict_nonsystem_relation_kind: "view",
  search_path: "nowhere, pg_catalog",
  // With `replica`, a session would fire no triggers, but the tests need the triggers.
  session_replication_role: "local",
  statement_timeout: "10min",
  temp_tablespaces: "pg_default",
  transaction_timeout: "10min",
};

interface Setting {
  readonly name: string;
  readonly type: string;
  readonly value: string;
  readonly min: string | null;
  readonly max: string | null;
  readonly labels: string[] | null;
}

async function settable(): Promise<Setting[]> {
  await client.query("LOAD 'plpgsql'");
  const { rows } = await client.query<Setting>(
    `SELECT name, vartype AS type, setting AS value, min_val AS min, max_val AS max, enumvals AS labels
     FROM pg_settings WHERE context IN ('user', 'superuser')`,
  );
  return rows.filter(({ name }) => !(name in excluded));
}

/**
 * Returns a value other than the default: a different one in each round if there are several. Null for a text setting
 * without a fixed value.
 */
function oddValue(setting: Setting, round: number): string | null {
  const { name, type, value, min, max, labels } = setting;
  const fixed = fixedValues[name];
  if (fixed !== undefined) return fixed;
  if (type === "bool") return value === "on" ? "off" : "on";
  if (type === "enum") return labels?.[round % labels.length] ?? null;
  if (type === "string") return null;
  return round % 2 === 0 ? min : max;
}

const onDatabase = `DATABASE ${database.target.database}`;

async function set(values: ReadonlyMap<string, string>): Promise<void> {
  const statements = [...values].map(
    ([name, value]) =>
      `ALTER ${onDatabase} SET ${name.split(".").map(identifier).join(".")} = ${name === "search_path" || name === "temp_tablespaces" ? value : literal(value)}`,
  );
  await client.query(statements.join(";\n"));
}

/** Starts pg-task, uses most of its features and stops it. */
async function exerciseFeatures(writes: string): Promise<void> {
  const from = pgTask.linesMatching("page").length;
  await pgTask.start({
    url: database.url,
    "pg_task.sleep": 200,
    "pg_http.listen": "127.0.0.1:0",
    "pg_http.token": token,
  });
  const web = await Web.connect(pgTask, token, from + 1);

  const ids = await tasks.insert(
    { input: writes },
    { input: writes, group: "other" },
    { input: "SELECT 7 AS a, NULL AS b" },
    { input: "SELECT 8; SELECT pg_sleep(0.2)" },
    { input: "SELECT 1", plan: "2020-01-01", active: "1 minute" },
    { input: writes, repeat: "1 hour" },
    { input: writes, max: -50, group: "rests" },
    { input: writes, timeout: "1 minute" },
    { input: writes, atomic: false },
    { input: "SELECT 9", count: 3, group: "counted" },
    { input: "SELECT 10", save: true, live: "1 minute", group: "lives" },
  );
  const rows = await tasks.ended(...ids);
  const outcomes = rows.map(({ state, error }) => `${state} ${error}`);
  const expected = ids.map((_, index) => (index === 4 ? "GONE ERROR:  task not active" : "DONE null"));
  assert.deepEqual(outcomes, expected);
  const { rowCount } = await client.query("SELECT FROM task WHERE parent = $1", [ids[5]]);
  assert.equal(rowCount, 1);
  assert.equal(rows[2]?.output, "a\tb\n7\t\\N");

  const { tables } = await web.get(clusterSchema, "/api/tables");
  const list = await web.request(`/api/tables/${tables[0]?.id}/tasks`);
  assert.equal(list.status, 200, list.text);
  for (const args of [["add", "SELECT 11"], ["list"], ["status"], ["groups"], ["show", ids[0] ?? ""]]) {
    const { code, stderr } = await cli(args, { env });
    assert.deepEqual([args[0], code, stderr], [args[0], 0, ""]);
  }
  await eventually(
    client,
    "SELECT FROM task WHERE input = 'SELECT 11' AND state = 'DONE'",
    (found) => found.length === 1,
  );
  await pgTask.stop();
  await client.query("DELETE FROM task");
}

for (let round = 0; round < 5; round += 1) {
  test(`tasks run with any settings of the database, round ${round}`, async () => {
    const values = new Map<string, string>();
    for (const setting of await settable()) {
      const value = oddValue(setting, round);
      if (value !== null) values.set(setting.name, value);
    }
    assert.ok(values.size > 100);
    await set(values);
    await exerciseFeatures("INSERT INTO public.effect VALUES ('x')");
    await client.query(`ALTER ${onDatabase} RESET ALL`);
  });
}

test("with default_transaction_read_only for the role, tasks that only read run and repeat", async () => {
  await client.query(`ALTER ROLE CURRENT_USER IN ${onDatabase} SET default_transaction_read_only = on`);
  await exerciseFeatures("SELECT 1");
  await client.query(`ALTER ROLE CURRENT_USER IN ${onDatabase} RESET ALL`);
});

test("while default_transaction_read_only is on for the database, tasks wait; then they run", async () => {
  await client.query(`ALTER ${onDatabase} SET default_transaction_read_only = on`);
  const from = pgTask.lines.length;
  await pgTask.start({ url: database.url, "pg_task.sleep": 200 });
  const [id = ""] = await tasks.insert({ input: "INSERT INTO public.effect VALUES ('waited')" });
  const refused = await pgTask.logged(({ msg }) => msg === "cannot open a session, tasks wait", from);
  assert.match(String(refused["reason"]), /its sessions are read-only \(default_transaction_read_only is on\)/);
  await client.query(`ALTER ${onDatabase} RESET ALL`);
  const [row] = await tasks.ended(id);
  assert.deepEqual([row?.state, row?.error], ["DONE", null]);
  await pgTask.stop();
  await client.query("DELETE FROM task");
});
