import assert from "node:assert/strict";
import { describe } from "node:test";
import { cliOnTerminal, commandsOn } from "../../support/cli.js";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";

const database = await createDatabase();
const client = await database.connect();
const { env } = commandsOn(database);

/** Reverses the text that follows it on a terminal. */
const hostile = "a\u202eb";
const shownAs = String.raw`a\u202eb`;

await client.query(
  `INSERT INTO task (input, "group", key, rule, data, plan) VALUES ('SELECT 1', $1, $1, NULL, $1, '2100-01-01'), ('SELECT 2', $1, NULL, '0 0 1 1 *', $1, DEFAULT),
     ('SELECT 3', $1, NULL, NULL, $1, now())`,
  [hostile],
);
await client.query("INSERT INTO task (input, state, error, output, \"group\") VALUES ($1, 'FAIL', $1, $1, $1)", [
  hostile,
]);
await client.query(`INSERT INTO task_pause ("group", reason) VALUES ($1, $1)`, [hostile]);

describe("text that changes how other text is shown is escaped on a terminal", () => {
  for (const args of [
    ["list"],
    ["list", "--group", hostile],
    ["list", "--schedules"],
    ["show", "1"],
    ["show", "4", "--full"],
    ["show", "--key", `${hostile}!`],
    ["why", "1"],
    ["why", "3"],
    ["why", "4"],
    ["wait", "4"],
    ["groups"],
    ["status"],
    ["doctor"],
    ["next", hostile],
    ["add", "SELECT 1", "--group", hostile],
    ["add", "SELECT 1", "--key", hostile],
    ["add", "SELECT 1", "--key", hostile, "--if-key-taken", "skip"],
    ["add", "SELECT 1", "--max", hostile],
    ["add", "SELECT 1", "--set", `${hostile}=1`],
    ["stop", "--key", `${hostile}!`],
    ["run-now", "--key", hostile],
    ["retry", "--state", "FAIL", "--group", hostile],
    ["delete", "--key", `${hostile}!`],
    ["pause", "--group", hostile],
    ["pause", hostile],
    ["resume", "--group", `${hostile}!`],
    ["prune", "--older", "1 day", "--group", hostile],
    ["prune", "--older", hostile],
    ["list", "--table", hostile],
    ["list", "--entry", hostile],
    ["check", "--config", hostile],
    [hostile],
  ]) {
    test(`pg-task ${args.join(" ").replaceAll(hostile, shownAs)}`, async () => {
      const { shown } = await cliOnTerminal(args, { env });
      const json = await cliOnTerminal([...args, "--json"], { env });
      assert.ok(shown.length > 0);
      assert.ok(!`${shown}${json.shown}`.includes("\u202e"), JSON.stringify([shown, json.shown]));
    });
  }
});
