import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { eventually } from "../support/changes.js";
import { createDatabase } from "../support/database.js";
import { DocumentedPage, documentedSteps } from "../support/documentedPage.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { Tasks } from "../support/tasks.js";
import { projectPath } from "../support/project.js";

const pgTask = new PgTask();
const database = await createDatabase();
const tasks = await Tasks.create(await database.connect());
await pgTask.start({ url: database.url, "pg_task.sleep": 100 });
const document = readFileSync(projectPath("docs/cli.md"), "utf8");

const examples = documentedSteps(document).filter(({ kind }) => kind === "console");

/**
 * Replaces everything that differs from one run of the test to the next: times, durations, process ids, numbers of
 * rows, versions, and names of hosts, databases and folders.
 */
function settled(text: string): string {
  return text
    .replaceAll(/\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( ?[+-]\d\d(:\d\d)?)?|\b\d\d:\d\d:\d\d\b/g, "TIME")
    .replaceAll(/\b[\d.]+ (ms|s|min)\b/g, "LONG")
    .replaceAll(/server process \d+/g, "server process PID")
    .replaceAll(/\bPostgreSQL \d+\.\d+/g, "PostgreSQL VERSION")
    .replaceAll(/\b\d+ of \d+ (connections|taken)/g, "N of N $1")
    .replaceAll(/^ *(sessions|rows|ended) .*\n/gm, "")
    .replaceAll(/test_[0-9a-f]+|\bshop\b/g, "DATABASE")
    .replaceAll(/wrote \S+pg_task\.json/g, "wrote FILE")
    .replaceAll(/[ \t]+/g, " ")
    .trim();
}

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
