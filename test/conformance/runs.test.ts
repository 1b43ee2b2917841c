import assert from "node:assert/strict";
import { test } from "../support/limitedTest.js";
import { until, only, type NewTask } from "../support/tasks.js";
import { serve } from "../support/serve.js";

const { database, client, tasks } = await serve({}, "CREATE TABLE effect (what text)");
const { database: name, user } = database.target;

const kept = { delete: false };
const csv = { delimiter: ",", quote: '"', escape: '"', ...kept };

/** Each documented statement about inputs and outputs: an input, its output, and part of the first line of its error. */
const cases: readonly (readonly [
  sentence: string,
  input: string,
  output: string | null,
  more?: Omit<NewTask, "input">,
  error?: string,
])[] = [
  ["SELECT", "SELECT 1", "1"],
  ["DML", "INSERT INTO effect VALUES ('a')", "INSERT 0 1"],
  ["DDL", "CREATE TABLE made (a integer)", "CREATE TABLE"],
  ["VACUUM", "VACUUM effect", "VACUUM"],
  ["CREATE DATABASE", `CREATE DATABASE ${name}_more`, "CREATE DATABASE"],
  ["DROP DATABASE", `DROP DATABASE ${name}_more`, "DROP DATABASE"],
  ["DO", "DO $$ BEGIN PERFORM 1; END $$", "DO"],
  ["BEGIN…COMMIT", "BEGIN; SELECT 1; COMMIT", "BEGIN\n1\nCOMMIT"],
  ["an empty input", "", null, kept],
  [
    "columns are joined by the delimiter, below their names",
    "SELECT 1 AS a, 2 AS b UNION ALL SELECT 3, 4",
    "a\tb\n1\t2\n3\t4",
  ],
  ["statements are joined by newline", "SELECT 1; SELECT 2", "1\n2"],
  ["a null is shown as the text in the column null", "SELECT NULL", "nil", { null: "nil" }],
  [
    "strings and headers are quoted, and quotes in them escaped",
    `SELECT 1 AS n, 'a"b' AS "h""h", 1.5::numeric AS m, true AS t`,
    `"n","h""h","m","t"\n1,"a""b",1.5,t`,
    csv,
  ],
  ["without string, all values are quoted", "SELECT 1 AS n, 'a' AS s", `"n","s"\n"1","a"`, { ...csv, string: false }],
  ["a SELECT without rows gives no output", "SELECT 1 AS a, 2 AS b WHERE false", null, kept],
  ["an empty string is not null", "SELECT ''", ""],
  ["rows produced before an error are kept", "SELECT 1; SELECT 1/0", "1", {}, "ERROR:  division by zero"],
  ["a task that fails without output has an empty string", "SELECT 1/0", "", {}, "ERROR:  division by zero"],
  ["COPY … TO STDOUT gives its data and no tag", "COPY (SELECT 1, 2) TO STDOUT", "1\t2"],
  ["COPY … FROM STDIN is not supported", "COPY effect FROM STDIN", "", {}, "COPY FROM STDIN is not supported"],
];

for (const [sentence, input, output, more, error] of cases) {
  test(`§6 ${sentence}`, async () => {
    const row = await tasks.run(input, more ?? {});
    assert.equal(row.output, output, row.error ?? "");
    assert.equal(row.state, error === undefined ? "DONE" : "FAIL");
    if (error === undefined) assert.equal(row.error, null);
    else assert.ok((row.error ?? "").split("\n")[0]?.includes(error), row.error ?? "");
  });
}

test("§6 several statements are one transaction unless they say otherwise", async () => {
  await tasks.run("INSERT INTO effect VALUES ('undone'); SELECT 1/0");
  await tasks.run("BEGIN; INSERT INTO effect VALUES ('kept'); COMMIT; SELECT 1/0");
  assert.equal(await tasks.value("SELECT what FROM effect WHERE what IN ('undone', 'kept')"), "kept");
});

test("§6 a transaction left open is committed at the end", async () => {
  const row = await tasks.run("BEGIN; INSERT INTO effect VALUES ('left open')");
  assert.deepEqual([row.state, row.output], ["DONE", "BEGIN\nINSERT 0 1\nCOMMIT"]);
  assert.equal((await client.query("SELECT FROM effect WHERE what = 'left open'")).rowCount, 1);
});

test("§6 a domain is quoted as its base type", async () => {
  await client.query("CREATE DOMAIN whole AS int; CREATE DOMAIN word AS text");
  const row = await tasks.run("SELECT 1::whole, 'a'::word", { quote: "'", header: false });
  assert.equal(row.output, "1\t'a'");
});

test("§6 a deferred constraint that fails at the end leaves the tags of the statements before it", async () => {
  await client.query("CREATE TABLE late (i int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)");
  const plain = await tasks.run("INSERT INTO late SELECT 1 FROM generate_series(1, 2)");
  const open = await tasks.run("BEGIN; INSERT INTO late VALUES (1), (1)");
  assert.deepEqual([plain.state, plain.output], ["FAIL", "INSERT 0 2"]);
  assert.deepEqual([open.state, open.output], ["FAIL", "BEGIN\nINSERT 0 2"]);
});

test("§6 start and stop are the database's clock right before and after the run", async () => {
  const row = await tasks.run("SELECT clock_timestamp() AT TIME ZONE 'UTC', pg_sleep(0.05)", {
    header: false,
    delimiter: ",",
  });
  const seen = (row.output ?? "").split(",")[0]?.replace(" ", "T") ?? "";
  assert.ok((row.start ?? "") <= seen && seen < (row.stop ?? ""));
});

test("§6 a task runs as the entry's user, in its database, with that user's search_path", async () => {
  const input = "SELECT current_user, session_user, current_database(), current_setting('search_path')";
  const row = await tasks.run(input, { header: false, delimiter: "|" });
  assert.equal(row.output, `${user}|${user}|${name}|"$user", public`);
});

test("§6 a task sees its id, schema, table and group", async () => {
  const row = await tasks.run(
    `SELECT current_setting('pg_task.id'), current_setting('pg_task.schema'), current_setting('pg_task.table'), current_setting('pg_task.group')`,
    { header: false, delimiter: "|", group: "it's visible" },
  );
  assert.equal(row.output, `${row.id}|public|task|it's visible`);
});

test("§6 a timeout limits the whole run to the millisecond", async () => {
  const input = "SELECT pg_sleep(0.1); SELECT pg_sleep(0.1); SELECT pg_sleep(60)";
  const row = await tasks.run(input, { timeout: "250 ms" });
  assert.equal(row.error, `ERROR:  canceling statement due to statement timeout\nSTATEMENT:  ${input}`);
});

test("§6 an error has its detail, hint and context each on its own line", async () => {
  const input = "DO $$ BEGIN RAISE 'broken' USING DETAIL = 'some', HINT = E'two\\nlines'; END $$";
  const row = await tasks.run(input);
  assert.equal(
    row.error,
    `ERROR:  broken\nDETAIL:  some\nHINT:  two\n\tlines\nCONTEXT:  PL/pgSQL function inline_code_block line 1 at RAISE\nSTATEMENT:  ${input}`,
  );
});

test("§2 delete removes a row only if its output and error are both null", async () => {
  const [silent = "", failed = "", said = ""] = await tasks.insert(
    { input: "SELECT WHERE false", delete: true },
    { input: "SELECT 1/0", delete: true },
    { input: "SELECT 1", delete: true },
  );
  await tasks.ended(failed, said);
  await until(client, `SELECT FROM task WHERE id = ${silent}`, (rows) => rows.length === 0);
});

test("§3 parent is null for a task that no task inserted", async () => {
  const { rows } = await client.query<{ parent: string | null }>(
    "INSERT INTO task (input, state) VALUES ('', 'STOP') RETURNING parent",
  );
  assert.equal(only(rows).parent, null);
});
