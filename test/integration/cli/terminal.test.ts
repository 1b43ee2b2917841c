import assert from "node:assert/strict";
import { describe } from "node:test";
import { createDatabase } from "../../support/database.js";
import { cli, cliOnTerminal, commandsOn } from "../../support/cli.js";
import { test } from "../../support/limitedTest.js";

const database = await createDatabase();
const client = await database.connect();
const { env } = commandsOn(database);

/** Number of tasks, so many that a command changes them in several batches. */
const many = 2_500;

async function insertMany(state: string): Promise<void> {
  await client.query("TRUNCATE task");
  await client.query(
    `INSERT INTO task (input, state, start, stop) SELECT 'SELECT ' || i, $1, now() - interval '2 days', now() - interval '2 days'
     FROM generate_series(1, $2::integer) AS i`,
    [state, many],
  );
}

/** A progress line: carriage return, the sequence that erases the line, and the text. */
const progress = (words: string): string => `\r\x1b[K${words}`;

describe("a long command shows its progress on a terminal, and clears it at the end", () => {
  for (const [args, state, words] of [
    [["prune", "--older", "1 day", "--yes"], "DONE", ["1,000 deleted", "2,000 deleted"]],
    [["retry", "--state", "FAIL", "--yes"], "FAIL", ["retry: 0 of 2500", "retry: 500 of 2500", "retry: 2000 of 2500"]],
    [["list", "--text", "SELECT 1", "-n", "5000"], "DONE", ["searched 2,000 rows"]],
  ] as const) {
    test(args.join(" "), async () => {
      await insertMany(state);
      const { code, shown } = await cliOnTerminal(args, { env });
      assert.equal(code, 0, shown);
      let from = 0;
      for (const each of words) {
        from = shown.indexOf(progress(each), from);
        assert.ok(from >= 0, `${each} is not in ${shown.slice(0, 500)}`);
      }
      const cleared = shown.lastIndexOf(progress(""));
      assert.ok(cleared > from);
      assert.ok(!shown.slice(cleared + progress("").length).includes("\x1b[K"));
    });

    test(`${args.join(" ")}: no progress without a terminal`, async () => {
      await insertMany(state);
      const { code, stdout, stderr } = await cli(args, { env });
      assert.deepEqual([code, stderr], [0, ""]);
      assert.ok(!stdout.includes("\r"));
    });
  }
});

describe("colours are printed", () => {
  test("on a terminal, unless NO_COLOR is set", async () => {
    await client.query("TRUNCATE task");
    await client.query("INSERT INTO task (input, state, error) VALUES ('', 'FAIL', 'ERROR')");
    const { shown } = await cliOnTerminal(["list"], { env });
    assert.ok(shown.includes("\x1b[31mFAIL"), shown);
    const plain = await cliOnTerminal(["list"], { env: { ...env, NO_COLOR: "1" } });
    assert.ok(plain.shown.includes("FAIL") && !plain.shown.includes("\x1b["), plain.shown);
  });

  for (const args of [
    ["list"],
    ["show", "1"],
    ["status"],
    ["groups"],
    ["doctor"],
    ["why", "1"],
    ["check"],
    ["stop", "1"],
  ]) {
    test(`nowhere else: ${args.join(" ")}`, async () => {
      await client.query("TRUNCATE task RESTART IDENTITY");
      await client.query("INSERT INTO task (input, plan) VALUES ('', now() - interval '1 min')");
      const { stdout, stderr } = await cli(args, { env });
      assert.ok(stdout.length > 0, stderr);
      assert.ok(!`${stdout}${stderr}`.includes("\x1b"), stdout);
    });
  }
});
