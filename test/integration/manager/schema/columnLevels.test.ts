import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { identifier, literal } from "../../../../src/shared/postgres/quoting.js";
import { columnsWith, taskColumns, type TaskColumn } from "../../../../src/shared/taskColumns.js";
import { createDatabase } from "../../../support/database.js";
import { ensureTaskTable } from "../../../support/taskTables.js";
import { withConnectionTo } from "../../../support/connectTo.js";

const database = await createDatabase("task");
const client = await database.connect();
const { database: name } = database.target;

/** The value in the file and the values at the levels above the file, as the column displays them. */
interface Values {
  readonly file: boolean | number | string;
  readonly above: readonly string[];
}

const texts: Values = { file: "it's the file's", above: ["a", "b'", "c\\", " d ", "e\n"] };
const values: Readonly<Partial<Record<TaskColumn["type"], Values>>> = {
  interval: { file: "2 hours", above: ["00:00:01", "00:00:02", "00:00:03", "00:00:04", "00:00:05"] },
  integer: { file: 9, above: ["1", "2", "3", "4", "5"] },
  boolean: { file: false, above: ["true", "false", "true", "false", "true"] },
  '"char"': { file: ";", above: ["a", "b", "'", "\\", "e"] },
};

const columns: Readonly<Record<string, Values>> = Object.fromEntries(
  columnsWith({ default: "parameter" }).map((column) => [column, values[taskColumns[column].type] ?? texts]),
);

await ensureTaskTable(database.target, {
  parameters: Object.fromEntries(Object.entries(columns).map(([column, { file }]) => [`pg_task.${column}`, file])),
});

async function inserted(column: string, session: readonly string[] = [], given?: string): Promise<unknown> {
  return await withConnectionTo(database.target, async (producer) => {
    for (const statement of session) await producer.query(statement);
    const shown = `${identifier(column)}::text AS value`;
    const { rows } =
      given === undefined
        ? await producer.query(`INSERT INTO task (input) VALUES ('') RETURNING ${shown}`)
        : await producer.query(
            `INSERT INTO task (input, ${identifier(column)}) VALUES ('', ${literal(given)}) RETURNING ${shown}`,
          );
    return rows[0].value;
  });
}

// test/conformance/levels.test.ts covers the levels of roles and of the server.
describe("the default of each parameter column comes from the nearest level", () => {
  for (const [column, { file, above }] of Object.entries(columns)) {
    test(`${column}: INSERT, session, database, file`, async () => {
      const setting = `pg_task.${identifier(column)}`;
      const [inDatabase = "", inSession = "", inInsert = ""] = above;
      const shownFile = file === "2 hours" ? "02:00:00" : String(file);
      await client.query(`ALTER DATABASE ${name} SET ${setting} = ${literal(inDatabase)}`);
      const set = `SET ${setting} = ${literal(inSession)}`;
      assert.equal(await inserted(column, [set], inInsert), inInsert);
      assert.equal(await inserted(column, [set]), inSession);
      assert.equal(await inserted(column, [set, `RESET ${setting}`]), inDatabase);
      assert.equal(await inserted(column, [`SET ${setting} = ''`]), shownFile);
      await client.query(`ALTER DATABASE ${name} RESET ${setting}`);
      assert.equal(await inserted(column, [set, `RESET ${setting}`]), shownFile);
      assert.equal(await inserted(column, ["BEGIN", set.replace("SET", "SET LOCAL"), "ROLLBACK"]), shownFile);
    });
  }
});

test("intervals of a level are parsed in every IntervalStyle", async () => {
  for (const text of ["90 min", "1:30", "PT1H30M", "@ 1 hour 30 mins", "0 1:30:00", "5400"]) {
    for (const style of ["postgres", "postgres_verbose", "sql_standard", "iso_8601"]) {
      const { rows } = await withConnectionTo(database.target, async (producer) => {
        await producer.query(`SET pg_task.timeout = '${text}'; SET IntervalStyle = ${style}`);
        return await producer.query(
          "INSERT INTO task (input) VALUES ('') RETURNING extract(epoch FROM timeout)::int AS seconds",
        );
      });
      assert.deepEqual(rows, [{ seconds: 5400 }], `${text} in ${style}`);
    }
  }
});

test("an invalid setting fails the INSERT of its session, and no other", async () => {
  await assert.rejects(inserted("max", ["SET pg_task.max = 'many'"]), {
    code: "22P02",
  });
  assert.equal(await inserted("max"), "9");
});
