import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe } from "node:test";
import { connectTo } from "../../support/connectTo.js";
import { createDatabase } from "../../support/database.js";
import { cli, cliOnTerminal, OnTerminal, type CliResult } from "../../support/cli.js";
import { test } from "../../support/limitedTest.js";
import { PgTask } from "../../support/pgTask.js";
import { startProcess } from "../../support/process.js";
import { only, Tasks } from "../../support/tasks.js";
import { createRole } from "../../support/taskTables.js";
import { until } from "../../support/embedded.js";
import { bin, projectPath } from "../../support/project.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
const env = { DATABASE_URL: database.url };
await pgTask.start({ url: database.url, "pg_task.sleep": 100 });

const idOf = ({ stdout }: { readonly stdout: string }): string => stdout.trim();

async function count(): Promise<unknown> {
  return (await client.query("SELECT count(*) FROM task")).rows[0];
}

const asProducer = (role: string, ...args: string[]): Promise<CliResult> =>
  cli(["add", "SELECT 'produced'", ...args], {
    env: { DATABASE_URL: database.url.replace("//postgres@", `//${role}@`) },
  });

/** Returns what a terminal in Berlin shows of a new task with a rule in this zone. */
const shownIn = async (zone: string): Promise<string> => {
  const rule = ["--rule", "30 2 1 1 *", "--zone", zone];
  return (await cliOnTerminal(["add", "SELECT 1", ...rule], { env: { ...env, TZ: "Europe/Berlin" } })).shown;
};

describe("pg-task add", () => {
  test("inserts a task with a schedule", async () => {
    const rule = ["--rule", "0 0 1 1 *", "--zone", "Asia/Tokyo", "--catchup", "--no-overlap"];
    const result = await cli(["add", "SELECT 1", ...rule], { env });
    assert.deepEqual([result.code, result.stderr], [0, ""]);
    const { rows } = await client.query("SELECT rule, zone, catchup, overlap FROM task WHERE id = $1", [idOf(result)]);
    assert.deepEqual(rows, [{ rule: "0 0 1 1 *", zone: "Asia/Tokyo", catchup: true, overlap: false }]);
  });

  test("names the task that waits with the key, and the statement that changes it", async () => {
    const key = "it's taken";
    const id = idOf(await cli(["add", "SELECT 1", "--key", key, "--plan", "infinity"], { env }));
    let update = "";
    for (const more of [[], ["--wait"]]) {
      const { code, stderr } = await cli(["add", "SELECT 1", "--key", key, ...more], { env });
      assert.equal(code, 2);
      assert.match(
        stderr,
        new RegExp(`\\(SQLSTATE 23505\\): task ${id} waits with this key; if one task .*--if-key-taken skip`),
      );
      update = / to change the one that waits: (UPDATE .*)\n$/.exec(stderr)?.[1] ?? "";
    }
    // The statement changes this task and no other.
    const { rows } = await client.query(`${update.replace("…", "input = 'SELECT 2'")} RETURNING id`);
    assert.deepEqual(rows, [{ id }]);
    await client.query("DELETE FROM task WHERE id = $1", [id]);
  });

  test("adds nothing if the key is taken and --if-key-taken is skip", async () => {
    const skip = ["add", "SELECT 1", "--key", "skipped", "--if-key-taken", "skip"];
    const id = idOf(await cli([...skip, "--plan", "infinity"], { env }));
    const before = await count();
    const said = `nothing was added: task ${id} waits with this key\n`;
    assert.deepEqual(await cli(skip, { env }), { code: 0, stdout: "", stderr: said });
    const json = await cli([...skip, "--json"], { env });
    assert.deepEqual([json.code, json.stdout], [0, '{"id":null}\n']);
    const waits = await cli([...skip, "--wait"], { env });
    assert.deepEqual([waits.code, waits.stdout], [2, ""]);
    assert.match(waits.stderr, /^pg-task: --wait cannot be combined with --if-key-taken skip/);
    const ignore = await cli(["add", "SELECT 1", "--if-key-taken", "ignore"], { env });
    const choices = 'pg-task: --if-key-taken: expected one of error, skip, got "ignore"\n';
    assert.deepEqual([ignore.code, ignore.stderr], [2, choices]);
    const without = await cli(["add", "SELECT 1", "--if-key-taken", "skip"], { env });
    assert.equal(without.stderr, "pg-task: expected --key, because of --if-key-taken skip\n");
    assert.deepEqual(await count(), before);
    await client.query("DELETE FROM task WHERE id = $1", [id]);
  });

  for (const [args, message] of [
    [["--key", "a", "--key", "b"], "expected --key once, got it more than once"],
    [["--key", "a", "--set", "key=b"], "expected column key once, got it in --set, too"],
    [["--in", "1 s", "--set", "plan=now"], "expected column plan once, got it in --set, too"],
    [["--set", "input=SELECT 2"], "expected column input once, got it in --set, too"],
    [["--set", "data=1", "--set", "data=2"], "expected --set data=… once, got it more than once"],
  ] as const) {
    test(`refuses two values for one column: ${args.join(" ")}`, async () => {
      const before = await count();
      const result = await cli(["add", "SELECT 1", ...args], { env });
      assert.deepEqual(result, { code: 2, stdout: "", stderr: `pg-task: ${message}\n` });
      assert.deepEqual(await count(), before);
    });
  }

  test("takes several columns with --set", async () => {
    const id = idOf(await cli(["add", "SELECT 1", "--set", "data=both", "--set", "plan=infinity"], { env }));
    const { rows } = await client.query("SELECT data, plan::text AS plan FROM task WHERE id = $1", [id]);
    assert.deepEqual(rows, [{ data: "both", plan: "infinity" }]);
    await client.query("DELETE FROM task WHERE id = $1", [id]);
  });

  for (const more of [["--plan", "infinity"], ["--wait"]]) {
    test(`says that the task was added if the output cannot be written: ${more.join(" ")}`, async () => {
      const add = ["add", "SELECT 5", "--data", "unwritten", ...more];
      const command = [process.execPath, bin, ...add].map((word) => `'${word}'`).join(" ");
      const child = spawn("/bin/sh", ["-c", `${command} >/dev/full`], {
        env: { PATH: process.env["PATH"], ...env },
        stdio: ["ignore", "ignore", "pipe"],
      });
      let stderr = "";
      child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
      await once(child, "close");
      const { rows } = await client.query<{ id: string }>("DELETE FROM task WHERE data = 'unwritten' RETURNING id");
      const problem = "the output cannot be written: no space left on the device (ENOSPC)";
      assert.equal(stderr, `pg-task: task ${rows[0]?.id} was added, but ${problem}\n`);
      assert.equal(child.exitCode, 14);
    });
  }

  test("says on a terminal when the task is planned, in the local zone, if that lies ahead", async () => {
    const tokyo = { env: { ...env, TZ: "Asia/Tokyo" } };
    const later = await cliOnTerminal(["add", "SELECT 1", "--plan", "2999-01-01 00:00+00"], tokyo);
    assert.match(later.shown, /^added task \d+, planned for 2999-01-01 09:00:00 \+09:00\n$/);
    const never = await cliOnTerminal(["add", "SELECT 1", "--plan", "infinity"], tokyo);
    assert.match(never.shown, /^added task \d+\n$/);
  });

  test("says on a terminal when a rule's time comes by the clock of its zone, if that is another", async () => {
    assert.match(await shownIn("Europe/Berlin"), /, planned for \d{4}-01-01 02:30:00 \+01:00\n$/);
    assert.match(await shownIn("UTC"), /, planned for \d{4}-01-01 03:30:00 \+01:00 \(02:30 in UTC\)\n$/);
    assert.match(
      await shownIn("Asia/Tokyo"),
      /, planned for \d{4}-12-31 18:30:00 \+01:00 \(\d{4}-01-01 02:30 in Asia\/Tokyo\)\n$/,
    );
    await client.query("DELETE FROM task WHERE rule IS NOT NULL");
  });

  test("takes the ids of --after and the codes of --sqlstate with commas, as other commands do", async () => {
    const [first, second] = [
      idOf(await cli(["add", "SELECT 1", "--plan", "infinity"], { env })),
      idOf(await cli(["add", "SELECT 1", "--plan", "infinity"], { env })),
    ];
    const stored = async (...args: string[]): Promise<unknown> => {
      const id = idOf(await cli(["add", "SELECT 2", ...args], { env }));
      const { rows } = await client.query(
        "SELECT after::text AS after, sqlstate::text AS sqlstate FROM task WHERE id = $1",
        [id],
      );
      return rows[0];
    };
    assert.deepEqual(await stored("--after", first, "--sqlstate", "40, 55P03"), {
      after: `{${first}}`,
      sqlstate: "{40,55P03}",
    });
    const both = { after: `{${first},${second}}`, sqlstate: "{!42}" };
    assert.deepEqual(await stored("--after", `${first},${second}`, "--sqlstate", "!42"), both);
    assert.deepEqual(await stored("--after", both.after, "--sqlstate", "{!42}"), both);
    await client.query("TRUNCATE task");
  });

  test("inserts a task with args, and refuses args that are no array or object", async () => {
    const result = await cli(["add", "SELECT $1 || '!'", "--args", '["a\'b"]', "--wait"], { env });
    assert.deepEqual([result.code, result.stdout, result.stderr], [0, "a'b!\n", ""]);
    for (const [args, message] of [
      ["5", /rejects the task: args must be an array or an object \(SQLSTATE 22023\)/],
      ["{", /rejects the task: invalid input syntax for type json \(SQLSTATE 22P02\)/],
    ] as const) {
      const refused = await cli(["add", "SELECT $1", "--args", args], { env });
      assert.equal(refused.code, 2);
      assert.match(refused.stderr, message);
    }
  });

  test("names the columns whose values break a check, and no others", async () => {
    const wrong = [
      [["--repeat", "-1 s"], 'repeat must not be below 0, got "-1 s": '],
      [["--active", "0", "--repeat", "1 s"], 'active must be above 0, got "0": '],
      [
        ["--set", "count=-1", "--live=-00:01"],
        'live must not be below 0, got "-00:01": count must not be below 0, got "-1": ',
      ],
      [["--quote", "\x7f", "--timeout=-1 s"], 'timeout must not be below 0, got "-1 s": '],
    ] as const;
    const boundsCheck = "active_live_repeat_timeout_keep_count_delimiter_escape_quote";
    for (const [options, reason] of wrong) {
      const { code, stdout, stderr } = await cli(["add", "SELECT 1", ...options], { env });
      const expected = `pg-task: "public"."task" rejects the task: ${reason}new row for relation "task" violates check constraint "${boundsCheck}" (SQLSTATE 23514)\n`;
      assert.deepEqual([code, stdout, stderr], [2, "", expected]);
    }
    await client.query("ALTER TABLE task ADD CONSTRAINT small CHECK (max < 100)");
    const own = await cli(["add", "SELECT 1", "--max", "100", "--repeat", "1 s"], { env });
    await client.query("ALTER TABLE task DROP CONSTRAINT small");
    assert.match(own.stderr, /rejects the task: new row for relation "task" violates check constraint "small"/);
    const { pathname } = new URL(database.url);
    await client.query(`ALTER DATABASE ${pathname.slice(1)} SET pg_task.repeat = '-1 s'`);
    const byDefault = await cli(["add", "SELECT 1"], { env });
    await client.query(`ALTER DATABASE ${pathname.slice(1)} RESET pg_task.repeat`);
    assert.match(
      byDefault.stderr,
      /rejects the task: new row for relation "task" violates check constraint "active_live_repeat_timeout_keep_count_delimiter_escape_quote"/,
    );
  });

  test("inserts a task with all given columns and prints its id", async () => {
    await client.query("ALTER TABLE task ADD COLUMN mine text");
    const result = await cli(
      [
        "add",
        "SELECT 7",
        "--plan",
        "2999-01-01 00:00+00",
        "--group",
        "gruppe",
        "--max",
        "-5",
        "--active",
        "2 hours",
        "--timeout",
        "3 s",
        "--repeat",
        "1 day",
        "--live",
        "4 s",
        "--gap",
        "5 s",
        "--retry",
        "4",
        "--backoff",
        "6 s",
        "--sqlstate",
        "{40,55P03}",
        "--count",
        "6",
        "--keep",
        "7 days",
        "--delimiter",
        ";",
        "--escape",
        "\\",
        "--quote",
        "'",
        "--null",
        "nil",
        "--data",
        "d",
        "--remote",
        "host=h",
        "--parent",
        "12",
        "--no-delete",
        "--drift",
        "--no-header",
        "--no-string",
        "--save",
        "--no-atomic",
        "--set",
        "mine=a=b",
        "--set",
        "crash=2",
      ],
      { env },
    );
    assert.deepEqual([result.code, result.stderr], [0, ""]);
    const { stdout } = await cli(["show", idOf(result), "--json"], { env });
    const { task } = JSON.parse(stdout);
    const generated = [
      "id",
      "hash",
      "take",
      "start",
      "stop",
      "pid",
      "ready",
      "owner",
      "error",
      "output",
      "created",
      "plain",
    ];
    const given = Object.fromEntries(
      Object.entries(task).filter(([name, value]) => !generated.includes(name) && value !== null),
    );
    assert.deepEqual(given, {
      parent: "12",
      plan: "2999-01-01T00:00:00+00:00",
      active: "02:00:00",
      live: "00:00:04",
      gap: "00:00:05",
      retry: 4,
      backoff: "00:00:06",
      sqlstate: ["40", "55P03"],
      repeat: "1 day",
      timeout: "00:00:03",
      count: 6,
      max: -5,
      crash: 2,
      state: "PLAN",
      delete: false,
      drift: true,
      header: false,
      save: true,
      string: false,
      atomic: false,
      delimiter: ";",
      escape: "\\",
      quote: "'",
      data: "d",
      group: "gruppe",
      input: "SELECT 7",
      null: "nil",
      remote: "host=h",
      keep: "7 days",
      mine: "a=b",
    });
  });

  test("--in plans the task at an interval from now", async () => {
    const id = idOf(await cli(["add", "SELECT 1", "--in", "100 years"], { env }));
    const { rows } = await client.query("SELECT plan > now() + interval '99 years' AS late FROM task WHERE id = $1", [
      id,
    ]);
    assert.deepEqual(rows, [{ late: true }]);
  });

  test("--wait waits for the end, prints the output and exits with 0", async () => {
    assert.deepEqual(await cli(["add", "--wait", "SELECT 1 AS a, 'ü' AS b"], { env }), {
      code: 0,
      stdout: "a\tb\n1\tü\n",
      stderr: "",
    });
    assert.deepEqual(await cli(["add", "-w", "SELECT WHERE false"], { env }), {
      code: 0,
      stdout: "",
      stderr: "",
    });
  });

  test("exits with 10 when the task fails, after printing its output so far", async () => {
    assert.deepEqual(await cli(["add", "--wait", "SELECT 'before'; SELECT 1/0"], { env }), {
      code: 10,
      stdout: "before\n",
      stderr: "ERROR:  division by zero\nSTATEMENT:  SELECT 'before'; SELECT 1/0\n",
    });
  });

  test("exits with 11 when the task is GONE, and with 12 when it is stopped", async () => {
    const gone = await cli(["add", "-w", "SELECT 1", "--plan", "2000-01-01"], { env });
    assert.deepEqual([gone.code, gone.stderr], [11, "ERROR:  task not active\n"]);
    const stopped = await cli(["add", "-w", "SELECT 1", "--set", "state=STOP"], { env });
    assert.equal(stopped.code, 12);
  });

  test("exits with 13 when the row is deleted while it waits", async () => {
    const { code, stderr } = await cli(["add", "-w", "SELECT WHERE false", "--delete"], { env });
    assert.equal(code, 13);
    assert.match(stderr, /was deleted while waiting/);
  });

  test("prints the result as JSON", async () => {
    const { code, stdout } = await cli(["add", "-w", "--json", "SELECT 5"], { env });
    const { id, ...rest } = JSON.parse(stdout);
    assert.match(id, /^\d+$/);
    assert.deepEqual([code, rest], [0, { state: "DONE", output: "5", error: null }]);
  });

  test("reads the SQL from standard input or a file", async () => {
    const file = join(await temporaryFolder(), "task.sql");
    await writeFile(file, "SELECT 'from a file'");
    const input = "SELECT 'from input'";
    for (const [args, expected] of [
      [[], "from input\n"],
      [["-"], "from input\n"],
      [["--file", "-"], "from input\n"],
      [["-f", file], "from a file\n"],
    ] as const) {
      assert.equal((await cli(["add", "-w", ...args], { env, input })).stdout, expected);
    }
  });

  for (const [what, args, input, message] of [
    ["no SQL at all", [], "", /no SQL: give it as an argument, with --file, or on standard input/],
    ["blanks", ["  "], "", /no SQL: /],
    ["an argument and a file", ["SELECT 1", "-f", "x"], "", /expected the SQL as an argument or from --file, got both/],
    ["a missing file", ["-f", "/nonexistent.sql"], "", /no such file or folder \(ENOENT\)/],
    ["invalid UTF-8", [], Buffer.from([0xff, 0xfe]), /standard input is not valid UTF-8/],
    ["a zero byte", [], "a\0b", /zero bytes/],
    ["two plans", ["SELECT 1", "--plan", "now", "--in", "1 s"], "", /one of --plan and --in/],
    ["an unknown column", ["SELECT 1", "--set", "nosuch=1"], "", /column "nosuch".*does not exist/],
    [
      "a value of the wrong type",
      ["SELECT 1", "--max", "many"],
      "",
      /^pg-task: --max: .*invalid input syntax for type integer: "many"/,
    ],
    ["a plan that is no time", ["SELECT 1", "--plan", "yesterda"], "", /^pg-task: --plan: .*"yesterda"/],
    ["args that are no JSON", ["SELECT 1", "--max", "1", "--args", "{bad"], "", /^pg-task: --args: .*for type json/],
    ["a delay that is no interval", ["SELECT 1", "--max", "1", "--in", "soon"], "", /^pg-task: --in: .*"soon"/],
    ["a wrong value of --set", ["SELECT 1", "--set", "crash=no"], "", /^pg-task: --set crash: .*"no"/],
    ["an after that is no list of ids", ["SELECT 1", "--after", "x y"], "", /^pg-task: --after: .*"x y"/],
    [
      "a zone that is misspelt",
      ["SELECT 1", "--rule", "@daily", "--zone", "Europe/Berln"],
      "",
      /: perhaps "Europe\/Berlin"\n/,
    ],
    ["a value that violates a check constraint", ["SELECT 1", "--active", "0"], "", /violates check constraint/],
    [
      "a delimiter of two characters",
      ["SELECT 1", "--delimiter", "||"],
      "",
      /expected --delimiter with one ASCII character, got "\|\|"/,
    ],
    ["a non-ASCII quote", ["SELECT 1", "--quote", "«"], "", /expected --quote with one ASCII character, got "«"/],
    ["a --set without a value", ["SELECT 1", "--set", "crash"], "", /expected --set column=value, got "crash"/],
  ] as const) {
    test(`rejects ${what} and inserts nothing`, async () => {
      const before = await count();
      const { code, stdout, stderr } = await cli(["add", ...args], { env, input });
      assert.deepEqual([code, stdout], [2, ""]);
      assert.match(stderr, message);
      assert.doesNotMatch(stderr, /\n\s+at /);
      assert.deepEqual(await count(), before);
    });
  }

  test("shows the task's state on a terminal while it waits, and erases it afterwards", async () => {
    const program = new OnTerminal(["add", "-w", "SELECT pg_sleep(3600)"], { env });
    await program.until(/task (\d+): WORK, not ended after [\d.]+ s/);
    const [, id = ""] = /task (\d+): WORK/.exec(program.shown) ?? [];
    await cli(["stop", id], { env });
    assert.equal(await program.end(), 12);
    const [, after = ""] = program.shown.split(/\r.\[K(?!task)/);
    assert.match(after, /^(pg-task: task \d+ ended as STOP|ERROR: .*)\r\n/);
  });

  test("says while it waits for a paused group or table how to end the pause", async () => {
    const pauses = [
      [
        ["--group", "halted"],
        /its group "halted" has been paused.*\n {2}pg-task resume --group "halted" ends the pause/,
      ],
      [[], /the whole table has been paused.*\n {2}pg-task resume ends the pause/],
    ] as const;
    for (const [options, reason] of pauses) {
      await cli(["pause", ...options], { env });
      const program = new OnTerminal(["add", "--wait", "SELECT 'resumed'", "--group", "halted"], { env });
      await program.until(
        new RegExp(`pg-task: task \\d+ waits: ${reason.source}`.replaceAll(String.raw`\n`, String.raw`\r\n`)),
      );
      await cli(["resume", ...options], { env });
      assert.equal(await program.end(), 0);
    }
  });

  test("leaves the task running when the wait is interrupted", async () => {
    const child = spawn(
      process.execPath,
      [bin, "add", "--wait", "SELECT pg_sleep(60)", "--data", "interrupted", "-t", "task"],
      {
        env: { PATH: process.env["PATH"], ...env },
        stdio: ["ignore", "ignore", "pipe"],
      },
    );
    let text = "";
    child.stderr.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
    let id = "";
    await until("the task runs", async () => {
      const { rows } = await client.query("SELECT id FROM task WHERE data = 'interrupted' AND state = 'WORK'");
      id = rows[0]?.id ?? "";
      return rows.length === 1;
    });
    child.kill("SIGINT");
    await once(child, "close");
    assert.equal(child.exitCode, 130);
    assert.equal(
      text,
      `pg-task: no longer waiting for task ${id}, which was not cancelled; pg-task stop --table task ${id} stops it\n`,
    );
    assert.equal((await tasks.row(id)).state, "WORK");
    assert.equal((await cli(["stop", id], { env })).code, 0);
    const row = only(await tasks.until([id], ({ owner }) => owner === null));
    assert.equal(row.state, "STOP");
  });

  describe("by a producer", () => {
    test("with the documented grants can --wait, also without the right to see why the task waits", async () => {
      const role = await createRole(client, `${database.target.database}_documented`);
      const security = readFileSync(projectPath("docs/security.md"), "utf8");
      const [, grants = ""] = /```sql\n(GRANT USAGE[^]*?)```/.exec(security) ?? [];
      await client.query(grants.replaceAll("TO producer", `TO ${role}`));
      const { code, stdout, stderr } = await asProducer(role, "--wait", "--in", "4 s");
      assert.deepEqual([code, stdout], [0, "produced\n"], stderr);
      assert.match(stderr, /^pg-task: task \d+ waits, the reason cannot be read: /);
    });

    test("without the rights for --wait inserts nothing, and the error names the missing grant", async () => {
      const role = await createRole(client, `${database.target.database}_hasty`);
      await client.query(
        `GRANT INSERT ON task TO ${role}; GRANT USAGE ON SEQUENCE task_id_seq TO ${role};
         GRANT SELECT (id, state, output, error) ON task TO ${role}`,
      );
      const before = await count();
      const { code, stdout, stderr } = await asProducer(role, "--wait");
      assert.deepEqual([code, stdout], [4, ""], stderr);
      assert.match(
        stderr,
        new RegExp(`permission denied .*: GRANT SELECT \\(owner\\) ON "public"\\."task" TO ${role}`),
      );
      assert.deepEqual(await count(), before);
      const plain = await asProducer(role);
      assert.equal(plain.code, 0, plain.stderr);
      assert.match(plain.stdout, /^\d+\n$/);
    });

    test("without the right to insert or to read ids gets an error naming every missing right", async () => {
      const role = await createRole(client, `${database.target.database}_writer`);
      await client.query(`GRANT INSERT ON task TO ${role}; GRANT USAGE ON SEQUENCE task_id_seq TO ${role}`);
      const before = await count();
      const blind = await asProducer(role);
      assert.equal(blind.code, 4);
      assert.match(blind.stderr, new RegExp(`GRANT SELECT \\(id\\) ON "public"\\."task" TO ${role}`));
      await client.query(`REVOKE ALL ON task FROM ${role}; REVOKE ALL ON SEQUENCE task_id_seq FROM ${role}`);
      const { stderr } = await asProducer(role, "--max", "3");
      assert.match(
        stderr,
        new RegExp(
          `GRANT INSERT \\(input, max\\), SELECT \\(id\\) ON "public"\\."task" TO ${role}; GRANT USAGE ON SEQUENCE public.task_id_seq TO ${role}`,
        ),
      );
      assert.deepEqual(await count(), before);
    });
  });

  test("exits with 14 and prints the id when the connection is lost while it waits", async () => {
    const before = idOf(await cli(["add", "SELECT 1"], { env }));
    const waiting = cli(["add", "-w", "SELECT 2", "--in", "1 hour"], { env });
    await until("the task is added and its connection ended", async () => {
      const { rowCount } = await client.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'pg-task add'
           AND EXISTS (SELECT FROM task WHERE id > $1)`,
        [before],
      );
      return rowCount === 1;
    });
    const { code, stdout, stderr } = await waiting;
    assert.deepEqual([code, stdout], [14, ""], stderr);
    const { rows } = await client.query("SELECT id FROM task WHERE id > $1", [before]);
    assert.match(stderr, new RegExp(`^pg-task: task ${rows[0].id} was added, but its end cannot be read: `));
  });

  test("truncates long output and escapes control characters on a terminal", async () => {
    const { code, shown } = await cliOnTerminal(
      ["add", "-w", "SELECT E'\\x1b[2J' || i FROM generate_series(1, 1000) AS i"],
      { env },
    );
    assert.equal(code, 0);
    assert.ok(shown.startsWith(String.raw`\x1b[2J1`), shown);
    assert.match(shown, /… [\d,]+ more characters/);
  });
});

/** Returns the codes of the reasons that `why` reports. */
async function reasons(id: string): Promise<string[]> {
  const { stdout } = await cli(["why", id, "--json"], { env });
  return JSON.parse(stdout).reasons.map(({ code }: { code: string }) => code);
}

describe("pg-task why", () => {
  test("has the aliases explain-plan and explain", async () => {
    const id = idOf(await cli(["add", "SELECT 1", "--plan", "infinity"], { env }));
    const { stdout } = await cli(["why", id], { env });
    for (const name of ["explain-plan", "explain"])
      assert.deepEqual(await cli([name, id], { env }), { code: 0, stdout, stderr: "" });
  });

  test("reports that a task is not due, never due, or has ended", async () => {
    const [later = "", never = "", done = ""] = await tasks.insert(
      { input: "", plan: "2999-01-01" },
      { input: "", plan: "infinity" },
      { input: "", state: "STOP" },
    );
    assert.deepEqual(
      [await reasons(later), await reasons(never), await reasons(done)],
      [["not-due"], ["never-due"], ["ended"]],
    );
  });

  test("shows local times on a terminal, and ISO 8601 elsewhere", async () => {
    const [id = ""] = await tasks.insert({ input: "", plan: "2999-01-01 00:00:00.5+00" });
    const shown = await cliOnTerminal(["why", id], { env: { ...env, TZ: "Asia/Tokyo" } });
    assert.match(shown.shown, /^it is planned for 2999-01-01 09:00:00\.500\n/);
    assert.match((await cli(["why", id], { env })).stdout, /planned for 2999-01-01T00:00:00\.5\+00:00\t/);
  });

  test("takes a key instead of an id", async () => {
    const ended = { input: "", key: "explained", state: "DONE" };
    const [, newest = ""] = await tasks.insert(ended, ended);
    const explained = async (): Promise<string> =>
      JSON.parse((await cli(["why", "--key", "explained", "--json"], { env })).stdout).id;
    assert.equal(await explained(), newest);
    const [waiting = ""] = await tasks.insert({ input: "", key: "explained", plan: "infinity" });
    await tasks.insert(ended);
    assert.equal(await explained(), waiting);
    const missing = await cli(["why", "--key", "nobody's"], { env });
    assert.deepEqual(missing, { code: 1, stdout: "", stderr: `pg-task: no task with the key "nobody's"\n` });
    for (const [args, message] of [
      [[], "expected an id or --key"],
      [[waiting, "--key", "explained"], "expected an id or --key, got both"],
    ] as const) {
      assert.deepEqual(await cli(["why", ...args], { env }), { code: 2, stdout: "", stderr: `pg-task: ${message}\n` });
    }
  });

  test("names the running tasks of the group and those that are due earlier", async () => {
    const [first = "", second = "", third = ""] = await tasks.insert(
      { input: "SELECT pg_sleep(60)", group: "one" },
      { input: "SELECT 2", group: "one" },
      { input: "SELECT 3", group: "one" },
    );
    await tasks.sleeping(first);
    assert.deepEqual(await reasons(first), ["running"]);
    assert.deepEqual(await reasons(third), ["group-limit", "behind-others"]);
    const { code, stdout } = await cli(["why", second], { env });
    assert.equal(code, 0);
    assert.match(
      stdout,
      new RegExp(`^group-limit\\tits group "one" runs 1 \\(${first}\\), and its max allows 0 besides it\\t`),
    );
    await cli(["stop", first], { env });
    await tasks.ended(second, third);
    assert.deepEqual(await reasons(second), ["ended"]);
  });

  test("says for which lock a running task waits, and who blocks it", async () => {
    await client.query("CREATE TABLE account (id integer PRIMARY KEY); INSERT INTO account VALUES (1)");
    const holder = await database.connect();
    await holder.query("SET application_name = 'nightly batch'");
    await holder.query("BEGIN");
    await holder.query("UPDATE account SET id = 1");
    const { rows } = await holder.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
    const [id = ""] = await tasks.insert({ input: "UPDATE account SET id = 1", group: "waits for a row" });
    const waits = async (): Promise<string> => {
      for (;;) {
        const { stdout } = await cli(["why", id], { env });
        if (stdout.startsWith("waits-for-lock\t")) return stdout;
        assert.match(stdout, /^(?:due|queued|running|no-session)\t/);
      }
    };
    const blocker = `blocked by server process ${rows[0]?.pid} \\(nightly batch, user postgres, `;
    assert.match(
      await waits(),
      new RegExp(
        `^waits-for-lock\\tit has been running since .* waits for a row of account, ${blocker}idle in transaction since .*pg_terminate_backend\\(${rows[0]?.pid}\\)`,
      ),
    );
    // A role that must not see what other roles do.
    const reader = await createRole(client, `${database.target.database}_why`);
    await client.query(`GRANT SELECT, UPDATE ON task TO ${reader}; GRANT SELECT ON task_pause TO ${reader}`);
    const url = new URL(database.url);
    url.username = reader;
    const { stdout } = await cli(["why", id], { env: { DATABASE_URL: url.href } });
    assert.match(stdout, new RegExp(`waits for a row of account, ${blocker}only members of pg_read_all_stats see`));
    await holder.query("ROLLBACK");
    await holder.query("BEGIN");
    await tasks.ended(id);
    await holder.query("LOCK TABLE account");
    const [later = ""] = await tasks.insert({ input: "UPDATE account SET id = 1", group: "waits for a table" });
    for (;;) {
      const { stdout: now } = await cli(["why", later], { env });
      if (now.includes(", and waits for the table account (RowExclusiveLock), blocked by")) break;
      assert.match(now, /^(?:due|queued|running|no-session)\t/);
    }
    await holder.query("ROLLBACK");
    await tasks.ended(later);
    assert.deepEqual(await reasons(later), ["ended"]);
  });

  test("says from when on a task can start that waits for its gap", async () => {
    const [first = ""] = await tasks.insert({ input: "SELECT 1", group: "gapped", gap: "1 us" });
    await tasks.ended(first);
    const id = idOf(await cli(["add", "SELECT 1", "--group", "gapped", "--gap", "1 hour"], { env }));
    const behind = idOf(await cli(["add", "SELECT 1", "--group", "gapped"], { env }));
    assert.deepEqual([await reasons(id), await reasons(behind)], [["gap"], ["behind-others"]]);
    const { stdout } = await cli(["why", id], { env });
    const { rows } = await tasks.client.query<{ start: string }>(
      `SELECT to_char(start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS') AS start FROM task WHERE id = $1`,
      [first],
    );
    assert.match(
      stdout,
      new RegExp(
        `^gap\\tits gap is 1 h, and a task of its group may have started at ${rows[0]?.start}.*: it waits for at least (?:59 min|1 h).* more\\t`,
      ),
    );
    const groups = await cli(["groups", "--json"], { env });
    const found = JSON.parse(groups.stdout).groups.find(({ group }: { group: string }) => group === "gapped");
    assert.equal(found.gapMs, 3_600_000);
    await cli(["delete", id, behind], { env });
  });

  test("reports a pause with its start and reason", async () => {
    await cli(["pause", "-g", "halted", "--reason", "because"], { env });
    const [id = ""] = await tasks.insert({ input: "SELECT 1", group: "halted" });
    assert.deepEqual(await reasons(id), ["group-paused"]);
    const { stdout } = await cli(["why", id], { env });
    assert.match(stdout, /its group "halted" has been paused since [-\dT:.+]+: because/);
    await cli(["resume", "-g", "halted"], { env });
    await tasks.ended(id);
  });

  test("names the server process that locks the row", async () => {
    const other = await database.connect();
    const { rows } = await other.query("SELECT pg_backend_pid() AS pid");
    await cli(["pause", "-g", "locked"], { env });
    const [id = ""] = await tasks.insert({ input: "SELECT 1", group: "locked" });
    await other.query("BEGIN");
    await other.query("UPDATE task SET data = 'mine' WHERE id = $1", [id]);
    assert.deepEqual(await reasons(id), ["group-paused", "row-locked"]);
    const { stdout } = await cli(["why", id], { env });
    assert.match(stdout, new RegExp(`its row is locked by the open transaction of server process ${rows[0].pid} `));
    await other.query("ROLLBACK");
    await cli(["resume", "-g", "locked"], { env });
    await tasks.ended(id);
  });

  test("reports an unknown id", async () => {
    assert.deepEqual(await cli(["why", "404404"], { env }), {
      code: 1,
      stdout: "",
      stderr: "pg-task: no task 404404\n",
    });
  });
});

const inChain = (shown: string): (string | undefined)[] =>
  [...shown.matchAll(/^(70\d\d) {2}PLAN/gm)].map(([, id]) => id);

describe("pg-task show", () => {
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
    await client.query("DELETE FROM task WHERE id > 7000");
  });
});

describe("pg-task status", () => {
  test("reports leader, standbys, manager, sessions and pauses", async () => {
    const standby = await startProcess({ config: { url: database.url } });
    await standby.line("standby");
    const [id = ""] = await tasks.insert({ input: "SELECT pg_sleep(60)" });
    await tasks.sleeping(id);
    await cli(["pause", "-g", "some", "--reason", "why"], { env });
    const { code, stdout } = await cli(["status", "--json"], { env });
    assert.equal(code, 0);
    const { cluster, tables } = JSON.parse(stdout);
    const { rows } = await client.query<{ pid: number; name: string }>(
      "SELECT pid, application_name AS name FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'pg\\_%'",
    );
    const conf = rows.filter(({ name }) => name === "pg_conf").map(({ pid }) => pid);
    assert.deepEqual(new Set([cluster.leader.pid, cluster.standbys[0]?.pid]), new Set(conf));
    const [table] = tables;
    assert.equal(table.manager.pid, rows.find(({ name }) => name.startsWith("pg_work"))?.pid);
    assert.ok(table.sessions.sessions >= 1 && table.sessions.running >= 1, stdout);
    assert.deepEqual(
      table.pauses.map(({ group }: { group: string }) => group),
      ["some"],
    );
    assert.ok(table.rates.lastMinute.ended >= 1);
    await cli(["resume", "-g", "some"], { env });
    await cli(["stop", id], { env });
    await standby.end();
  });

  test("without a leader names one with another pg_conf.name or control database, for any role", async () => {
    const { rows } = await client.query<{ pid: number }>(
      "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pg_conf'",
    );
    const leader = new RegExp(
      `^other {6}server process ${only(rows).pid} .*leads(.*) in control database ${database.target.database}$`,
      "m",
    );
    const role = await createRole(client, `status_${database.target.database}`);
    const elsewhere = await createDatabase("empty");
    const asRole = database.url.replace(/\/\/[^@]+@/, `//${role}@`);
    for (const [url, name, note] of [
      [database.url, "mine", " under another pg_conf.name"],
      [asRole, "mine", " under another pg_conf.name"],
      [elsewhere.url, "mine", " under another pg_conf.name"],
      [elsewhere.url, "pg_task", ""],
    ] as const) {
      const cwd = await temporaryFolder();
      await writeFile(join(cwd, "pg_task.json"), JSON.stringify({ url, "pg_conf.name": name }));
      const { stdout } = await cli(["status"], { cwd });
      // The role may not read the table, so nothing is known of its manager.
      assert.match(
        stdout,
        url === database.url
          ? /^leader {5}none with this configuration, but a manager serves a table: see the log of the pg-task that runs$/m
          : /^leader {5}none: run pg-task start$/m,
      );
      assert.equal(leader.exec(stdout)?.[1], note, stdout);
    }
    const cwd = await temporaryFolder();
    const config = { url: database.url, "pg_conf.name": "mine" };
    await writeFile(join(cwd, "pg_task.json"), JSON.stringify(config));
    const diagnosis = await cli(["doctor"], { cwd });
    assert.ok(
      diagnosis.stdout.includes(
        `cluster mine has no leader; server process ${only(rows).pid} leads a cluster with another name\tset pg_conf.name `,
      ),
      diagnosis.stdout,
    );
    const { database: data, user } = database.target;
    const apart = { url: elsewhere.url, "pg_task.json": [{ data, user }] };
    await writeFile(join(cwd, "pg_task.json"), JSON.stringify(apart));
    assert.match(
      (await cli(["doctor"], { cwd })).stdout,
      /\tcluster pg_task has no leader, but a manager serves a table of this configuration\tsee the log of the pg-task/,
    );
    assert.doesNotMatch((await cli(["status"], { env })).stdout, /^other/m);
  });
});

/** Starts pg-task in a folder with a minimal environment. Resolves when pg-task has logged this message. */
async function startUntilLogged(cwd: string, msg: string, ...options: string[]): Promise<ChildProcess> {
  const child = spawn(process.execPath, [bin, "start", ...options], {
    cwd,
    env: { PATH: process.env["PATH"], HOME: process.env["HOME"] },
    stdio: ["ignore", "pipe", "inherit"],
  });
  let log = "";
  await new Promise<void>((resolve, reject) => {
    child.once("exit", () => reject(new Error(log)));
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      log += text;
      if (log.includes(`"msg":"${msg}"`)) resolve();
    });
  });
  return child;
}

/** Replaces what differs between two starts: addresses and the page's token. */
const anywhere = (text: string): string =>
  text
    .replaceAll(/127\.0\.0\.1:\d+/g, "ADDRESS")
    .replaceAll(/token=\S+/g, "token")
    .trim();

describe("pg-task start on a terminal", () => {
  test("ends with what to do next, and each of it works", async () => {
    const cwd = await temporaryFolder();
    const terminal = new OnTerminal(["start", "--embedded"], { cwd, env: { NO_COLOR: "1" }, columns: 200 });
    await terminal.until("Ctrl-C stops it.");
    const shown = terminal.shown.replaceAll("\r\n", "\n");
    const steps = shown.slice(shown.indexOf("pg-task runs."));
    assert.match(steps, /^pg-task runs\. To go on, in another terminal in this folder:\n/);
    const [, documented = ""] =
      /```text\n(pg-task runs[^]*?)```/.exec(readFileSync(projectPath("README.md"), "utf8")) ?? [];
    assert.equal(anywhere(documented), anywhere(steps));
    const [, url = ""] = /^ {2}connect +psql (postgresql:\S+)$/m.exec(steps) ?? [];
    assert.match(steps, /^ {2}add a task +npx pg-task add "SELECT 42" --wait$/m);
    const [, page = "", token = ""] = /^ {2}page +(http:\S+)#token=(\S+)$/m.exec(steps) ?? [];
    const added = await cli(["add", "SELECT 42", "--wait"], { cwd });
    assert.deepEqual([added.code, added.stdout], [0, "42\n"]);
    const inside = await connectTo(url);
    const { rows } = await inside.query("SELECT input FROM task");
    await inside.end();
    assert.deepEqual(rows, [{ input: "SELECT 42" }]);
    const tables = await fetch(`${page}api/tables`, { headers: { Authorization: `Bearer ${token}` } });
    assert.equal(tables.status, 200);
    terminal.type("\x03");
    assert.equal(await terminal.end(), 0);
  });

  test("says how to reach a server that commands do not find, and how many tables wait", async () => {
    const cwd = await temporaryFolder();
    const file = join(cwd, "other.json");
    await writeFile(file, JSON.stringify({ "pg_task.json": [{ user: "postgres" }, { data: "nowhere" }] }));
    const args = ["start", "--embedded", "--data", "elsewhere", "--config", file];
    const terminal = new OnTerminal(args, { cwd, env: { NO_COLOR: "1" }, columns: 200 });
    await terminal.until("Ctrl-C stops it.");
    const shown = terminal.shown.replaceAll("\r\n", "\n");
    assert.match(shown, /^pg-task runs, but 1 of 2 tables wait\. To go on/m);
    const [, server = ""] =
      /add a task +DATABASE_URL=(\S+) npx pg-task add "SELECT 42" --wait --config/.exec(shown) ?? [];
    assert.match(shown, /problems +DATABASE_URL=\S+ npx pg-task doctor --config /);
    const options = { cwd, env: { DATABASE_URL: server } };
    const added = await cli(["add", "SELECT 42", "--wait", "--config", file], options);
    assert.deepEqual([added.code, added.stdout], [0, "42\n"]);
    terminal.type("\x03");
    assert.equal(await terminal.end(), 0);
  });
});

describe("without configuration", () => {
  test("commands find the embedded server of the folder", async () => {
    const cwd = await temporaryFolder();
    const child = await startUntilLogged(cwd, "ready", "--embedded");
    try {
      const { code, stdout } = await cli(["add", "-w", "SELECT 'embedded'"], { cwd });
      assert.deepEqual([code, stdout], [0, "embedded\n"]);
      const bare = await cli(["check", "--json"], { cwd });
      const wrote = await cli(["init"], { cwd });
      assert.equal(wrote.code, 0, wrote.stderr);
      const checked = await cli(["check", "--json"], { cwd });
      for (const each of [bare, checked]) {
        const { control, entries, exitCode } = JSON.parse(each.stdout);
        assert.deepEqual([control.from, entries.length, exitCode], ["the embedded server", 1, 0]);
      }
      const listed = await cli(["list", "--state", "DONE"], { cwd });
      assert.match(listed.stdout, /embedded/);
      const second = await startUntilLogged(cwd, "standby");
      second.kill("SIGTERM");
      await once(second, "close");
    } finally {
      child.kill("SIGTERM");
      await once(child, "close");
    }
    await rm(join(cwd, "pg_task.json"));
    const { code, stderr } = await cli(["list"], { cwd });
    assert.equal(code, 2);
    assert.match(stderr, /no embedded server running in this folder/);
  });

  test("start warns when neither a server is configured nor an embedded server runs", async () => {
    const cwd = await temporaryFolder();
    await cli(["init"], { cwd });
    const child = await startUntilLogged(cwd, "no server configured, using libpq's default");
    child.kill("SIGTERM");
    await once(child, "close");
  });
});
