import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe } from "node:test";
import { createDatabase } from "../../support/database.js";
import { cli, cliOnTerminal, emptyFolder } from "../../support/cli.js";
import { test } from "../../support/limitedTest.js";
import { ensure } from "../../support/taskTables.js";

const database = await createDatabase();
const empty = await createDatabase("empty");
const { url } = database;
const client = await database.connect();
const env = { DATABASE_URL: url };
const huge = "9223372036854775807";

const lines = (text: string): string[] => text.split("\n").filter((line) => line !== "");
const ids = (text: string): (string | undefined)[] =>
  lines(text).map((line) => line.split("\t")[0]);

/** Text that would clear the screen, colour, ring, and turn what follows around. */
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
await client.query(
  "ALTER TABLE task ADD COLUMN price numeric DEFAULT 1.10, ADD COLUMN tags jsonb DEFAULT '[1]'",
);

describe("pg-task list", () => {
  test("lists the newest first, a line each, for programs", async () => {
    const { code, stdout, stderr } = await cli(["list"], { env });
    assert.deepEqual([code, stderr, ids(stdout)], [0, "", [huge, "4", "3", "2", "1"]]);
    assert.equal(
      lines(stdout).at(-1),
      "1\tDONE\tfirst\t2024-01-01T00:00:00+00:00\t1500\tSELECT 1\t1",
    );
  });

  for (const [args, expected] of [
    [
      ["--state", "done"],
      [huge, "1"],
    ],
    [
      ["--state", "FAIL,STOP"],
      ["4", "2"],
    ],
    [
      ["--group", "second"],
      ["3", "2"],
    ],
    [
      ["--text", "NEEDLE"],
      ["3", "2"],
    ],
    [["--text", "%"], []],
    [
      ["--since", "2024-01-02 00:00+00", "--until", "2024-01-05 00:00+00"],
      ["4", "2"],
    ],
    [
      ["--limit", "2"],
      [huge, "4"],
    ],
    [
      ["--limit", "2", "--before", "4"],
      ["3", "2"],
    ],
    [["--before", huge, "--state", "DONE"], ["1"]],
    [["--group", "nobody's"], []],
  ] as const) {
    test(`keeps to ${args.join(" ")}`, async () => {
      const { code, stdout } = await cli(["list", ...args], { env });
      assert.deepEqual([code, ids(stdout)], [0, expected]);
    });
  }

  test("gives JSON with ids as text, and where to go on", async () => {
    const { stdout } = await cli(["list", "--json", "-n", "4"], { env });
    const { tasks, before } = JSON.parse(stdout);
    assert.equal(tasks[0].id, huge);
    assert.equal(before, "2");
    assert.equal(tasks[1].group, hostile);
    assert.equal(tasks[0].output.length, 1000);
    assert.equal(JSON.parse((await cli(["list", "--json"], { env })).stdout).before, null);
  });

  for (const columns of [45, 70, 110]) {
    test(`shows a table under titles on a terminal, no line wider than its ${columns} columns`, async () => {
      const { code, shown } = await cliOnTerminal(["list", "-n", "4"], {
        env: { ...env, NO_COLOR: "1" },
        columns,
      });
      assert.equal(code, 0);
      assert.match(
        shown,
        columns < 110 ? /^ +id {2}state/ : /^ +id {2}state +group +plan +took +input +result\n/,
      );
      assert.match(shown, /\nmore: --before 2\n$/);
      for (const line of lines(shown)) assert.ok(line.length <= columns, line);
    });
  }

  for (const command of [["list"], ["show", "4"], ["groups"]]) {
    test(`lets no text of a task act on the terminal: ${command.join(" ")}`, async () => {
      if (command[0] === "groups")
        await client.query("UPDATE task SET state = 'PLAN' WHERE id = 4");
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

  test("keeps each task on its line for programs, its texts written as COPY would", async () => {
    const { stdout } = await cli(["list", "--state", "STOP"], { env });
    assert.equal(lines(stdout).length, 1);
    const [, , group, , took, input] = stdout.split("\t");
    assert.equal(group, input);
    assert.ok(input?.endsWith(String.raw`\tb\nc\\d`), stdout);
    assert.equal(took, String.raw`\N`);
  });

  for (const [args, said] of [
    [["--state", "OPEN"], /expected some of PLAN, TAKE/],
    [["--limit", "0"], /expected a whole number from 1 to 1000000/],
    [["--before", "9223372036854775808"], /expected a task's id/],
    [["--before", "1e3"], /expected a task's id/],
    [["--since", "whenever"], /the server takes no such value.*whenever/],
    [["--wrong"], /unknown option/],
  ] as const) {
    test(`refuses ${args.join(" ")} in a line, with exit code 2`, async () => {
      const { code, stdout, stderr } = await cli(["list", ...args], { env });
      assert.deepEqual([code, stdout], [2, ""]);
      assert.match(stderr, said);
      assert.doesNotMatch(stderr, /\n\s+at /);
    });
  }
});

async function chain(): Promise<string[]> {
  const { stdout } = await cli(["show", "4", "--json"], { env });
  return JSON.parse(stdout).ancestors.map(({ id }: { id: string }) => id);
}

describe("pg-task show", () => {
  test("tells every column, a user's own included, and the chain it stands in", async () => {
    const { code, stdout } = await cli(["show", "2", "--json"], { env });
    const { task, ancestors, ancestorsComplete, descendants, descendantsComplete } =
      JSON.parse(stdout);
    assert.equal(code, 0);
    const { rows } = await client.query<{ name: string }>(
      "SELECT attname AS name FROM pg_attribute WHERE attrelid = 'task'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
    );
    assert.deepEqual(
      Object.keys(task),
      rows.map(({ name }) => name),
    );
    assert.deepEqual(
      [task.id, task.parent, task.state, task.max, task.delete],
      ["2", "1", "FAIL", 0, true],
    );
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

  test("follows the chain of parents to its beginning, also when it bites its own tail", async () => {
    assert.deepEqual(await chain(), ["3", "2", "1"]);
    await client.query("UPDATE task SET parent = 4 WHERE id = 1");
    assert.deepEqual(await chain(), ["3", "2", "1"]);
    await client.query("UPDATE task SET parent = NULL WHERE id = 1");
  });

  for (const id of ["3", "4"]) {
    test(`masks the password of a remote: task ${id}`, async () => {
      for (const args of [
        ["show", id],
        ["show", id, "--json"],
        ["list", "--json"],
      ]) {
        const { stdout } = await cli(args, { env });
        assert.doesNotMatch(stdout, /se.{0,3} ?cret/);
        assert.match(stdout, /\*\*\*/);
      }
    });
  }

  test("knows ids that are larger than a number is exact", async () => {
    const { stdout } = await cli(["show", huge], { env });
    assert.match(stdout, new RegExp(`^id\\t${huge}$`, "m"));
  });

  test("cuts a long output on a terminal, and shows all of it with --full", async () => {
    const short = await cliOnTerminal(["show", huge], { env });
    assert.match(short.shown, /… 2,401 more characters \(--full shows them\)/);
    const full = await cliOnTerminal(["show", huge, "--full"], { env });
    assert.ok(lines(full.shown).length > 500);
  });

  test("says that there is no such task, with exit code 1", async () => {
    assert.deepEqual(await cli(["show", "77"], { env }), {
      code: 1,
      stdout: "",
      stderr: "pg-task: there is no task 77\n",
    });
  });
});

describe("pg-task groups", () => {
  test("tells of each group what runs and waits", async () => {
    const { code, stdout } = await cli(["groups"], { env });
    assert.deepEqual([code, stdout], [0, "second\t0\t0\t1\t2999-01-01T00:00:00+00:00\tfalse\n"]);
    const { groups } = JSON.parse((await cli(["groups", "--json"], { env })).stdout);
    assert.deepEqual(groups, [
      {
        group: "second",
        running: 0,
        waiting: 1,
        due: 0,
        oldest: "2999-01-01T00:00:00+00:00",
        oldestDueMs: null,
        paused: false,
        done: 0,
        failed: 1,
        other: 0,
      },
    ]);
  });
});

describe("pg-task status", () => {
  test("says when nobody leads, and what waits", async () => {
    const { code, stdout } = await cli(["status"], { env });
    assert.equal(code, 0);
    assert.match(stdout, /^leader {5}none: start one with pg-task start$/m);
    assert.match(stdout, /^ {2}planned {4}1, the next 2999-01-01 00:00:00$/m);
    assert.match(stdout, /^ {2}states {5}DONE 2 {2}FAIL 1 {2}PLAN 1 {2}STOP 1$/m);
  });
});

describe("a command", () => {
  test("says of a table that is not there what makes it, with exit code 4", async () => {
    const { code, stderr } = await cli(["list"], { env: { DATABASE_URL: empty.url } });
    assert.equal(code, 4);
    assert.match(
      stderr,
      /^pg-task: there is no table "public"."task" in the database test_\w+: pg-task start makes it ready/,
    );
  });

  test("says of a table that is not adopted what makes it so", async () => {
    const other = await empty.connect();
    await other.query("CREATE TABLE task (id int)");
    const { code, stderr } = await cli(["list"], { env: { DATABASE_URL: empty.url } });
    await other.query("DROP TABLE task");
    assert.equal(code, 4);
    assert.match(stderr, /is not pg-task's yet/);
  });

  test("ends with 3 when the server is not reached, in one line", async () => {
    const { code, stderr } = await cli(["status"], {
      env: { DATABASE_URL: "postgresql://x@127.0.0.1:1/x" },
    });
    assert.equal(code, 3);
    const list = await cli(["list"], {
      env: { DATABASE_URL: "postgresql://x:geheim@127.0.0.1:1/x" },
    });
    assert.equal(list.code, 3);
    assert.match(
      list.stderr,
      /^pg-task: no connection to the server at 127.0.0.1, port 1 .*ECONNREFUSED.*\n$/,
    );
    assert.doesNotMatch(list.stderr + stderr, /geheim|\n\s+at /);
  });

  test("says when nothing tells it which server", async () => {
    const { code, stderr } = await cli(["list"], { cwd: await emptyFolder() });
    assert.equal(code, 2);
    assert.match(stderr, /no embedded server runs for this folder; give --config/);
  });

  test("names what there is to choose from where the configuration has several tables", async () => {
    await ensure(database.target, { table: "other" });
    const cwd = await emptyFolder();
    const own = { data: database.target.database, user: database.target.user };
    const config = { url, "pg_task.json": [own, { ...own, table: "other" }] };
    await writeFile(join(cwd, "pg_task.json"), JSON.stringify(config));
    const { code, stderr } = await cli(["list"], { cwd });
    assert.equal(code, 2);
    assert.match(
      stderr,
      /expected one table, got 2: choose by --entry.*\n {2}1 .*public\.task.*\n {2}2 .*public\.other/,
    );
    for (const args of [
      ["-e", "2"],
      ["-t", "other"],
      ["-t", "public.other"],
    ]) {
      assert.deepEqual(await cli(["list", ...args], { cwd }), { code: 0, stdout: "", stderr: "" });
    }
    const none = await cli(["list", "-t", "nosuch"], { cwd });
    assert.equal(none.code, 2);
    assert.match(none.stderr, /expected --entry and --table to name a table of the configuration/);
    const { tables } = JSON.parse((await cli(["status", "--json"], { cwd })).stdout);
    assert.deepEqual(
      tables.map(({ table }: { table: string }) => table),
      ["task", "other"],
    );
  });

  for (const command of [
    "start",
    "check",
    "init",
    "status",
    "list",
    "show",
    "add",
    "stop",
    "retry",
    "run-now",
    "delete",
    "pause",
    "resume",
    "prune",
    "groups",
    "watch",
    "explain-plan",
    "doctor",
  ]) {
    test(`explains itself: ${command} --help`, async () => {
      const { code, stdout } = await cli([command, "--help"]);
      assert.equal(code, 0);
      assert.match(stdout, new RegExp(`^Usage: pg-task ${command}(?:\\|\\w+)? `));
    });
  }

  test("that is unknown is an error, with its name made harmless on the way", async () => {
    const { code, stderr } = await cli(["lis\x1b[2Jt"]);
    assert.equal(code, 2);
    assert.ok(stderr.includes(String.raw`lis\x1b[2Jt`), stderr);
    assert.ok(stderr.startsWith("pg-task: "), stderr);
  });
});
