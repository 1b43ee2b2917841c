import assert from "node:assert/strict";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";

const { tasks } = await serve(
  {},
  `CREATE TABLE effect (what text);
  CREATE TABLE late (i int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)`,
);

const effects = (what: string) => tasks.value<number>("SELECT count(*)::integer FROM effect WHERE what = $1", [what]);

const insert = (what: string) => `INSERT INTO effect VALUES ('${what}')`;

for (const [sentence, before, after] of [
  ["a plain input", "", ""],
  ["a role without rights", "", "; SET ROLE pg_monitor"],
  ["an empty search_path", "", "; SET search_path = ''"],
  ["a transaction left open", "BEGIN; ", ""],
  ["savepoints", "SAVEPOINT a; ", "; SAVEPOINT b"],
  ["a lock on the task table", "LOCK TABLE task; ", ""],
  ["all advisory locks released", "SELECT pg_advisory_unlock_all(); ", ""],
  ["a COMMIT of its own", "", "; COMMIT"],
  ["a ROLLBACK at the beginning", "ROLLBACK; ", ""],
  ["a transaction that becomes read-only", "", "; SET TRANSACTION READ ONLY"],
] as const) {
  test(`${sentence}: DONE, with exactly one effect`, async () => {
    const row = await tasks.run(`${before}${insert(sentence)}${after}`, { delete: false });
    assert.deepEqual([row.state, row.error, await effects(sentence)], ["DONE", null, 1]);
  });
}

test("a task that fails at COMMIT is FAIL and has no effect", async () => {
  const row = await tasks.run(`${insert("late")}; INSERT INTO late VALUES (1), (1)`);
  assert.deepEqual([row.state, await effects("late")], ["FAIL", 0]);
  assert.match(row.error ?? "", /duplicate key value/);
});

test("a task that is not atomic has its effect once", async () => {
  const row = await tasks.run(insert("bare"), { atomic: false, delete: false });
  assert.deepEqual([row.state, await effects("bare")], ["DONE", 1]);
});

test("a thousand tasks of one group have their effects in order, each once", async () => {
  const ended = await tasks.endedOf(
    `INSERT INTO task (input, "delete") SELECT 'INSERT INTO effect SELECT ''many''', false
     FROM generate_series(1, 1000) RETURNING id`,
  );
  assert.ok(ended.every(({ state }) => state === "DONE"));
  assert.equal(await effects("many"), 1000);
  const starts = ended.map(({ start }) => start ?? "");
  assert.deepEqual(starts.toSorted(), starts);
});
