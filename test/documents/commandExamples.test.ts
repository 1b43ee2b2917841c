import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe } from "node:test";
import { commands } from "../../src/cli/commands/index.js";
import { configFolder } from "../support/configFile.js";
import { createDatabase } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { cli } from "../support/cli.js";
import { runCommandLine } from "../support/commandLine.js";
import { bin } from "../support/project.js";
import { cronTables } from "../support/schedulerTables.js";
import { temporaryFolder } from "../support/temporaryFolder.js";

const database = await createDatabase();
const client = await database.connect();
const env = { DATABASE_URL: database.url };
const folder = await temporaryFolder();
/** Finds `pg-task` for the commands that are not run in this process. */
const path = `${folder}:${process.env["PATH"]}`;
await writeFile(join(folder, "pg-task"), `#!/bin/sh\nexec "${process.execPath}" "${bin}" "$@"\n`, { mode: 0o755 });
await writeFile(join(folder, "jobs.json"), JSON.stringify({ jobs: { a: { repeat: "1 h", input: "SELECT 1" } } }));
await writeFile(join(folder, "jobs.cron"), `0 3 * * * psql ${database.target.database} -c 'SELECT 1'\n`);
await writeFile(join(folder, "events.ics"), "BEGIN:VCALENDAR\nEND:VCALENDAR\n");
/** Where an entry has a database of its own. */
const many = await configFolder({ url: database.url, "pg_task.json": [{ data: "shop" }] });
/** Commands that run until they are told to end; other tests start them. */
const endless = new Set(["start", "watch"]);

const examples = Object.fromEntries(
  Object.entries(commands).flatMap(([name, { examples: lines }]) => (lines.length === 0 ? [] : [[name, lines]])),
);

const homeElsewhere = `INSERT INTO task_home (id, database, "table", version, cluster) VALUES (md5('')::uuid, 1, 1, 1, '')`;

describe("the examples in the help", () => {
  test("there are some for every command, and its help shows them", async () => {
    const { stdout } = await cli(["--help"], {});
    const names = [...stdout.matchAll(/^ {2}([a-z-]+)[| ]/gm)].map(([, name = ""]) => name);
    assert.deepEqual(Object.keys(examples).toSorted(), names.filter((name) => name !== "help").toSorted());
    for (const [name, lines] of Object.entries(examples)) {
      const help = await cli([name, "--help"], {});
      assert.ok(
        help.stdout.endsWith(`\nExamples:\n${lines.map((line) => `  pg-task ${line}\n`).join("")}`),
        help.stdout,
      );
    }
  });

  for (const [name, lines] of Object.entries(examples)) {
    if (endless.has(name)) continue;
    for (const line of lines) {
      test(`pg-task ${line}`, async () => {
        await client.query("TRUNCATE task RESTART IDENTITY");
        await client.query(
          `INSERT INTO task (input, state, plan, key) SELECT 'SELECT 1', CASE WHEN id = 4 THEN 'FAIL' ELSE 'PLAN' END::state, 'infinity',
             CASE WHEN id = ${line.startsWith("retry") ? 4 : 5} THEN 'order 42' END
           FROM generate_series(1, 6) AS id`,
        );
        await client.query("DROP SCHEMA IF EXISTS cron CASCADE");
        if (name === "import") await client.query(cronTables);
        // No manager would ever end it.
        if (name === "wait") await client.query("UPDATE task SET state = 'DONE'");
        if (name === "accept-copy") await client.query(homeElsewhere);
        const { code, shown } = await runCommandLine(`pg-task ${line}`, {
          env: { ...env, PATH: path },
          cwd: ["release", "serve"].includes(name) ? many : folder,
        });
        // No manager serves the table, which the doctor counts as a failure.
        assert.equal(code, name === "doctor" ? 4 : 0, shown);
      });
    }
  }
});
