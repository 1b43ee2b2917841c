import assert from "node:assert/strict";
import { describe } from "node:test";
import { createDatabase } from "../../../../support/database.js";
import {
  extensionTable,
  olderExtensionTable,
  userEnumTable,
  userTable,
  partitionedById,
  partitionedByPlan,
  type MakeTable,
} from "../../../../support/foreignTables.js";
import { test } from "../../../../support/limitedTest.js";
import { PgTask } from "../../../../support/pgTask.js";
import { waitForRow } from "../../../../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase("empty");
const client = await database.connect();

type Rows = readonly (readonly [input: string, state: string])[];

const usual: Rows = [
  ["SELECT 'due'", "PLAN"],
  ["SELECT 'taken'", "TAKE"],
  ["SELECT 'worked'", "WORK"],
  ["SELECT 'done'", "DONE"],
  ["SELECT 'stopped'", "STOP"],
];
const seven: Rows = [...usual, ["SELECT 'failed'", "FAIL"], ["SELECT 'gone'", "GONE"]];
const few: Rows = [usual[0] ?? ["", ""], usual[3] ?? ["", ""]];

interface Given {
  readonly make: MakeTable;
  readonly rows: Rows;
  /** SQL values of columns whose defaults do not work without the extension. */
  readonly more?: string;
  readonly columns?: string;
}

const parameters = {
  columns: `, parent, active, live, repeat, timeout, count, max, delete, drift, header, string, delimiter, escape, quote, "group", "null"`,
  more: `, NULL, '1 day', '0', '0', '0', 0, 0, false, false, true, true, ',', '', '', 'group', 'nil'`,
};

const layouts: Record<string, Given> = {
  extension: {
    make: extensionTable,
    rows: seven,
    columns: `${parameters.columns}, save`,
    more: `${parameters.more}, false`,
  },
  older_generated: { make: olderExtensionTable("generated"), rows: usual, ...parameters },
  older_ordinary: {
    make: olderExtensionTable("ordinary"),
    rows: usual,
    columns: `${parameters.columns}, hash`,
    more: `${parameters.more}, 7`,
  },
  own: { make: userTable, rows: seven },
  own_enum: { make: userEnumTable, rows: few, columns: ", id, plan", more: ", NUMBER, now()" },
  by_plan: { make: partitionedByPlan, rows: seven },
  by_id: { make: partitionedById, rows: seven },
};

async function make(schema: string, { make: table, rows, columns = "", more = "" }: Given) {
  await client.query(table(schema));
  for (const [index, [input, state]] of rows.entries()) {
    await client.query(
      `INSERT INTO ${schema}.task (input, state${columns})
       VALUES ($1, '${state}'${more.replace("NUMBER", String(index + 1))})`,
      [input],
    );
  }
}

const tasks = (schema: string) =>
  client.query<{ input: string; state: string; output: string | null }>(
    `SELECT input::text, state::text, output::text FROM ${schema}.task ORDER BY id`,
  );

const ended = (schema: string) =>
  waitForRow(client, `SELECT FROM ${schema}.task WHERE state::text IN ('PLAN', 'TAKE', 'WORK') HAVING count(*) = 0`);

for (const [schema, given] of Object.entries(layouts)) await make(schema, given);
type Row = Readonly<Record<string, unknown>>;

async function finished(schema: string): Promise<Row[]> {
  const { rows } = await client.query<{ row: Row }>(
    `SELECT to_jsonb(t) AS row FROM ${schema}.task AS t
     WHERE input::text ~ '(done|stopped|failed|gone)' ORDER BY id`,
  );
  return rows.map(({ row }) => row);
}

const before = new Map<string, Row[]>();
for (const schema of Object.keys(layouts)) before.set(schema, await finished(schema));

async function parts(schema: string): Promise<string[]> {
  const { rows } = await client.query<{ part: string }>(
    `WITH relation AS (SELECT oid FROM pg_class WHERE relnamespace = $1::regnamespace AND relkind IN ('r', 'p'))
     SELECT concat_ws(' ', attrelid::regclass, attname, format_type(atttypid, atttypmod), attgenerated) AS part
     FROM pg_attribute JOIN relation ON oid = attrelid WHERE attnum > 0 AND NOT attisdropped
     UNION ALL SELECT pg_get_indexdef(indexrelid) FROM pg_index JOIN relation ON oid = indrelid
     UNION ALL SELECT concat_ws(' ', tgrelid::regclass, tgname, tgenabled) FROM pg_trigger JOIN relation AS r ON r.oid = tgrelid
     UNION ALL SELECT concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(c.oid))
     FROM pg_constraint AS c JOIN relation AS r ON r.oid = conrelid`,
    [schema],
  );
  return rows.map(({ part }) => part);
}

const partsBefore = new Map<string, string[]>();
for (const schema of Object.keys(layouts)) {
  await client.query(
    `ALTER TABLE ${schema}.task ADD COLUMN mine jsonb DEFAULT '{"it is": "mine"}';
     CREATE INDEX ON ${schema}.task (mine);
     CREATE FUNCTION ${schema}.mine() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
     CREATE TRIGGER mine AFTER UPDATE ON ${schema}.task FOR EACH ROW EXECUTE FUNCTION ${schema}.mine()`,
  );
  partsBefore.set(schema, await parts(schema));
}

const configuration = {
  url: database.url,
  "pg_task.json": Object.keys(layouts).map((schema) => ({
    data: database.target.database,
    user: database.target.user,
    schema,
  })),
};
await pgTask.start(configuration);

for (const [schema, { rows }] of Object.entries(layouts)) {
  describe(`a table of the layout ${schema}`, () => {
    test("runs waiting and taken tasks, and leaves finished ones unchanged", async () => {
      await ended(schema);
      const { rows: found } = await tasks(schema);
      assert.deepEqual(
        found.map(({ input, state, output }) => [input, state, output]),
        rows.map(([input, state]) =>
          ["PLAN", "TAKE", "WORK"].includes(state)
            ? [input, "DONE", input.slice("SELECT '".length, -1)]
            : [input, state, null],
        ),
      );
      const now = await finished(schema);
      const was = before.get(schema) ?? [];
      assert.deepEqual(
        was.map((row, index) => Object.fromEntries(Object.keys(row).map((column) => [column, now[index]?.[column]]))),
        was,
      );
    });

    test("keeps its columns, indexes, triggers and constraints", async () => {
      const now = new Set(await parts(schema));
      const was = partsBefore.get(schema) ?? [];
      assert.ok(was.some((part) => part.includes(" mine jsonb")));
      assert.deepEqual(
        was.filter((part) => !now.has(part)),
        [],
      );
    });

    test("accepts new tasks, due and planned, without values for columns with a default", async () => {
      const id = schema === "own_enum" ? ["id, ", "1000, "] : ["", ""];
      await client.query(
        `INSERT INTO ${schema}.task (${id[0]}input, state, plan) VALUES (${id[1]}'SELECT 42', 'PLAN', now())`,
      );
      await waitForRow(client, `SELECT FROM ${schema}.task WHERE input::text = 'SELECT 42' AND output::text = '42'`);
    });

    test("cancels a task that is stopped while it runs, and runs the next of its group", async () => {
      const id = schema === "own_enum" ? ["id, ", "1001, ", "1002, "] : ["", "", ""];
      await client.query(
        `INSERT INTO ${schema}.task (${id[0]}input, state, plan) VALUES
           (${id[1]}'SELECT pg_sleep(600)', 'PLAN', now()), (${id[2]}'SELECT 43', 'PLAN', now())`,
      );
      await waitForRow(client, `SELECT FROM ${schema}.task WHERE input::text ~ 'sleep' AND state::text = 'WORK'`);
      await client.query(`UPDATE ${schema}.task SET state = 'STOP' WHERE input::text ~ 'sleep'`);
      await waitForRow(client, `SELECT FROM ${schema}.task WHERE input::text = 'SELECT 43' AND output::text = '43'`);
      const { rows: stopped } = await client.query(
        `SELECT state::text, owner FROM ${schema}.task WHERE input::text ~ 'sleep'`,
      );
      assert.deepEqual(stopped, [{ state: "STOP", owner: null }]);
    });

    test("repeats a task with the values of the user's columns", async () => {
      await client.query(
        `UPDATE ${schema}.task SET repeat = '1 day', mine = '["changed"]', state = 'PLAN', plan = now() WHERE input::text = 'SELECT 42'`,
      );
      const { parent, next, row } = await waitForRow<{ parent: string; next: Row; row: Row }>(
        client,
        `SELECT n.parent, to_jsonb(n) AS next, to_jsonb(t) AS row
         FROM ${schema}.task AS n JOIN ${schema}.task AS t ON t.id = n.parent
         WHERE n.plan > now() AND t.state::text = 'DONE'`,
      );
      assert.ok(parent);
      const own = "id parent plan take start stop pid state ready output error created".split(" ");
      const copied = Object.keys(row).filter((column) => !own.includes(column));
      assert.ok(copied.includes("mine"));
      for (const column of copied) assert.deepEqual(next[column], row[column], column);
    });
  });
}

test("is adopted once: the next start changes nothing", async () => {
  const schemas = Object.keys(layouts);
  const catalog = async (): Promise<unknown> =>
    (
      await client.query(
        `SELECT (SELECT json_agg(xmin::text || oid ORDER BY oid) FROM pg_class WHERE relnamespace::regnamespace::text = ANY ($1) AND relkind IN ('r', 'p', 'i', 'I')) AS classes,
           (SELECT json_agg(xmin::text || oid ORDER BY oid) FROM pg_trigger) AS triggers,
           (SELECT json_agg(xmin::text || oid ORDER BY oid) FROM pg_attrdef) AS defaults,
           (SELECT json_agg(xmin::text || oid ORDER BY oid) FROM pg_proc WHERE pronamespace::regnamespace::text = ANY ($1)) AS functions`,
        [schemas],
      )
    ).rows;
  await pgTask.stop();
  const was = await catalog();
  await pgTask.start(configuration);
  assert.deepEqual(await catalog(), was);
});
