import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe } from "node:test";
import { cli, cliOnTerminal, commandsOn } from "../../support/cli.js";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { projectPath } from "../../support/project.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";

const database = await createDatabase();
const control = await createDatabase("empty");
const client = await database.connect();
const { env } = commandsOn(database);

// Built from a string because the linter forbids control characters in a regular expression literal.
const colour = new RegExp(String.raw`\x1b\[[0-9;]*m`);

/** The arguments of each command that has `--json`, without it. The first word of the documented name is the command. */
const commands: Readonly<Record<string, readonly string[]>> = {
  init: ["init"],
  check: ["check"],
  status: ["status"],
  list: ["list"],
  "list --schedules": ["list", "--schedules"],
  show: ["show", "1"],
  next: ["next", "0 4 * * *"],
  add: ["add", "SELECT 5"],
  wait: ["wait", "2"],
  apply: ["apply", "jobs.json"],
  import: ["import", "crontab", "crontab"],
  stop: ["stop", "1"],
  retry: ["retry", "2"],
  "run-now": ["run-now", "3"],
  delete: ["delete", "3"],
  pause: ["pause", "--group", "nobody"],
  resume: ["resume", "--group", "nobody"],
  facade: ["facade", "cron"],
  release: ["release", database.target.database, "--config", "two.json"],
  serve: ["serve", database.target.database, "--config", "two.json"],
  "accept-copy": ["accept-copy"],
  prune: ["prune", "--older", "1 day", "--yes"],
  groups: ["groups"],
  why: ["why", "1"],
  doctor: ["doctor"],
};

async function fillTable(): Promise<string> {
  await client.query("TRUNCATE task RESTART IDENTITY");
  await client.query(
    `INSERT INTO task (input, state, plan, "group", error) VALUES ('SELECT 1', 'PLAN', now(), 'red' || chr(27) || '[31m', NULL),
       ('SELECT 2', 'FAIL', now(), 'b', 'ERROR'), ('SELECT 3', 'PLAN', 'infinity', 'c', NULL)`,
  );
  await client.query("INSERT INTO task (input, rule) VALUES ('SELECT 4', '0 4 1 1 *')");
  const folder = await temporaryFolder();
  await writeFile(join(folder, "jobs.json"), JSON.stringify({ jobs: { a: { repeat: "1 h", input: "SELECT 1" } } }));
  await writeFile(join(folder, "crontab"), "0 3 * * * backup\n");
  const two = { url: control.url, "pg_task.json": [{ data: database.target.database, user: database.target.user }] };
  await writeFile(join(folder, "two.json"), JSON.stringify(two));
  return folder;
}

/** Returns the keys of an object; for a list, those of its elements. */
function keysOf(value: unknown): string[] {
  const [first] = Array.isArray(value) ? value : [value];
  return typeof first === "object" && first !== null ? Object.keys(first) : [];
}

/** The documented keys of the commands: at the top, and of what the first key that holds a list contains. */
const documented = new Map(
  [
    ...readFileSync(projectPath("docs/cli.md"), "utf8").matchAll(
      /^\| `([a-z, `-]+)` +\| `([a-zA-Z, `]+)` +\| (.*?) +\|$/gm,
    ),
  ].flatMap(([, names = "", top = "", inner = ""]) => {
    const keys = {
      top: top.split("`, `").toSorted(),
      inner: [...inner.matchAll(/`(\w+)`/g)].map(([, key = ""]) => key).toSorted(),
    };
    return names.split("`, `").map((name) => [name, keys] as const);
  }),
);

describe("--json", () => {
  for (const [name, args] of Object.entries(commands)) {
    test(`${name}: the documented keys, no colours, the same on a terminal`, async () => {
      const piped = await cli([...args, "--json"], { env, cwd: await fillTable() });
      assert.ok(!piped.stdout.includes("\x1b"), piped.stdout);
      const value: Record<string, unknown> = JSON.parse(piped.stdout);
      const list = Object.values(value).find((each) => Array.isArray(each));
      assert.deepEqual({ top: keysOf(value).toSorted(), inner: keysOf(list).toSorted() }, documented.get(name));
      const { shown, code } = await cliOnTerminal([...args, "--json"], { env, cwd: await fillTable() });
      assert.ok(!shown.includes("\x1b"), shown);
      assert.equal(code, piped.code);
      assert.deepEqual(keysOf(JSON.parse(shown)), keysOf(value));
    });
  }

  test("every command with the option is tested and documented", async () => {
    const { stdout } = await cli(["manual"], {});
    const sections = stdout.split(/^\.SS "/m).slice(1);
    const withJson = sections.flatMap((section) =>
      section.includes("\\-\\-json") ? (/^[a-z\\-]+/.exec(section)?.[0] ?? "").replaceAll("\\", "") : [],
    );
    const tested = new Set(Object.values(commands).map(([command]) => command));
    // The lines of `watch --json` are tested in watch.test.ts.
    assert.deepEqual(
      withJson.filter((name) => !tested.has(name)),
      ["watch"],
    );
    assert.deepEqual([...documented.keys()], Object.keys(commands));
  });

  test("NO_COLOR turns off all colours on a terminal, whatever its value, unless it is empty", async () => {
    const cwd = await fillTable();
    await writeFile(join(cwd, "pg_task.json"), JSON.stringify({ url: database.url }));
    for (const args of Object.values(commands)) {
      const { shown } = await cliOnTerminal(args, { env: { NO_COLOR: "0" }, cwd });
      assert.doesNotMatch(shown, colour, args.join(" "));
    }
    assert.match((await cliOnTerminal(["doctor"], { env: { NO_COLOR: "" }, cwd })).shown, colour);
  });
});
