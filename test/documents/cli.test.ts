import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { onShellTerminal } from "../support/cli.js";
import { eventually } from "../support/changes.js";
import { createDatabase } from "../support/database.js";
import { PgTask } from "../support/pgTask.js";
import { Tasks } from "../support/tasks.js";
import { bin, projectPath } from "../support/project.js";
import { temporaryFolder } from "../support/temporaryFolder.js";

const pgTask = new PgTask();
const database = await createDatabase();
const tasks = await Tasks.create(await database.connect());
await pgTask.start({ url: database.url, "pg_task.sleep": 100 });
const document = readFileSync(projectPath("docs/cli.md"), "utf8");

interface Example {
  readonly command: string;
  readonly output: string;
}

/** Each `$ command` in the console blocks, with the output shown below it. */
const examples: readonly Example[] = [...document.matchAll(/```console\n([\s\S]*?)```/g)].flatMap(([, block = ""]) =>
  block
    .split(/^\$ /m)
    .slice(1)
    .map((part) => {
      const end = part.indexOf("\n");
      return { command: part.slice(0, end), output: part.slice(end + 1) };
    }),
);

const clearLine = "\u001B[K";

/** Removes lines that the next output overwrites. `add --wait` shows them only if it takes long. */
function withoutProgress(text: string): string {
  const [first = "", ...others] = text.split(clearLine);
  return first + others.filter((each) => !/^[^\n]*\r$/.test(each)).join("");
}

/**
 * Replaces everything that differs from one run of the test to the next: times, durations, process ids, numbers of
 * rows, versions, and names of hosts, databases and folders.
 */
function settled(text: string): string {
  return withoutProgress(text)
    .replaceAll(/\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+\d\d(:\d\d)?)?|\b\d\d:\d\d:\d\d\b/g, "TIME")
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

// The test runs about thirty programs, one after another, which takes long on a busy machine.
void test("every example of docs/cli.md prints what is shown below it", { timeout: 600_000 }, async () => {
  const cwd = await temporaryFolder();
  await mkdir(join(cwd, "bin"));
  const wrapper = `#!/bin/sh\nexec "${process.execPath}" "${bin}" "$@"\n`;
  await writeFile(join(cwd, "bin", "pg-task"), wrapper, { mode: 0o755 });
  await writeFile(join(cwd, "report.sql"), "SELECT count(*) FROM pg_class WHERE relname = 'task';\n");
  assert.ok(examples.length > 15);
  for (const { command, output } of examples) {
    const path = `${join(cwd, "bin")}:${dirname(process.execPath)}:${process.env["PATH"] ?? ""}`;
    const { shown } = await onShellTerminal(command, {
      cwd,
      env: { DATABASE_URL: database.url, NO_COLOR: "1", PATH: path },
    });
    assert.equal(settled(shown), settled(output), command);
    // The output of the next example depends on the state that this example's task has reached.
    const [, id] = /added task (\d+)/.exec(shown) ?? [];
    if (id !== undefined && command.includes("pg_sleep")) await tasks.sleeping(id);
    if (/pg-task (stop|run-now|retry)/.test(command)) await nothingToDo();
  }
});
