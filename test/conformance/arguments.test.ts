import assert from "node:assert/strict";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { eventually, only, type TaskRow } from "../support/tasks.js";

const { database, client, tasks } = await serve(
  { "pg_task.delete": false },
  `
  CREATE TABLE effect (id bigint, what text);
  CREATE TABLE parent (id integer PRIMARY KEY);
  CREATE TABLE child (id integer REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
  CREATE FUNCTION given() RETURNS text LANGUAGE sql AS $$ SELECT current_setting('pg_task.args', true) $$;
  CREATE FUNCTION warn(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '%', $1; RETURN $1; END $$;
  CREATE PROCEDURE note(what text) LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO effect VALUES (1, what); COMMIT; INSERT INTO effect VALUES (2, what); END $$`,
);

/** The ways in which a run can be sent: in one write, step by step, without a transaction, to another server. */
const ways = {
  pipelined: {},
  stepwise: { timeout: "1 hour" },
  unwrapped: { atomic: false, timeout: "1 hour" },
  remote: { remote: `dbname=${database.target.database}` },
} as const;

const first = (text: string | null): string => (text ?? "").split("\n")[0] ?? "";

let groups = 0;
const run = async (input: string, args: unknown, more: object = {}): Promise<TaskRow> =>
  await tasks.run(input, {
    args: args === undefined ? null : JSON.stringify(args),
    group: `g ${(groups += 1)}`,
    ...more,
  });

/** The output of an input, or the first line of its error. */
const outcome = async (...parameters: Parameters<typeof run>): Promise<string> => {
  const { state, output, error } = await run(...parameters);
  return state === "DONE" ? (output ?? "") : first(error);
};

/** Inputs and args with their output or the first line of their error. */
const cases: readonly (readonly [input: string, args: unknown, result: string | RegExp])[] = [
  ["SELECT $1 || '!'", ["it's"], "it's!"],
  ["SELECT $1::integer + $2::integer AS sum, $3 AS text", [1, "2", "x"], "sum\ttext\n3\tx"],
  ["SELECT repeat($1, $2)", ["ab", 2], "abab"],
  ["SELECT $1::numeric", [1e300], "1" + "0".repeat(300)],
  ["SELECT $1::boolean, $2::text IS NULL AS missing", [true, null], "bool\tmissing\nt\tt"],
  ["SELECT $1::jsonb->'a', $2::jsonb->>0", [{ a: [1] }, ["b"]], "?column?\t?column?\n[1]\tb"],
  ["SELECT $1->>'id'", { id: 7 }, "7"],
  ["SELECT jsonb_typeof($1)", {}, "object"],
  ["SELECT $1 AS a, '$2' AS b /* $3 */", ["x"], "a\tb\nx\t$2"],
  ["SELECT n, $1 FROM generate_series(1, 2) AS n", ["x"], "n\t?column?\n1\tx\n2\tx"],
  ["SELECT 1 WHERE $1 = 'y'", ["x"], ""],
  ["INSERT INTO effect SELECT 0, $1 FROM generate_series(1, 3)", ["x"], "INSERT 0 3"],
  ["SELECT warn($1)", ["x"], "x"],
  [" -- only $1\n", ["x"], ""],
  ["SELECT 1", ["x", "y"], "1"],
  ["SELECT given()", [1, "x"], '[1, "x"]'],
  ["SELECT 1; SELECT current_setting('pg_task.args')::jsonb->>'id'", { id: "a'b\\c" }, "1\na'b\\c"],
  ["SELECT current_setting('pg_task.args')::jsonb->>'id' = $1->>'id'", { id: "ä😀" }, "t"],
  ["SELECT $2", ["x"], /could not determine data type of parameter \$1/],
  ["SELECT $1", [], /bind message supplies 0 parameters, but prepared statement "" requires 1/],
  ["SELECT $1", ["x", "y"], /bind message supplies 2 parameters, but prepared statement "" requires 1/],
  ["SELECT $1, $2", { a: 1 }, /could not determine data type of parameter \$2|bind message supplies 1 parameters/],
  ["SELECT 1; SELECT $1", ["x"], /cannot insert multiple commands into a prepared statement/],
  ["SELECT 1 / $1", [0], /^ERROR: {2}division by zero$/],
  ["SELECT $1::integer", ["x"], /invalid input syntax for type integer: "x"/],
  ["COPY effect FROM STDIN WHERE what = $1", ["x"], /^ERROR: {2}/],
];

for (const [way, more] of Object.entries(ways)) {
  test(`args are the values of the input's parameters (${way})`, async () => {
    const found = await Promise.all(cases.map(async ([input, args]) => await outcome(input, args, more)));
    for (const [index, [input, args, result]] of cases.entries()) {
      const what = `${input} ${JSON.stringify(args)}`;
      if (typeof result === "string") assert.equal(found[index], result, what);
      else assert.match(found[index] ?? "", result, what);
    }
  });

  test(`an input without args fails as before (${way})`, async () => {
    assert.equal(await outcome("SELECT $1", undefined, more), "ERROR:  there is no parameter $1 at character 8");
    assert.equal(await outcome("SELECT nullif(given(), '')", undefined, more), "\\N");
  });
}

test("numbers keep all their digits, and strings are not shortened", async () => {
  const digits = "12345678901234567890.123456789012345678900";
  const args = `[${digits}, "${"x".repeat(1_000_000)}"]`;
  const { output } = await tasks.run("SELECT $1, length($2)", { args, group: "digits" });
  assert.equal(output, `?column?\tlength\n${digits}\t1000000`);
});

test("the next task of the session does not see the args", async () => {
  for (const more of [{}, { timeout: "1 hour" }, { count: 10, save: true }]) {
    const ids = await tasks.insert(
      { input: "SELECT given(), pg_backend_pid()", args: '["first"]', group: "next", plan: "infinity", ...more },
      { input: "SELECT nullif(given(), ''), pg_backend_pid()", group: "next", plan: "infinity", ...more },
    );
    await client.query("UPDATE task SET plan = now() WHERE id = ANY ($1)", [ids]);
    const [before, next] = (await tasks.ended(...ids)).map(({ output }) => output?.split("\n")[1]?.split("\t"));
    assert.deepEqual([before?.[0], next?.[0]], ['["first"]', "\\N"]);
    assert.equal(before?.[1], next?.[1]);
  }
});

test("queued tasks get their own args", async () => {
  const ended = await tasks.endedOf(
    `INSERT INTO task (input, args, "group")
     SELECT 'INSERT INTO effect SELECT current_setting(''pg_task.id'')::bigint, concat($1::text, given())',
       CASE WHEN n % 3 = 0 THEN jsonb_build_object('n', n) ELSE jsonb_build_array(n) END, 'queued'
     FROM generate_series(1, 300) AS n RETURNING id`,
  );
  assert.deepEqual([...new Set(ended.map(({ output, error }) => output ?? error))], ["INSERT 0 1"]);
  const { rows: wrong } = await client.query(
    `SELECT t.id FROM task AS t LEFT JOIN effect AS e ON e.id = t.id WHERE "group" = 'queued'
     GROUP BY t.id HAVING count(e.id) <> 1 OR min(e.what) <> concat(CASE WHEN jsonb_typeof(t.args) = 'object' THEN t.args::text ELSE t.args->>0 END, t.args)`,
  );
  assert.deepEqual(wrong, []);
});

test("a procedure with parameters may commit", async () => {
  assert.equal(await outcome("CALL note($1)", ["committed"]), "CALL");
  const { rows } = await client.query("SELECT id FROM effect WHERE what = 'committed' ORDER BY id");
  assert.deepEqual(rows, [{ id: "1" }, { id: "2" }]);
});

test("an error at the end of the transaction leaves no tag in the output", async () => {
  for (const more of [{ atomic: false, timeout: "1 hour" }, { atomic: false }, {}]) {
    const withArgs = await run("INSERT INTO child VALUES ($1)", [1], more);
    const without = await run("INSERT INTO child VALUES (1)", undefined, more);
    assert.match(withArgs.error ?? "", /violates foreign key constraint/);
    assert.deepEqual([withArgs.output, first(withArgs.error)], [without.output, first(without.error)]);
  }
});

test("a run with parameters can be stopped, and ends at its timeout", async () => {
  const { error } = await run("SELECT pg_sleep($1)", [60], { timeout: "50 ms" });
  assert.equal(first(error), "ERROR:  canceling statement due to statement timeout");
  const id = await tasks.add("SELECT pg_sleep(60), $1::text", { args: '["x"]', group: "stopped" });
  await tasks.sleeping(id);
  await client.query("UPDATE task SET state = 'STOP' WHERE id = $1", [id]);
  assert.equal(only(await tasks.until([id], (row) => row.stop !== null)).state, "STOP");
});

test("a successor inherits the args", async () => {
  const { id } = await run("SELECT $1", ["again"], { repeat: "1000 years" });
  await eventually(client, `SELECT args FROM task WHERE parent = ${id}`);
  const { rows } = await client.query(`SELECT args, state FROM task WHERE parent = ${id}`);
  assert.deepEqual(rows, [{ args: ["again"], state: "PLAN" }]);
});

test("args that are changed while the task is queued are those of the run", async () => {
  const [blocker = "", id = ""] = await tasks.insert(
    { input: "SELECT pg_sleep(60)", group: "changed" },
    { input: "SELECT $1", args: '["before"]', group: "changed" },
  );
  await tasks.sleeping(blocker);
  await client.query(`UPDATE task SET args = '["after"]' WHERE id = $1`, [id]);
  await client.query("UPDATE task SET state = 'STOP' WHERE id = $1", [blocker]);
  assert.equal((await tasks.end(id)).output, "after");
});

test("the query of a rule gets no args", async () => {
  const id = await tasks.add("SELECT $1", {
    args: '["x"]',
    rule: "SELECT now() WHERE nullif(given(), '') IS NULL",
    group: "query",
  });
  assert.equal((await tasks.end(id)).output, "x");
});
