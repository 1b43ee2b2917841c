import assert from "node:assert/strict";
import { describe } from "node:test";
import { examples } from "../../src/cli/definitions/examples.js";
import { createDatabase } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { bin } from "../support/project.js";
import { cli, onShellTerminal } from "../support/cli.js";
import { temporaryFolder } from "../support/temporaryFolder.js";

const database = await createDatabase();
const client = await database.connect();
const env = { DATABASE_URL: database.url };
/** Commands that run until they are told to end; other tests start them. */
const endless = new Set(["start", "watch"]);

describe("the examples in the help", () => {
  test("there are some for every command, and its help shows them", async () => {
    const { stdout } = await cli(["--help"], {});
    const names = [...stdout.matchAll(/^ {2}([a-z-]+)[| ]/gm)].map(([, name = ""]) => name);
    const commands = names.filter((name) => name !== "help");
    assert.deepEqual(Object.keys(examples).toSorted(), commands.toSorted());
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
        const program = `'${process.execPath}' '${bin}' ${line}`;
        const { code, shown } = await onShellTerminal(program, { env, cwd: await temporaryFolder() });
        // No manager serves the table, which the doctor counts as a failure.
        assert.equal(code, name === "doctor" ? 4 : 0, shown);
      });
    }
  }
});
