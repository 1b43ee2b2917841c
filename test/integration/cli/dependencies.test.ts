import assert from "node:assert/strict";
import { describe } from "node:test";
import { cli, cliOnTerminal, envOf, type CliResult } from "../../support/cli.js";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { createRole } from "../../support/taskTables.js";

const database = await createDatabase();
const client = await database.connect();
const env = { DATABASE_URL: database.url, NO_COLOR: "1" };
const run = (...args: readonly string[]): Promise<CliResult> => cli(args, { env });
const onTerminal = (...args: readonly string[]) => cliOnTerminal(args, { env });

await client.query(`
  INSERT INTO task (id, input, plan, state, error) VALUES (1, 'SELECT 1', 'infinity', 'PLAN', NULL),
    (2, 'SELECT 2', 'infinity', 'FAIL', E'ERROR:  no\\nSTATEMENT:  x'), (3, E'SELECT \\x1b[31m3', 'infinity', 'PLAN', NULL);
  INSERT INTO task (id, input, after, upon) VALUES (5, 'SELECT 5', '{1,3}', NULL), (6, 'SELECT 6', '{1,2,4,5}', 'end');
  INSERT INTO task (id, input, after, "group") VALUES (7, 'SELECT 7', '{6}', 'last');
  INSERT INTO task (id, input, after) SELECT n, 'SELECT n', '{3}' FROM generate_series(11, 30) AS n`);

/** Returns the lines that a terminal shows below a title. */
async function section(title: RegExp, ...args: readonly string[]): Promise<string[]> {
  const { shown } = await cliOnTerminal(["show", ...args], { env, columns: 60 });
  const all = shown.split("\n");
  const first = all.findIndex((line) => title.test(line));
  assert.notEqual(first, -1, shown);
  const rest = all.slice(first + 1);
  return rest.slice(0, rest.indexOf(""));
}

/** Returns the ids of the tasks that `list --waiting-for` lists. */
const listed = async (...args: readonly string[]): Promise<string[]> =>
  (await run("list", "--waiting-for", ...args)).stdout.split("\n").flatMap((line) => line.split("\t", 1)[0] || []);

describe("pg-task show", () => {
  test("shows the task to a role that may read only the task table, and says what is missing", async () => {
    const role = await createRole(client, `reader_${database.target.database}`);
    await client.query(`GRANT SELECT ON task TO ${role}`);
    const { stdout, stderr, code } = await cli(["show", "6", "--json"], { env: envOf(database, role) });
    assert.equal(code, 0);
    assert.equal(JSON.parse(stdout).dependencies, null);
    assert.match(stderr, /what waits for what is not shown.*GRANT SELECT ON "public"\."task_after"/);
  });

  test("shows on a terminal what a task waits for", async () => {
    assert.deepEqual(await section(/^waits for 2 of 4 tasks, upon end$/, "6"), [
      "├─ 2 FAIL  ERROR:  no",
      "├─ 1 PLAN  SELECT 1",
      "├─ 5 PLAN  SELECT 5",
      "│  ├─ 1 PLAN (see above)  SELECT 1",
      "│  └─ 3 PLAN  SELECT \\x1b[31m3",
      "└─ 4 deleted (counts as done)",
    ]);
  });

  test("shows on a terminal what waits for a task, and how many more there are", async () => {
    const title = /^tasks that wait or have waited for it$/;
    assert.deepEqual(await section(title, "1"), [
      "├─ 5 PLAN  SELECT 5",
      "│  └─ 6 PLAN (upon end)  SELECT 6",
      "│     └─ 7 PLAN  SELECT 7",
      "└─ 6 PLAN (upon end, see above)  SELECT 6",
    ]);
    const short = await section(title, "3");
    assert.deepEqual([short.length, short.at(-1)], [13, "└─ … 11 more (see --full)"]);
    assert.equal((await section(title, "3", "--full")).length, 23);
  });

  test("truncates a line that is wider than the terminal", async () => {
    await client.query(`INSERT INTO task (id, input, after) VALUES (40, 'SELECT 1', '{39}')`);
    await client.query(`INSERT INTO task (id, input, plan) VALUES (39, repeat('x', 500), 'infinity')`);
    assert.deepEqual(await section(/^waits for 1 of 1 task, upon done$/, "40"), [`└─ 39 PLAN  ${"x".repeat(47)}…`]);
  });

  test("prints the graph in JSON", async () => {
    const { dependencies } = JSON.parse((await run("show", "7", "--json")).stdout);
    assert.deepEqual(
      dependencies.nodes.map(({ id }: { id: string }) => Number(id)),
      [7, 6, 2, 1, 5, 4, 3],
    );
    assert.deepEqual(dependencies.edges[0], { task: "7", predecessor: "6", status: "waits" });
    assert.equal(dependencies.formerComplete, true);
  });

  test("shows no tree for a task without dependencies", async () => {
    await client.query("INSERT INTO task (id, input, plan) VALUES (50, 'SELECT 1', 'infinity')");
    const { shown } = await onTerminal("show", "50");
    assert.doesNotMatch(shown, /wait/);
  });
});

describe("pg-task list --waiting-for", () => {
  test("lists the tasks that wait for a task", async () => {
    assert.deepEqual(await listed("1"), ["6", "5"]);
    assert.deepEqual(await listed("6", "--group", "last"), ["7"]);
    assert.deepEqual(await listed("6", "--group", "first"), []);
    assert.deepEqual(await listed("3", "--limit", "2"), ["30", "29"]);
    assert.deepEqual(await listed("3", "--limit", "2", "--before", "12"), ["11", "5"]);
    assert.deepEqual(await listed("404404"), []);
  });

  test("refuses anything but an id, and schedules", async () => {
    const bad = await run("list", "--waiting-for", "one");
    assert.deepEqual([bad.code, /expected a task id, got "one"/.test(bad.stderr)], [2, true], bad.stderr);
    const both = await run("list", "--waiting-for", "1", "--schedules");
    assert.match(both.stderr, /--waiting-for cannot be combined with --schedules/);
  });
});
