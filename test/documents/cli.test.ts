import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createDatabase } from "../support/database.js";
import { comparable, DocumentedPage, documentedSteps } from "../support/documentedPage.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { eventually, Tasks } from "../support/tasks.js";
import { projectPath } from "../support/project.js";

const pgTask = new PgTask();
const database = await createDatabase();
const tasks = await Tasks.create(await database.connect());
await pgTask.start({ url: database.url, "pg_task.sleep": 100 });
const document = readFileSync(projectPath("docs/cli.md"), "utf8");

const examples = documentedSteps(document).filter(({ kind }) => kind === "console");

/** Also replaces numbers of connections, sessions and rows, and the server's version. */
const settled = (text: string): string =>
  comparable(
    text
      .replaceAll(/\bPostgreSQL \d+\.\d+/g, "PostgreSQL VERSION")
      .replaceAll(/\b\d+ of \d+ (connections|taken)/g, "N of N $1")
      .replaceAll(/^ *(sessions|rows|ended) .*\n/gm, ""),
  );

/** Resolves when every due task has ended. */
async function nothingToDo(): Promise<void> {
  await eventually(
    tasks.client,
    "SELECT FROM task WHERE state IN ('TAKE', 'WORK') OR owner IS NOT NULL OR state = 'PLAN' AND plan <= now()",
    (rows) => rows.length === 0,
  );
}

test("every example of docs/cli.md prints what is shown below it", async () => {
  const page = new DocumentedPage(database, tasks.client);
  await writeFile(join(await page.folder(), "report.sql"), "SELECT count(*) FROM pg_class WHERE relname = 'task';\n");
  assert.ok(examples.length > 15);
  for (const example of examples) {
    const { text } = example;
    const shown = await page.result(example);
    assert.equal(settled(shown), settled(example.result ?? ""), text);
    // The output of the next example depends on the state that this example's task has reached.
    if (/add .*pg_sleep/.test(text)) await page.sleeping();
    if (/pg-task (stop|run-now|retry)/.test(text)) await nothingToDo();
  }
});
