import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { comparable, DocumentedPage, documentedSteps } from "../support/documentedPage.js";
import { test } from "../support/limitedTest.js";
import { projectText } from "../support/project.js";
import { serve } from "../support/serve.js";
import { eventually } from "../support/tasks.js";

const { database, client } = await serve({ "pg_task.sleep": 100 });
const examples = documentedSteps(projectText("docs/cli.md")).filter(({ kind }) => kind === "console");

/** Also replaces numbers of connections, sessions and rows, and the server's version. */
const settled = (text: string): string =>
  comparable(
    text
      .replaceAll(/\bPostgreSQL \d+\.\d+/g, "PostgreSQL VERSION")
      .replaceAll(/\b\d+ of \d+ (connections|taken)/g, "N of N $1")
      .replaceAll(/^ *(sessions|rows|ended) .*\n/gm, "")
      // Printed if the machine is so busy that the task has not started after a second.
      .replaceAll(/^pg-task: task \d+ waits: nothing blocks it.*\n/gm, ""),
  );

const unfinished =
  "SELECT FROM task WHERE state IN ('TAKE', 'WORK') OR owner IS NOT NULL OR state = 'PLAN' AND plan <= now()";

test("every example of docs/cli.md prints what is shown below it", async () => {
  const page = new DocumentedPage(database, client);
  await writeFile(join(await page.folder(), "report.sql"), "SELECT count(*) FROM pg_class WHERE relname = 'task';\n");
  assert.ok(examples.length > 15);
  for (const example of examples) {
    const { text, result = "" } = example;
    assert.equal(settled(await page.result(example)), settled(result), text);
    // The output of the next example depends on the state that this example's task has reached.
    if (/add .*pg_sleep/.test(text)) await page.sleeping();
    if (/pg-task (stop|run-now|retry)/.test(text)) await eventually(client, unfinished, ({ length }) => length === 0);
  }
});
