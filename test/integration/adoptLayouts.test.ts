import assert from "node:assert/strict";
import { describe } from "node:test";
import { createDatabase } from "../support/database.js";
import {
  extensionTable,
  olderExtensionTable,
  ownEnumTable,
  ownTable,
  partitionedById,
  partitionedByPlan,
  type MakeTable,
} from "../support/foreignTables.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { waitForRow } from "../support/waitFor.js";

const pgTask = new PgTask();
const database = await createDatabase("empty");
const client = await database.connect();

/** Rows in these states, by input, before the table is adopted. */
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
  /** Values of the columns that have no default that works without the extension. */
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
  own: { make: ownTable, rows: seven },
  own_enum: { make: ownEnumTable, rows: few, columns: ", id, plan", more: ", NUMBER, now()" },
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
  waitForRow(
    client,
    `SELECT FROM ${schema}.task WHERE state::text IN ('PLAN', 'TAKE', 'WORK') HAVING count(*) = 0`,
  );

for (const [schema, given] of Object.entries(layouts)) await make(schema, given);
type Row = Readonly<Record<string, unknown>>;

/** The rows of finished tasks, whole. */
async function finished(schema: string): Promise<Row[]> {
  const { rows } = await client.query<{ row: Row }>(
    `SELECT to_jsonb(t) AS row FROM ${schema}.task AS t
     WHERE input::text ~ '(done|stopped|failed|gone)' ORDER BY id`,
  );
  return rows.map(({ row }) => row);
}

const before = new Map<string, Row[]>();
for (const schema of Object.keys(layouts)) before.set(schema, await finished(schema));

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
    test("has its waiting and taken tasks run, and its finished ones left as they are", async () => {
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
        was.map((row, index) =>
          Object.fromEntries(Object.keys(row).map((column) => [column, now[index]?.[column]])),
        ),
        was,
      );
    });

    test("takes new tasks, due and planned, without naming what has a default", async () => {
      const id = schema === "own_enum" ? ["id, ", "1000, "] : ["", ""];
      await client.query(
        `INSERT INTO ${schema}.task (${id[0]}input, state, plan) VALUES (${id[1]}'SELECT 42', 'PLAN', now())`,
      );
      await waitForRow(
        client,
        `SELECT FROM ${schema}.task WHERE input::text = 'SELECT 42' AND output::text = '42'`,
      );
    });

    test("has a task that is stopped while it runs cancelled, and its group's next one run", async () => {
      const id = schema === "own_enum" ? ["id, ", "1001, ", "1002, "] : ["", "", ""];
      await client.query(
        `INSERT INTO ${schema}.task (${id[0]}input, state, plan) VALUES
           (${id[1]}'SELECT pg_sleep(600)', 'PLAN', now()), (${id[2]}'SELECT 43', 'PLAN', now())`,
      );
      await waitForRow(
        client,
        `SELECT FROM ${schema}.task WHERE input::text ~ 'sleep' AND state::text = 'WORK'`,
      );
      await client.query(`UPDATE ${schema}.task SET state = 'STOP' WHERE input::text ~ 'sleep'`);
      await waitForRow(
        client,
        `SELECT FROM ${schema}.task WHERE input::text = 'SELECT 43' AND output::text = '43'`,
      );
      const { rows: stopped } = await client.query(
        `SELECT state::text, owner FROM ${schema}.task WHERE input::text ~ 'sleep'`,
      );
      assert.deepEqual(stopped, [{ state: "STOP", owner: null }]);
    });

    test("repeats a task, with the values of the user's own columns", async () => {
      await client.query(
        `UPDATE ${schema}.task SET repeat = '1 day', state = 'PLAN', plan = now() WHERE input::text = 'SELECT 42'`,
      );
      const { parent } = await waitForRow<{ parent: string }>(
        client,
        `SELECT parent FROM ${schema}.task WHERE parent IS NOT NULL AND plan > now()`,
      );
      assert.ok(parent);
    });
  });
}

test("is adopted once: at the next start nothing is changed any more", async () => {
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
