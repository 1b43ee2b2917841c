import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe } from "node:test";
import { commands } from "../../../src/cli/commands/index.js";
import { createDatabase } from "../../support/database.js";
import { cli, cliOnTerminal, commandsOn, linesOf } from "../../support/cli.js";
import { test } from "../../support/limitedTest.js";
import { ensureTaskTable } from "../../support/taskTables.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";

const database = await createDatabase();
const empty = await createDatabase("empty");
const { url } = database;
const client = await database.connect();
const { env, run, onTerminal, shownBy } = commandsOn(database);
const huge = "9223372036854775807";

const ids = (text: string): (string | undefined)[] => linesOf(text).map((line) => line.split("\t")[0]);

/** Text that would clear the screen, change colours, beep, and reverse the direction of text. */
const hostile = "a\x1b[2J\x1b[31m\x07\x9b\u202e\tb\nc\\d\0".replace("\0", "");

await client.query(
  `INSERT INTO task (id, parent, input, "group", plan, state, start, stop, output, error, data, remote, repeat) VALUES
     (1, NULL, 'SELECT 1', 'first', '2024-01-01 00:00+00', 'DONE', '2024-01-01 00:00+00', '2024-01-01 00:00:01.5+00', '1', NULL, NULL, NULL, '1 day'),
     (2, 1, 'SELECT ''Needle''', 'second', '2024-01-02 00:00+00', 'FAIL', NULL, NULL, '', E'ERROR:  no\\nSTATEMENT:  x', NULL, NULL, '0'),
     (3, 2, 'SELECT 3', 'second', '2999-01-01 00:00+00', 'PLAN', NULL, NULL, NULL, NULL, 'a needle', 'host=h password=''se\\'' cret'' user=u', '0'),
     (4, 3, $1, $1, '2024-01-04 00:00+00', 'STOP', NULL, NULL, $1, NULL, NULL, 'postgres://u:secret@h/d', '0'),
     (${huge}, NULL, 'SELECT 5', 'last', '2024-01-05 00:00+00', 'DONE', NULL, NULL, $2, NULL, NULL, NULL, '0')`,
  [hostile, "line\n".repeat(500)],
);
await client.query("ALTER TABLE task ADD COLUMN price numeric DEFAULT 1.10, ADD COLUMN tags jsonb DEFAULT '[1]'");

/** Returns the ids of the chain of tasks that a terminal shows. */
const inChain = (shown: string): (string | undefined)[] =>
  [...shown.matchAll(/^(70\d\d) {2}PLAN/gm)].map(([, id]) => id);

describe("pg-task list", () => {
  test("lists the newest first, one line each, without a terminal", async () => {
    const { code, stdout, stderr } = await run("list");
    assert.deepEqual([code, stderr, ids(stdout)], [0, "", [huge, "4", "3", "2", "1"]]);
    assert.equal(linesOf(stdout).at(-1), "1\tDONE\tfirst\t2024-01-01T00:00:00+00:00\t1500\tSELECT 1\t1\t\\N\t\\N");
  });

  for (const [args, expected] of [
    ["--state done", [huge, "1"]],
    ["--state FAIL,STOP", ["4", "2"]],
    ["--group second", ["3", "2"]],
    ["--text NEEDLE", ["3", "2"]],
    ["--text %", []],
    ["--since 2024-01-02T00:00+00 --until 2024-01-05T00:00+00", ["4", "2"]],
    ["--limit 2", [huge, "4"]],
    ["--limit 2 --before 4", ["3", "2"]],
    [`--before ${huge} --state DONE`, ["1"]],
    ["--group nobody's", []],
  ] as const) {
    test(`filters by ${args}`, async () => {
      const { code, stdout } = await run("list", ...args.split(" "));
      assert.deepEqual([code, ids(stdout)], [0, expected]);
    });
  }

  test("filters by key", async () => {
    await client.query(
      "UPDATE task SET key = 'order 4' WHERE id IN (2, 3); UPDATE task SET key = 'order 42' WHERE id = 4",
    );
    for (const [args, expected] of [
      [[], ["3", "2"]],
      [["--state", "PLAN"], ["3"]],
      [["--state", "FAIL"], ["2"]],
      [["--group", "first"], []],
    ] as const) {
      const { code, stdout } = await run("list", "--key", "order 4", ...args);
      assert.deepEqual([code, ids(stdout)], [0, expected], args.join(" "));
    }
    const { stdout } = await run("list", "--limit", "2");
    assert.deepEqual(
      linesOf(stdout).map((line) => line.split("\t").at(-2)),
      ["\\N", "order 42"],
    );
    const shown = await shownBy(["list", "--limit", "2"], { columns: 200 });
    assert.match(shown, /^ +id {2}state +group +key +plan +took +input +result\n/);
    assert.match(shown, /STOP .* order 42 +2024-01-04 00:00:00 /);
    const found = JSON.parse((await run("show", "--key", "order 4", "--json")).stdout);
    assert.equal(found.task.id, "3");
    assert.match((await run("show", "--key", "order 42")).stdout, /^id\t4\n/m);
    const missing = await run("show", "--key", "nobody's");
    assert.deepEqual(missing, { code: 1, stdout: "", stderr: `pg-task: no task with the key "nobody's"\n` });
    await client.query("UPDATE task SET key = NULL");
  });

  test("prints JSON with ids as text, and where the next page starts", async () => {
    const { stdout } = await run("list", "--json", "-n", "4");
    const { tasks, before } = JSON.parse(stdout);
    assert.equal(tasks[0].id, huge);
    assert.equal(before, "2");
    assert.equal(tasks[1].group, hostile);
    assert.equal(tasks[0].output.length, 1000);
    assert.equal(JSON.parse((await run("list", "--json")).stdout).before, null);
  });

  for (const columns of [45, 70, 110]) {
    test(`prints a table with titles on a terminal of ${columns} columns, no line wider`, async () => {
      const { code, shown } = await cliOnTerminal(["list", "-n", "4"], {
        env: { ...env, NO_COLOR: "1" },
        columns,
      });
      assert.equal(code, 0);
      assert.match(shown, columns < 110 ? /^ +id {2}state/ : /^ +id {2}state +group +plan +took +input +result\n/);
      assert.match(shown, /\nmore: --before 2\n$/);
      for (const line of linesOf(shown)) assert.ok(line.length <= columns, line);
    });
  }

  for (const command of [["list"], ["show", "4"], ["groups"]]) {
    test(`escapes control characters in texts on a terminal: ${command.join(" ")}`, async () => {
      if (command[0] === "groups") await client.query("UPDATE task SET state = 'PLAN' WHERE id = 4");
      const { shown } = await cliOnTerminal(command, {
        env: { ...env, NO_COLOR: "1" },
        columns: 200,
      });
      await client.query("UPDATE task SET state = 'STOP' WHERE id = 4");
      assert.ok(shown.includes(String.raw`a\x1b[2J\x1b[31m\x07\x9b\u202e`), shown);
      // eslint-disable-next-line no-control-regex
      assert.doesNotMatch(shown, /[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]/);
    });
  }

  test("prints each task on one line in COPY's text format without a terminal", async () => {
    const { stdout } = await run("list", "--state", "STOP");
    assert.equal(linesOf(stdout).length, 1);
    const [, , group, , took, input] = stdout.split("\t");
    assert.equal(group, input);
    assert.ok(input?.endsWith(String.raw`\tb\nc\\d`), stdout);
    assert.equal(took, String.raw`\N`);
  });

  for (const [args, said] of [
    [["--state", "OPEN"], /expected states from PLAN, TAKE/],
    [["--limit", "0"], /^pg-task: --limit: expected a whole number from 1 to 1000000, got "0"\n$/],
    [["-n", "many"], /^pg-task: --limit: expected a whole number from 1 to 1000000, got "many"\n$/],
    [["--before", "9223372036854775808"], /^pg-task: --before: expected a task id, got "9223372036854775808"\n$/],
    [["--before", "1e3"], /expected a task id/],
    [["--since", "whenever"], /invalid value.*whenever/],
    [["--data"], /^pg-task: unknown option '--data': pg-task list --help lists the options\n$/],
    [["--stat", "FAIL"], /^pg-task: unknown option '--stat'\n\(Did you mean --state\?\)\n$/],
    [["--state", "STOP", "-s", "DONE"], /^pg-task: expected --state once, got it more than once\n$/],
    [["-n", "1", "--limit=2"], /^pg-task: expected --limit once, got it more than once\n$/],
  ] as const) {
    test(`refuses ${args.join(" ")} with a one-line error and exit code 2`, async () => {
      const { code, stdout, stderr } = await run("list", ...args);
      assert.deepEqual([code, stdout], [2, ""]);
      assert.match(stderr, said);
      assert.doesNotMatch(stderr, /\n\s+at /);
    });
  }
});

test("a list of a key that nothing has says so on standard error", async () => {
  for (const [args, said] of [
    [["--key", "nobody's"], "no matching tasks\n"],
    [["--schedules", "--key", "nobody's"], "no matching schedules\n"],
    [["--group", "nobody"], ""],
    [["--schedules", "--group", "nobody"], ""],
  ] as const) {
    assert.deepEqual(await run("list", ...args), { code: 0, stdout: "", stderr: said });
  }
  const json = await run("list", "--key", "nobody's", "--json");
  assert.deepEqual([JSON.parse(json.stdout).tasks, json.stderr], [[], ""]);
});

async function chain(): Promise<string[]> {
  const { stdout } = await run("show", "4", "--json");
  return JSON.parse(stdout).ancestors.map(({ id }: { id: string }) => id);
}

describe("pg-task show", () => {
  test("shows every column, including user-defined ones, and the chain", async () => {
    const { code, stdout } = await run("show", "2", "--json");
    const { task, ancestors, ancestorsComplete, descendants, descendantsComplete } = JSON.parse(stdout);
    assert.equal(code, 0);
    const { rows } = await client.query<{ name: string }>(
      "SELECT attname AS name FROM pg_attribute WHERE attrelid = 'task'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
    );
    assert.deepEqual(
      Object.keys(task),
      rows.map(({ name }) => name),
    );
    assert.deepEqual([task.id, task.parent, task.state, task.max, task.delete], ["2", "1", "FAIL", 0, true]);
    assert.deepEqual([task.price, task.tags], ["1.10", [1]]);
    assert.deepEqual(
      ancestors.map(({ id }: { id: string }) => id),
      ["1"],
    );
    assert.deepEqual(
      descendants.map(({ id, depth }: { id: string; depth: number }) => [id, depth]),
      [
        ["3", 1],
        ["4", 2],
      ],
    );
    assert.deepEqual([ancestorsComplete, descendantsComplete], [true, true]);
  });

  test("follows the chain of parents to its beginning, even if it is a cycle", async () => {
    assert.deepEqual(await chain(), ["3", "2", "1"]);
    await client.query("UPDATE task SET parent = 4 WHERE id = 1");
    assert.deepEqual(await chain(), ["3", "2", "1"]);
    await client.query("UPDATE task SET parent = NULL WHERE id = 1");
  });

  for (const id of ["3", "4"]) {
    test(`masks the password in remote: task ${id}`, async () => {
      for (const args of [
        ["show", id],
        ["show", id, "--json"],
        ["list", "--json"],
      ]) {
        const { stdout } = await run(...args);
        assert.doesNotMatch(stdout, /se.{0,3} ?cret/);
        assert.match(stdout, /\*\*\*/);
      }
    });
  }

  test("accepts ids beyond safe integers", async () => {
    const { stdout } = await run("show", huge);
    assert.match(stdout, new RegExp(`^id\\t${huge}$`, "m"));
  });

  test("truncates a long output on a terminal, unless --full is given", async () => {
    const short = await onTerminal("show", huge);
    assert.match(short.shown, /… 2,401 more characters \(see --full\)/);
    const full = await onTerminal("show", huge, "--full");
    assert.ok(linesOf(full.shown).length > 500);
  });

  test("shows twenty tasks in each direction of a long chain, and all with --full", async () => {
    await client.query(
      `INSERT INTO task (id, parent, input, plan) SELECT i, nullif(i - 1, 7000), 'SELECT 1', 'infinity'
       FROM generate_series(7001, 7061) AS i`,
    );
    const short = await cliOnTerminal(["show", "7031"], { env: { ...env, NO_COLOR: "1" } });
    assert.deepEqual(
      [inChain(short.shown).length, inChain(short.shown)[0], inChain(short.shown).at(-1)],
      [40, "7011", "7051"],
    );
    assert.equal(short.shown.match(/^… 10 more \(see --full\)$/gm)?.length, 2);
    const full = await cliOnTerminal(["show", "7031", "--full"], {
      env: { ...env, NO_COLOR: "1" },
    });
    assert.equal(inChain(full.shown).length, 60);
    assert.doesNotMatch(full.shown, /…/);
    await client.query("DELETE FROM task WHERE id BETWEEN 7001 AND 7061");
  });

  test("shows the main columns, times to the millisecond, the duration and the long columns first", async () => {
    const { shown } = await cliOnTerminal(["show", "1"], { env: { ...env, NO_COLOR: "1", TZ: "Asia/Tokyo" } });
    assert.deepEqual(
      linesOf(shown)
        .slice(0, 11)
        .map((line) => line.trimEnd().replace(/ {2,}/, "  ")),
      [
        "id  1",
        "state  DONE",
        "group  first",
        "plan  2024-01-01 09:00:00.000 +09:00",
        "start  2024-01-01 09:00:00.000 +09:00",
        "stop  2024-01-01 09:00:01.500 +09:00",
        "took  1.5 s",
        "input",
        "  SELECT 1",
        "output",
        "  1",
      ],
    );
  });

  test("lists the errors of earlier tries on a terminal, and escapes what they contain", async () => {
    const entry = {
      start: null,
      stop: "2024-01-01T00:00:00+00:00",
      sqlstate: "40001",
      error: `${hostile}\nDETAIL: more`,
    };
    await client.query("UPDATE task SET attempt = 1, errors = $1 WHERE id = 2", [JSON.stringify([entry])]);
    const short = await onTerminal("show", "2");
    const [line = "", ...after] = linesOf(short.shown.split(/errors.*\n/)[1] ?? "");
    assert.match(line, /^ {2}(2024-01-01|2023-12-31) \d\d:\d\d:\d\d\.000 [+-]\d\d:\d\d {2}40001 {2}a\\x1b/);
    assert.ok(!after.some((each) => each.includes("DETAIL: more")));
    const full = await onTerminal("show", "2", "--full");
    assert.match(full.shown, /DETAIL: more/);
    const { task } = JSON.parse((await run("show", "2", "--json")).stdout);
    assert.deepEqual(task.errors, [entry]);
    await client.query("UPDATE task SET errors = '{}' WHERE id = 2");
    assert.match((await onTerminal("show", "2")).shown, /errors\s.*\{\}$/m);
    await client.query("UPDATE task SET attempt = NULL, errors = NULL WHERE id = 2");
  });

  test("says which attempt it is in the words of the page", async () => {
    await client.query("UPDATE task SET attempt = 3, retry = 3 WHERE id = 2");
    const shown = await shownBy(["show", "2"]);
    assert.match(shown, /^attempt +3 \(failed before attempt 4 of 4\)$/m);
    await client.query("UPDATE task SET attempt = NULL, retry = NULL WHERE id = 2");
  });

  test("reports a missing task with exit code 1", async () => {
    assert.deepEqual(await run("show", "77"), {
      code: 1,
      stdout: "",
      stderr: "pg-task: no task 77\n",
    });
  });
});

describe("pg-task groups", () => {
  test("shows running and waiting tasks of each group", async () => {
    const { code, stdout } = await run("groups");
    assert.deepEqual([code, stdout], [0, "second\t0\t0\t1\t2999-01-01T00:00:00+00:00\tfalse\t0\n"]);
    const { groups } = JSON.parse((await run("groups", "--json")).stdout);
    assert.deepEqual(groups, [
      {
        group: "second",
        running: 0,
        waiting: { value: 1, exact: true, least: 1 },
        due: { value: 0, exact: true, least: 0 },
        oldest: "2999-01-01T00:00:00+00:00",
        oldestDueMs: null,
        paused: false,
        gapMs: 0,
        done: 0,
        failed: 1,
        other: 0,
      },
    ]);
  });
});

describe("pg-task status", () => {
  test("shows a missing leader and the backlog", async () => {
    const { code, stdout } = await run("status");
    assert.equal(code, 0);
    assert.match(stdout, /^leader {5}none: run pg-task start$/m);
    assert.match(stdout, /^ {2}planned {4}1, the next 2999-01-01 00:00:00$/m);
    assert.match(stdout, /^ {2}states {5}DONE 2 {2}FAIL 1 {2}PLAN 1 {2}STOP 1$/m);
  });
});

describe("a command", () => {
  test("says how to create a missing table, with exit code 4", async () => {
    const { code, stderr } = await cli(["list"], { env: { DATABASE_URL: empty.url } });
    assert.equal(code, 4);
    assert.match(stderr, /^pg-task: no table "public"."task" in database test_\w+: pg-task start creates or adopts it/);
  });

  test("says that no role can have a name that PostgreSQL reserves", async () => {
    const { code, stderr } = await cli(["list"], {
      env: { DATABASE_URL: empty.url.replace("//postgres@", "//pg_nobody@") },
    });
    assert.equal(code, 3);
    assert.match(
      stderr,
      /\(SQLSTATE 28000\): PostgreSQL reserves names that begin with pg_, so this role cannot be created: /,
    );
  });

  test("points to doctor if a column of the table was renamed", async () => {
    // Other tests have inserted ids that the sequence does not know.
    await client.query("SELECT setval('task_id_seq', 1000000)");
    await client.query("ALTER TABLE task RENAME COLUMN output TO result");
    try {
      for (const args of [["list"], ["add", "SELECT 1", "--wait"]]) {
        const { stderr } = await run(...args);
        assert.match(stderr, /does not exist .*: pg-task doctor says which columns the table lacks$/m, args[0]);
      }
      const { stdout } = await run("doctor");
      assert.match(stdout, /it no longer has the column output/);
    } finally {
      await client.query("ALTER TABLE task RENAME COLUMN result TO output");
    }
  });

  test("says how to adopt a table that is not adopted, or what is in the way", async () => {
    const other = await empty.connect();
    await other.query("CREATE TABLE task (id int)");
    const { stderr: refused } = await cli(["list"], { env: { DATABASE_URL: empty.url } });
    assert.match(refused, /is not adopted yet: .* was not created by pg-task: it has no column plan/);
    await other.query("DROP TABLE task; CREATE TABLE task (id bigserial, plan timestamptz, state text, input text)");
    const { code, stderr } = await cli(["list"], { env: { DATABASE_URL: empty.url } });
    await other.query("DROP TABLE task");
    assert.equal(code, 4);
    assert.match(stderr, /is not adopted yet: .*pg-task check shows what would happen, or what is in the way/);
  });

  test("reports an unreachable server in one line, with exit code 3", async () => {
    const { code, stderr } = await cli(["status"], {
      env: { DATABASE_URL: "postgresql://x@127.0.0.1:1/x" },
    });
    assert.equal(code, 3);
    const list = await cli(["list"], {
      env: { DATABASE_URL: "postgresql://x:geheim@127.0.0.1:1/x" },
    });
    assert.equal(list.code, 3);
    assert.match(list.stderr, /^pg-task: no connection to the server at 127.0.0.1, port 1 .*ECONNREFUSED.*\n$/);
    assert.doesNotMatch(list.stderr + stderr, /geheim|\n\s+at /);
  });

  test("reports that no server is configured", async () => {
    const { code, stderr } = await cli(["list"], { cwd: await temporaryFolder() });
    assert.equal(code, 2);
    assert.match(stderr, /no embedded server running in this folder; give --config/);
  });

  test("needs only the variables of the entries that it uses", async () => {
    const cwd = await temporaryFolder();
    const file = join(cwd, "pg_task.json");
    const own = { data: database.target.database, user: database.target.user };
    const secret = { ...own, table: "secret", password: { env: "NOT_SET" } };
    const config = { url, "pg_http.token": { env: "NO_TOKEN" }, "pg_task.json": [own, secret] };
    await writeFile(file, JSON.stringify(config));
    const missing =
      "pg_task.json[1].password: expected the environment variable NOT_SET to hold the password, got no such variable";
    assert.equal((await cli(["list", "--entry", "1"], { cwd })).code, 0);
    assert.match((await cli(["list"], { cwd })).stderr, /^pg-task: using public\.task in \w+;.*\n$/);
    for (const command of [["list"], ["watch", "--json"], ["stop", "1"]]) {
      const { code, stdout, stderr } = await cli([...command, "--table", "secret"], { cwd });
      assert.deepEqual([code, stdout], [2, ""]);
      assert.equal(stderr, `pg-task: ${file}: ${missing}\n`);
    }
    // Any server knows the rule, so one that can be reached will do.
    assert.equal((await cli(["next", "0 4 * * *", "--entry", database.target.database], { cwd })).code, 0);
    assert.equal((await cli(["next", "0 4 * * *", "--table", "secret"], { cwd })).code, 2);
    const { stdout: names } = await cli(["complete-values", "fish", "table"], { cwd });
    assert.deepEqual(names.split("\0"), ["task", "public.task", "secret", "public.secret", ""]);
    const status = await cli(["status", "--json"], { cwd });
    const { tables }: { tables: { error: { code: string; message: string } | null }[] } = JSON.parse(status.stdout);
    assert.deepEqual([status.code, tables[0]?.error, tables[1]?.error?.code], [2, null, "CONFIG_INVALID"]);
    const doctor = await cli(["doctor"], { cwd });
    assert.ok(doctor.stdout.includes(`\ttable\t${file}: ${missing}\t`), doctor.stdout);
    assert.match(doctor.stdout, /public\.task\tindexes\t/);
    for (const command of ["check", "start"]) {
      const { code, stderr } = await cli([command], { cwd });
      assert.equal(code, 2, command);
      assert.match(stderr, /pg_http\.token: expected the environment variable NO_TOKEN to hold the token/);
      const withToken = await cli([command], { cwd, env: { NO_TOKEN: "0123456789abcdef" } });
      assert.equal(withToken.code, 2, command);
      assert.ok(withToken.stderr.includes(missing), withToken.stderr);
    }
  });

  test("uses pg_task.default, or the first table, if several are configured, and says so", async () => {
    await ensureTaskTable(database.target, { table: "other" });
    const cwd = await temporaryFolder();
    const own = { data: database.target.database, user: database.target.user };
    const config = { url, "pg_task.json": [own, { ...own, table: "other" }] };
    await writeFile(join(cwd, "pg_task.json"), JSON.stringify(config));
    const first = await cli(["list", "--json"], { cwd });
    assert.equal(first.code, 0);
    assert.match(first.stderr, /^pg-task: using public\.task in \w+; --entry or --table choose another table\n$/);
    assert.notEqual(JSON.parse(first.stdout).tasks.length, 0);
    const ambiguous = await cli(["list", "--entry", database.target.database], { cwd });
    assert.equal(ambiguous.code, 2);
    assert.match(
      ambiguous.stderr,
      /expected one table, got 2: choose with --entry.*\n {2}1 .*public\.task.*\n {2}2 .*public\.other/,
    );
    for (const args of [
      ["-e", "2"],
      ["-t", "other"],
      ["-t", "public.other"],
    ]) {
      assert.deepEqual(await cli(["list", ...args], { cwd }), { code: 0, stdout: "", stderr: "" });
    }
    for (const name of ["2", "other", "public.other"]) {
      await writeFile(join(cwd, "pg_task.json"), JSON.stringify({ ...config, "pg_task.default": name }));
      const { stdout, stderr } = await cli(["list"], { cwd });
      assert.equal(stdout, "");
      assert.match(stderr, /^pg-task: using public\.other in/);
    }
    for (const [name, count] of [
      ["nosuch", "none"],
      [database.target.database, "2"],
    ] as const) {
      await writeFile(join(cwd, "pg_task.json"), JSON.stringify({ ...config, "pg_task.default": name }));
      const { code, stderr } = await cli(["check"], { cwd });
      assert.equal(code, 2);
      assert.ok(
        stderr.includes(
          `pg_task.default: expected the number, key, database or table of one entry, got "${name}", which names ${count}`,
        ),
      );
    }
    await writeFile(join(cwd, "pg_task.json"), JSON.stringify(config));
    const none = await cli(["list", "-t", "nosuch"], { cwd });
    assert.equal(none.code, 2);
    assert.match(none.stderr, /no table of the configuration matches --entry and --table/);
    const { tables } = JSON.parse((await cli(["status", "--json"], { cwd })).stdout);
    assert.deepEqual(
      tables.map(({ table }: { table: string }) => table),
      ["task", "other"],
    );
  });

  for (const command of Object.keys(commands)) {
    test(`has a help text: ${command} --help`, async () => {
      const { code, stdout } = await cli([command, "--help"]);
      assert.equal(code, 0);
      assert.match(stdout, new RegExp(`^Usage: pg-task ${command}(?:\\|[\\w-]+)? `));
    });
  }

  test("that is unknown is an error that escapes its name", async () => {
    const { code, stderr } = await cli(["lis\x1b[2Jt"]);
    assert.equal(code, 2);
    assert.ok(stderr.includes(String.raw`lis\x1b[2Jt`), stderr);
    assert.ok(stderr.startsWith("pg-task: "), stderr);
  });
});
