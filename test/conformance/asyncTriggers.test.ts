import assert from "node:assert/strict";
import { beforeEach } from "node:test";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";

const { database, client, tasks } = await serve({ "pg_task.delete": false }, "SET search_path = public");

interface Change {
  readonly op: string;
  readonly schema: string;
  readonly table: string;
  readonly new: Row | readonly Row[] | null;
  readonly old: Row | readonly Row[] | null;
}

interface Row {
  readonly id: number;
  readonly account: number;
}

/** The rows of a change that a statement trigger has found. */
function rowsOf(rows: Change["new"]): readonly Row[] {
  assert.ok(rows !== null && "length" in rows);
  return rows;
}

/** Creates a table in another schema, with a column that was dropped and one that is generated. */
async function createTable(rest = ""): Promise<void> {
  await client.query("ROLLBACK");
  await client.query(`
    DROP SCHEMA IF EXISTS shop CASCADE;
    CREATE SCHEMA shop;
    CREATE TABLE shop."Payment" (id integer, gone text, account integer, twice integer GENERATED ALWAYS AS (account * 2) STORED) ${rest};
    ALTER TABLE shop."Payment" DROP COLUMN gone`);
}

beforeEach(() => createTable());

/** SQL that creates a trigger on the table. The tasks are planned for infinity, so that nothing runs. */
const trigger = (when: string, more = "", name = "changed"): string =>
  `CREATE TRIGGER ${name} ${when} EXECUTE FUNCTION task_async('SELECT $1', 'plan', 'infinity'${more})`;

/** Executes statements in a transaction, and returns the args of the tasks that they have planned. */
async function planned(...statements: readonly string[]): Promise<Change[]> {
  const last = await tasks.value("SELECT coalesce(max(id), 0) FROM task");
  await client.query("BEGIN");
  for (const statement of statements) await client.query(statement);
  await client.query("COMMIT");
  const found = await tasks.rows<{ args: Change }>("SELECT args FROM task WHERE id > $1 ORDER BY id", [last]);
  return found.map(({ args }) => args);
}

const place = { schema: "shop", table: "Payment" } as const;
const row = (id: number, account: number) => ({ id, account, twice: 2 * account });

test("a row trigger plans a task for each changed row", async () => {
  await client.query(trigger(`AFTER INSERT OR UPDATE OR DELETE ON shop."Payment" FOR EACH ROW`));
  assert.deepEqual(
    await planned(
      `INSERT INTO shop."Payment" VALUES (1, 10), (2, 20)`,
      `UPDATE shop."Payment" SET account = 11 WHERE id = 1`,
      `DELETE FROM shop."Payment" WHERE id = 2`,
      `UPDATE shop."Payment" SET account = 0 WHERE id = 3`,
    ),
    [
      { op: "INSERT", ...place, new: row(1, 10), old: null },
      { op: "INSERT", ...place, new: row(2, 20), old: null },
      { op: "UPDATE", ...place, new: row(1, 11), old: row(1, 10) },
      { op: "DELETE", ...place, new: null, old: row(2, 20) },
    ],
  );
});

test("a statement trigger plans one task for all changed rows, and none if no row was changed", async () => {
  await client.query(`
    ${trigger(`AFTER INSERT ON shop."Payment" REFERENCING NEW TABLE AS "New Rows" FOR EACH STATEMENT`, "", "i")};
    ${trigger(`AFTER UPDATE ON shop."Payment" REFERENCING NEW TABLE AS b OLD TABLE AS a FOR EACH STATEMENT`, "", "u")};
    ${trigger(`AFTER DELETE ON shop."Payment" REFERENCING OLD TABLE AS a FOR EACH STATEMENT`, "", "d")};
    ${trigger(`AFTER TRUNCATE ON shop."Payment" FOR EACH STATEMENT`, "", "t")}`);
  assert.deepEqual(
    await planned(
      `INSERT INTO shop."Payment" VALUES (1, 10), (2, 20)`,
      `UPDATE shop."Payment" SET account = account + 1`,
      `UPDATE shop."Payment" SET account = 0 WHERE id = 3`,
      `INSERT INTO shop."Payment" SELECT 1, 1 WHERE false`,
      `DELETE FROM shop."Payment" WHERE id = 2`,
      `DELETE FROM shop."Payment" WHERE id = 2`,
      `TRUNCATE shop."Payment"`,
    ),
    [
      { op: "INSERT", ...place, new: [row(1, 10), row(2, 20)], old: null },
      { op: "UPDATE", ...place, new: [row(1, 11), row(2, 21)], old: [row(1, 10), row(2, 20)] },
      { op: "DELETE", ...place, new: null, old: [row(2, 21)] },
      { op: "TRUNCATE", ...place, new: null, old: null },
    ],
  );
});

test("a statement trigger without transition tables plans one task", async () => {
  await client.query(trigger(`AFTER INSERT ON shop."Payment" FOR EACH STATEMENT`));
  assert.deepEqual(await planned(`INSERT INTO shop."Payment" VALUES (1, 10), (2, 20)`), [
    { op: "INSERT", ...place, new: null, old: null },
  ]);
});

test("the rows of a large statement are divided among tasks of 1,000 rows, and each old row is beside its new one", async () => {
  await client.query(
    trigger(`AFTER UPDATE ON shop."Payment" REFERENCING NEW TABLE AS b OLD TABLE AS a FOR EACH STATEMENT`),
  );
  const changes = await planned(
    `INSERT INTO shop."Payment" SELECT n, n FROM generate_series(1, 2500) AS n`,
    `UPDATE shop."Payment" SET account = -account`,
  );
  const pairs = changes.map((change) => {
    const [old, now] = [rowsOf(change.old), rowsOf(change.new)];
    assert.equal(old.length, now.length);
    for (const [index, { id, account }] of now.entries()) assert.deepEqual(old[index], row(id, -account));
    return now.map(({ id }) => id);
  });
  assert.deepEqual(
    pairs.map(({ length }) => length),
    [1000, 1000, 500],
  );
  assert.deepEqual(
    pairs.flat(),
    Array.from({ length: 2500 }, (_, index) => index + 1),
  );
});

test("wide rows are divided among tasks so that args stay below their limit", async () => {
  await client.query(`
    ALTER TABLE shop."Payment" ADD COLUMN note text;
    ${trigger(`AFTER INSERT ON shop."Payment" REFERENCING NEW TABLE AS b FOR EACH STATEMENT`)}`);
  const changes = await planned(
    `INSERT INTO shop."Payment" (id, account, note) SELECT n, n, repeat(E'\\x01', 50000) FROM generate_series(1, 10) AS n`,
  );
  assert.deepEqual(
    changes.map((change) => rowsOf(change.new).length),
    [3, 3, 3, 1],
  );
  await assert.rejects(client.query(`INSERT INTO shop."Payment" (note) VALUES (repeat('x', 1048576))`), {
    message: "args is larger than 1 MB",
    code: "22023",
  });
});

test("the arguments after the input are columns and values, of which expressions read the args", async () => {
  await client.query(`
    CREATE FUNCTION shop.urgency(integer) RETURNS integer LANGUAGE sql AS 'SELECT $1 * 3';
    CREATE TRIGGER plain AFTER INSERT ON shop."Payment" FOR EACH ROW EXECUTE FUNCTION task_async('SELECT 1', 'group', 'billing');
    CREATE TRIGGER several AFTER INSERT ON shop."Payment" FOR EACH ROW EXECUTE FUNCTION task_async(
      'SELECT ''it''''s \\''', 'group', '=concat(''account '', $1->''new''->>''account'') -- a comment',
      'max', '=shop.urgency(($1->''new''->>''id'')::integer)', 'timeout', '5 min', 'plan', '=now() + interval ''5 s''', 'data', 'a''b\\c')`);
  await client.query("BEGIN");
  await client.query(`INSERT INTO shop."Payment" VALUES (4, 10)`);
  const { rows } = await client.query(
    `SELECT input, "group", max, timeout::text AS timeout, plan = now() + interval '5 s' AS later, data, args->'new' AS row
     FROM task WHERE xmin::text = txid_current()::text ORDER BY id`,
  );
  await client.query("ROLLBACK");
  const common = { row: row(4, 10) };
  assert.deepEqual(rows, [
    { input: "SELECT 1", group: "billing", max: 0, timeout: "00:00:00", later: false, data: null, ...common },
    {
      input: "SELECT 'it''s \\'",
      group: "account 10",
      max: 12,
      timeout: "00:05:00",
      later: true,
      data: "a'b\\c",
      ...common,
    },
  ]);
});

test("a value may be a group that begins like an expression, or null", async () => {
  await client.query(`
    CREATE TRIGGER plain AFTER INSERT ON shop."Payment" FOR EACH ROW
      EXECUTE FUNCTION task_async('SELECT 1', 'plan', 'infinity', 'group', '=''=x''', 'data', '=NULL')`);
  await planned(`INSERT INTO shop."Payment" VALUES (4, 10)`);
  const { rows } = await client.query(`SELECT "group", data FROM task ORDER BY id DESC LIMIT 1`);
  assert.deepEqual(rows, [{ group: "=x", data: null }]);
});

test("the trigger does not depend on the search_path of the session", async () => {
  await client.query(trigger(`AFTER INSERT ON shop."Payment" FOR EACH ROW`));
  await client.query(`
    CREATE TABLE shop.task (LIKE public.task);
    CREATE FUNCTION shop.concat(text, text) RETURNS text LANGUAGE sql AS 'SELECT 1 / 0; SELECT $1'`);
  const changes = await planned(
    "SET LOCAL search_path = shop, pg_catalog",
    `INSERT INTO "Payment" VALUES (1, 10)`,
    "RESET search_path",
  );
  assert.equal(changes.length, 1);
});

test("a row trigger on a partitioned table fires for the rows of its partitions, and a statement trigger for all", async () => {
  await createTable("PARTITION BY RANGE (id)");
  await client.query(`
    CREATE TABLE shop.low PARTITION OF shop."Payment" FOR VALUES FROM (0) TO (100);
    CREATE TABLE shop.high PARTITION OF shop."Payment" FOR VALUES FROM (100) TO (200);
    ${trigger(`AFTER INSERT ON shop."Payment" FOR EACH ROW`, "", "a")};
    ${trigger(`AFTER INSERT ON shop."Payment" REFERENCING NEW TABLE AS b FOR EACH STATEMENT`, "", "b")}`);
  assert.deepEqual(await planned(`INSERT INTO shop."Payment" VALUES (1, 10), (101, 20)`), [
    { op: "INSERT", schema: "shop", table: "low", new: row(1, 10), old: null },
    { op: "INSERT", schema: "shop", table: "high", new: row(101, 20), old: null },
    // The server does not show the values of generated columns here.
    {
      op: "INSERT",
      ...place,
      new: [
        { ...row(1, 10), twice: null },
        { ...row(101, 20), twice: null },
      ],
      old: null,
    },
  ]);
});

test("a constraint trigger plans its task when the transaction commits", async () => {
  await client.query(
    `CREATE CONSTRAINT TRIGGER late AFTER INSERT ON shop."Payment" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
       EXECUTE FUNCTION task_async('SELECT 1', 'group', 'late')`,
  );
  assert.equal((await planned(`INSERT INTO shop."Payment" VALUES (1, 10)`)).length, 1);
});

test("changes that are rolled back plan nothing, and those of other transactions do", async () => {
  await client.query(
    `CREATE TRIGGER changed AFTER INSERT ON shop."Payment" FOR EACH ROW EXECUTE FUNCTION task_async('SELECT $1->''new''->>''id''', 'group', 'together')`,
  );
  const others = await Promise.all(Array.from({ length: 4 }, () => database.connect()));
  await Promise.all(
    others.map(async (other, index) => {
      for (let n = 0; n < 25; n += 1) {
        await other.query("BEGIN");
        await other.query(`INSERT INTO shop."Payment" VALUES (${index * 100 + n}, 1)`);
        await other.query("SAVEPOINT s");
        await other.query(`INSERT INTO shop."Payment" VALUES (${index * 100 + n + 1000}, 1)`);
        await other.query("ROLLBACK TO s");
        await other.query(n % 2 === 0 ? "COMMIT" : "ROLLBACK");
      }
    }),
  );
  const ended = await tasks.endedOf(`SELECT id FROM task WHERE "group" = 'together'`);
  const kept = await tasks.value<number[]>(`SELECT array_agg(id ORDER BY id) FROM shop."Payment"`);
  assert.equal(kept.length, 52);
  assert.deepEqual(
    ended.map(({ output }) => Number(output)).toSorted((a, b) => a - b),
    kept,
  );
});

test("who changes a row needs the privilege to insert tasks", async () => {
  const role = `payer_${database.target.database}`;
  await client.query(`
    ${trigger(`AFTER INSERT ON shop."Payment" FOR EACH ROW`)};
    CREATE ROLE ${role}; GRANT USAGE ON SCHEMA shop TO ${role}; GRANT INSERT ON shop."Payment" TO ${role}`);
  try {
    await client.query(`SET ROLE ${role}`);
    await assert.rejects(client.query(`INSERT INTO shop."Payment" VALUES (1, 10)`), { code: "42501" });
    await client.query(
      `RESET ROLE; GRANT INSERT ON task TO ${role}; GRANT USAGE ON SEQUENCE task_id_seq TO ${role}; SET ROLE ${role}`,
    );
    await client.query(`INSERT INTO shop."Payment" VALUES (1, 10)`);
  } finally {
    await client.query(`RESET ROLE; DROP OWNED BY ${role}; DROP ROLE ${role}`);
  }
});

test("with a key, one task gets all rows of a statement, and more than 1 MB of them are refused", async () => {
  await client.query(`
    CREATE TRIGGER changed AFTER INSERT ON shop."Payment" REFERENCING NEW TABLE AS n FOR EACH STATEMENT
      EXECUTE FUNCTION task_async('SELECT 1', 'plan', 'infinity', 'key', 'all payments');
    INSERT INTO shop."Payment" SELECT n, n FROM generate_series(1, 2500) AS n`);
  const { rows } = await client.query(
    "SELECT jsonb_array_length(args->'new') AS count FROM task WHERE key = 'all payments'",
  );
  assert.deepEqual(rows, [{ count: 2500 }]);
  await assert.rejects(client.query(`INSERT INTO shop."Payment" SELECT n, n FROM generate_series(10001, 60000) AS n`), {
    code: "54000",
    message: /a task with a key takes all rows of a statement/,
  });
});

test("a waiting task with the same key gets the args of the later change", async () => {
  await client.query(`
    CREATE TRIGGER changed AFTER INSERT ON shop."Payment" FOR EACH ROW EXECUTE FUNCTION task_async(
      'SELECT 1', 'plan', 'infinity', 'key', '=concat(''doc '', $1->''new''->>''id'')')`);
  await client.query(`INSERT INTO shop."Payment" VALUES (1, 10), (2, 20); INSERT INTO shop."Payment" VALUES (1, 30)`);
  const { rows: waiting } = await client.query(
    "SELECT key, (args->'new'->>'account')::integer AS account FROM task WHERE key LIKE 'doc %' ORDER BY key",
  );
  assert.deepEqual(waiting, [
    { key: "doc 1", account: 30 },
    { key: "doc 2", account: 20 },
  ]);
});

for (const [when, args, code, message] of [
  ["BEFORE INSERT", "'SELECT 1'", "39P01", `task_async needs an AFTER trigger, trigger "bad" is BEFORE`],
  [
    "AFTER INSERT",
    "",
    "39P01",
    `task_async expects an input, and a value after each column, trigger "bad" has 0 arguments`,
  ],
  [
    "AFTER INSERT",
    "'SELECT 1', 'group'",
    "39P01",
    `task_async expects an input, and a value after each column, trigger "bad" has 2 arguments`,
  ],
  ["AFTER INSERT", "'SELECT 1', 'grp', 'x'", "42703", `column "grp" of relation "task" does not exist`],
  ["AFTER INSERT", "'SELECT 1', 'max', 'many'", "22P02", `invalid input syntax for type integer: "many"`],
  [
    "AFTER INSERT",
    "'SELECT 1', 'max', '=$1'",
    "42804",
    `column "max" is of type integer but expression is of type jsonb`,
  ],
  ["AFTER INSERT", "'SELECT 1', 'args', '[]'", "42701", `column "args" specified more than once`],
  ["AFTER INSERT", "'SELECT 1', 'max', '=1), (2'", "42601", "INSERT has more expressions than target columns"],
  ["AFTER INSERT", "'SELECT 1', 'timeout', '-1 s'", "23514", /violates check constraint/],
] as const) {
  test(`a trigger ${when} with (${args}) refuses changes`, async () => {
    await client.query(
      `CREATE TRIGGER bad ${when} ON shop."Payment" FOR EACH ROW EXECUTE FUNCTION task_async(${args})`,
    );
    await assert.rejects(client.query(`INSERT INTO shop."Payment" VALUES (1, 10)`), { code, message });
  });
}
