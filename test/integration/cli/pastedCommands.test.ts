import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeEach } from "node:test";
import { withTableOptions } from "../../../src/cli/support/pastedCommands.js";
import { cli } from "../../support/cli.js";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { ensureTaskTable } from "../../support/taskTables.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";

const database = await createDatabase();
await ensureTaskTable(database.target, { table: "other" });
const client = await database.connect();
const cwd = await temporaryFolder();
const own = { data: database.target.database, user: database.target.user };
const config = JSON.stringify({ url: database.url, "pg_task.json": [own, { ...own, table: "other" }] });
await writeFile(join(cwd, "pg_task.json"), config);
await writeFile(join(cwd, "my file.json"), config);

beforeEach(() => client.query("TRUNCATE task, other RESTART IDENTITY"));

/** Returns the first remedy that `why` prints. */
async function remedyOf(...args: string[]): Promise<string> {
  const { stdout } = await cli(["why", ...args], { cwd });
  return stdout.split("\n")[0]?.split("\t")[2] ?? "";
}

test("a command that why recommends acts on the table that why has read", async () => {
  for (const table of ["task", "other"]) {
    await client.query(`INSERT INTO ${table} (id, input, plan, key) VALUES (1, '', '2199-01-01', 'k')`);
  }
  const remedy = await remedyOf("--entry", "2", "--key", "k");
  assert.equal(remedy, "pg-task run-now --entry 2 1 plans it for now");
  const [, command = "", ...args] = remedy.replace(/ plans .*/, "").split(" ");
  assert.equal((await cli([command, ...args], { cwd })).stdout, "1\tchanged\tdue now\n");
  const { rows } = await client.query(
    "SELECT t.plan <= now() AS task, o.plan <= now() AS other FROM task AS t JOIN other AS o USING (id)",
  );
  assert.deepEqual(rows, [{ task: false, other: true }]);
  assert.equal(await remedyOf("-t", "task", "1"), "pg-task run-now --table task 1 plans it for now");
  assert.equal(await remedyOf("1"), "pg-task run-now 1 plans it for now");
});

test("so do the commands that the results of changes recommend, also in JSON", async () => {
  await client.query("INSERT INTO other (id, input, state) VALUES (1, '', 'DONE')");
  const args = ["run-now", "1", "--config", "my file.json", "--table", "other"];
  const text = "is DONE: pg-task retry --config 'my file.json' --table other 1 runs it again";
  assert.equal((await cli(args, { cwd })).stdout, `1\trefused\t${text}\n`);
  assert.equal(JSON.parse((await cli([...args, "--json"], { cwd })).stdout).tasks[0].text, text);
});

const command = (ids: string): string => `pg-task stop --table other ${ids} && pg-task retry --table other ${ids}`;

test("a task in WORK without a session has one remedy everywhere, and it works", async () => {
  // Triggers refuse such rows.
  await client.query(`BEGIN; SET LOCAL session_replication_role = replica;
    INSERT INTO other (id, input, state) VALUES (1, '', 'WORK'), (2, '', 'TAKE'); COMMIT`);
  const options = ["--table", "other"];
  assert.equal(await remedyOf("1", ...options), `${command("1")} runs it`);
  for (const change of ["retry", "run-now"]) {
    const { stdout } = await cli([change, "1", "2", ...options], { cwd });
    const refusal = (id: string, state: string): string =>
      `${id}\trefused\tis in ${state}, but no session owns it: ${command(id)} runs it\n`;
    assert.equal(stdout, refusal("1", "WORK") + refusal("2", "TAKE"));
  }
  const { stdout } = await cli(["doctor", ...options], { cwd });
  assert.ok(stdout.includes(`\t${command("1,2")} runs what never had a session (1, 2)\n`), stdout);
  for (const part of command("1,2").split(" && ")) {
    assert.equal((await cli(part.split(" ").slice(1), { cwd })).code, 0);
  }
  const { rows } = await client.query("SELECT state::text, ready FROM other ORDER BY id");
  assert.deepEqual(
    rows,
    [1, 2].map(() => ({ state: "PLAN", ready: true })),
  );
});

/** Returns what doctor recommends about the leader and about schedules. */
const remedies = async (...args: string[]): Promise<string[]> => {
  const { stdout } = await cli(["doctor", ...args, "--json"], { cwd });
  const sections: { checks: { name: string; remedy?: string }[] }[] = JSON.parse(stdout).sections;
  return sections
    .flatMap(({ checks }) => checks)
    .flatMap(({ name, remedy }) => (name === "schedules" || name === "leader" ? [remedy ?? ""] : []));
};

/** Returns what doctor recommends for a schedule whose last run failed. */
const failedRemedy = (options: string): string =>
  `pg-task list ${options} --schedules shows the last runs and tries, pg-task list ${options} --state FAIL the errors of runs`;

test("doctor names in each remedy the table that it is about", async () => {
  for (const table of ["task", "other"]) {
    await client.query(`INSERT INTO ${table} (id, input, "group", repeat, state) VALUES (1, '', 'g', '1 day', 'FAIL')`);
    await client.query(
      `INSERT INTO ${table} (id, input, "group", repeat, parent, plan) VALUES (2, '', 'g', '1 day', 1, '2199-01-01')`,
    );
  }
  assert.deepEqual(await remedies(), [
    "run pg-task start",
    failedRemedy("--table task"),
    failedRemedy("--table other"),
  ]);
  assert.deepEqual(await remedies("--entry", "2"), ["run pg-task start", failedRemedy("--entry 2")]);
  assert.deepEqual(await remedies("--config", "my file.json"), [
    "run pg-task start --config 'my file.json'",
    failedRemedy("--config 'my file.json' --table task"),
    failedRemedy("--config 'my file.json' --table other"),
  ]);
});

test("status names the table whose paused schedule the command resumes", async () => {
  await client.query("INSERT INTO other (id, input, repeat, plan) VALUES (1, '', '1 day', 'infinity')");
  const { stdout } = await cli(["status"], { cwd });
  assert.match(stdout, /^ {2}paused {5}1 schedule: resume with pg-task resume --table other --schedule 1$/m);
});

test("status names the configuration for which no process leads", async () => {
  const { stdout } = await cli(["status", "--config", "my file.json", "--table", "other"], { cwd });
  assert.match(stdout, /^leader {5}none: run pg-task start --config 'my file\.json'$/m);
});

test("only commands get options, and each of them those that it takes", () => {
  const options = { config: "it's.json", entry: "2" };
  const given = String.raw`--config 'it'\''s.json'`;
  for (const [text, expected] of [
    ["pg-task opens one; pg-task retries; the pg-task process; pg-task stopped", null],
    [
      "pg-task run-now 5, pg-task resume --group a",
      `pg-task run-now ${given} --entry 2 5, pg-task resume ${given} --entry 2 --group a`,
    ],
    ["run pg-task start, or see pg-task check", `run pg-task start ${given}, or see pg-task check ${given}`],
  ] as const) {
    assert.equal(withTableOptions(text, options), expected ?? text);
    assert.equal(withTableOptions(text, {}), text);
  }
});
