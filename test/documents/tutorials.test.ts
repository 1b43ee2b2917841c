import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { after } from "node:test";
import { createDatabase, dropDatabase, onServer } from "../support/database.js";
import { comparable, DocumentedPage, documentedSteps } from "../support/documentedPage.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { projectPath, projectText } from "../support/project.js";

const tutorials = readdirSync(projectPath("docs/tutorials")).filter((name) => name.endsWith(".md"));
const pages = [
  ...tutorials.map((name) => `docs/tutorials/${name}`),
  "docs/coming-from.md",
  "docs/functions.md",
  "docs/order.md",
  "docs/repeat.md",
];

/** What the examples of a page use and do not create themselves. */
const setUp: Readonly<Record<string, string>> = {
  "docs/functions.md": `
    CREATE MATERIALIZED VIEW sales AS SELECT 1 AS amount;
    CREATE FUNCTION poll() RETURNS integer LANGUAGE sql AS 'SELECT 1'`,
  "docs/coming-from.md": `
    CREATE MATERIALIZED VIEW sales AS SELECT 1 AS amount;
    CREATE FUNCTION send_invoice(integer) RETURNS integer LANGUAGE sql AS 'SELECT 1';
    CREATE FUNCTION remind(integer) RETURNS integer LANGUAGE sql AS 'SELECT 1'`,
};

for (const file of pages) {
  // The examples after the sections about groups are executed by order.test.ts.
  const [text = ""] = projectText(file).split("\n## Keys\n");
  const steps = documentedSteps(text);
  const pgTask = new PgTask();
  const database = await createDatabase("empty");
  const branch = `branch_${database.target.database}`;
  if (/\bbranch\b/.test(text)) after(() => onServer((client) => dropDatabase(client, branch)));

  /** Replaces the names that a page gives to its server and to another database. */
  const here = (example: string): string =>
    example
      .replaceAll("port=5433", `port=${database.target.port}`)
      .replaceAll(/user=postgres\b/g, `user=${database.target.user}`)
      .replaceAll(/\bbranch\b/g, branch);

  test(`the examples of ${file} do what the page shows`, async () => {
    assert.ok(steps.length >= 3);
    await pgTask.start({ url: database.url, "pg_task.sleep": 50 });
    const client = await database.connect();
    await client.query(setUp[file] ?? "");
    const page = new DocumentedPage(database, client);
    for (const step of steps) {
      const result = await page.run({ ...step, text: here(step.text) });
      if (step.result !== undefined) assert.equal(comparable(result), comparable(here(step.result)), step.text);
    }
    await pgTask.stop();
  });
}
