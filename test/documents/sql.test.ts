import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { after } from "node:test";
import { test } from "../support/limitedTest.js";
import { onServer } from "../support/database.js";
import { projectPath, projectText } from "../support/project.js";
import { serve } from "../support/serve.js";

const { database, client, tasks } = await serve();
const { database: name } = database.target;

// Objects that the examples use.
const producer = `producer_${name}`;
/** Roles that examples create. */
const created = ["tasks", "app_tasks", "task_control"].map((role) => `${role}_${name}`);
after(() =>
  onServer(async (server) => {
    for (const role of [producer, ...created]) await server.query(`DROP ROLE IF EXISTS ${role}`);
  }),
);
await client.query(`
  CREATE ROLE ${producer};
  CREATE TABLE orders (id integer, customer text);
  INSERT INTO orders VALUES (1, 'O"Neill');
  CREATE PROCEDURE refresh_report(integer) LANGUAGE sql AS 'SELECT 1';
  CREATE FUNCTION slow() RETURNS integer LANGUAGE sql AS 'SELECT 1';
  CREATE FUNCTION remind(integer) RETURNS integer LANGUAGE sql AS 'SELECT 1'`);

/** Returns the ```sql blocks of a file, with the names of this test's database and role filled in. */
const examples = (file: string): string[] =>
  [...projectText(file).matchAll(/^```sql\n(.*?)^```$/gms)].map(([, sql = ""]) =>
    sql
      .replaceAll(/\bDATABASE shop\b/g, `DATABASE ${name}`)
      .replaceAll(/\bTO (producer|reader)\b/g, `TO ${producer}`)
      .replaceAll(/\b(tasks|app_tasks|task_control)\b/g, `$1_${name}`),
  );

/** These files have tests of their own. Their SQL needs tables of the extension or several roles, or has results. */
const withOwnTests =
  /^(adoption|arguments|coming-from|failure|functions|order|partitions|recipes|repeat|schedules|security|troubleshooting|users)\.md$/;
const files = readdirSync(projectPath("docs")).filter((file) => file.endsWith(".md") && !withOwnTests.test(file));
const documented = ["README.md", ...files.map((file) => `docs/${file}`)].flatMap((file) =>
  examples(file).map((sql) => ({ file, sql })),
);

test("README.md contains SQL examples", () => {
  assert.ok(documented.some(({ file }) => file === "README.md"));
});

for (const [index, { file, sql }] of documented.entries()) {
  test(`example ${index + 1} in ${file} is accepted, and its due tasks run`, async () => {
    await client.query("TRUNCATE task");
    await client.query(sql);
    const { rows } = await client.query<{ id: string; input: string; state: string }>(
      "SELECT id, input FROM task WHERE plan <= now() AND remote IS NULL ORDER BY id",
    );
    const ended = await tasks.ended(...rows.map(({ id }) => id));
    for (const [position, row] of ended.entries()) {
      const input = rows[position]?.input ?? "";
      const wanted = input.includes("1/0") ? "FAIL" : "DONE";
      assert.equal(row.state, wanted, `${input}: ${row.error}`);
    }
    await client.query("RESET ALL");
  });
}
