import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe } from "node:test";
import { eventually } from "../../support/tasks.js";
import { cli, cliOnTerminal, envOf, failsWith, type CliResult, commandsOn } from "../../support/cli.js";
import { test } from "../../support/limitedTest.js";
import { createRole } from "../../support/taskTables.js";
import { projectPath } from "../../support/project.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";
import { serve } from "../../support/serve.js";

const { database, client } = await serve({ "pg_task.sleep": 100 });
const { env, run } = commandsOn(database);

const idOf = ({ stdout }: { readonly stdout: string }): string => stdout.trim();

async function count(): Promise<unknown> {
  return (await client.query("SELECT count(*) FROM task")).rows[0];
}

const asProducer = (role: string, ...args: string[]): Promise<CliResult> =>
  cli(["add", "SELECT 'produced'", ...args], { env: envOf(database, role) });

/** Returns what a terminal in Berlin shows of a new task with a rule in this zone. */
const shownIn = async (zone: string): Promise<string> => {
  const rule = ["--rule", "30 2 1 1 *", "--zone", zone];
  return (await cliOnTerminal(["add", "SELECT 1", ...rule], { env: { ...env, TZ: "Europe/Berlin" } })).shown;
};

describe("pg-task add", () => {
  test("inserts a task with a schedule", async () => {
    const rule = ["--rule", "0 0 1 1 *", "--zone", "Asia/Tokyo", "--catchup", "--no-overlap"];
    const result = await run("add", "SELECT 1", ...rule);
    assert.deepEqual([result.code, result.stderr], [0, ""]);
    assert.deepEqual(
      (await client.query("SELECT rule, zone, catchup, overlap FROM task WHERE id = $1", [idOf(result)])).rows,
      [{ rule: "0 0 1 1 *", zone: "Asia/Tokyo", catchup: true, overlap: false }],
    );
  });

  test("names the task that waits with the key, and the statement that changes it", async () => {
    const key = "it's taken";
    const id = idOf(await run("add", "SELECT 1", "--key", key, "--plan", "infinity"));
    let update = "";
    for (const more of [[], ["--wait"]]) {
      const stderr = await failsWith(
        run("add", "SELECT 1", "--key", key, ...more),
        2,
        new RegExp(`\\(SQLSTATE 23505\\): task ${id} waits with this key; if one task .*--if-key-taken skip`),
      );
      update = / to change the one that waits: (UPDATE .*)\n$/.exec(stderr)?.[1] ?? "";
    }
    // The statement changes this task and no other.
    assert.deepEqual((await client.query(`${update.replace("…", "input = 'SELECT 2'")} RETURNING id`)).rows, [{ id }]);
    await client.query("DELETE FROM task WHERE id = $1", [id]);
  });

  test("adds nothing if the key is taken and --if-key-taken is skip", async () => {
    const skip = ["add", "SELECT 1", "--key", "skipped", "--if-key-taken", "skip"];
    const id = idOf(await run(...skip, "--plan", "infinity"));
    const before = await count();
    const said = `nothing was added: task ${id} waits with this key\n`;
    assert.deepEqual(await run(...skip), { code: 0, stdout: "", stderr: said });
    const json = await run(...skip, "--json");
    assert.deepEqual([json.code, json.stdout], [0, '{"id":null}\n']);
    await failsWith(run(...skip, "--wait"), 2, /^pg-task: --wait cannot be combined with --if-key-taken skip/);
    const ignore = await run("add", "SELECT 1", "--if-key-taken", "ignore");
    const choices = 'pg-task: --if-key-taken: expected one of error, skip, got "ignore"\n';
    assert.deepEqual([ignore.code, ignore.stderr], [2, choices]);
    const without = await run("add", "SELECT 1", "--if-key-taken", "skip");
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
      const result = await run("add", "SELECT 1", ...args);
      assert.deepEqual(result, { code: 2, stdout: "", stderr: `pg-task: ${message}\n` });
      assert.deepEqual(await count(), before);
    });
  }

  test("takes several columns with --set", async () => {
    const id = idOf(await run("add", "SELECT 1", "--set", "data=both", "--set", "plan=infinity"));
    assert.deepEqual((await client.query("SELECT data, plan::text AS plan FROM task WHERE id = $1", [id])).rows, [
      { data: "both", plan: "infinity" },
    ]);
    await client.query("DELETE FROM task WHERE id = $1", [id]);
  });

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
      idOf(await run("add", "SELECT 1", "--plan", "infinity")),
      idOf(await run("add", "SELECT 1", "--plan", "infinity")),
    ];
    const stored = async (...args: string[]): Promise<unknown> => {
      const id = idOf(await run("add", "SELECT 2", ...args));
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
    const result = await run("add", "SELECT $1 || '!'", "--args", '["a\'b"]', "--wait");
    assert.deepEqual([result.code, result.stdout, result.stderr], [0, "a'b!\n", ""]);
    const message = /rejects the task: args must be an array or an object \(SQLSTATE 22023\)/;
    await failsWith(run("add", "SELECT $1", "--args", "5"), 2, message);
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
    const boundsCheck = "active > 0, live/repeat/timeout/keep/count >= 0, chars ASCII";
    const before = await count();
    for (const [options, reason] of wrong) {
      const { code, stdout, stderr } = await run("add", "SELECT 1", ...options);
      const expected = `pg-task: "public"."task" rejects the task: ${reason}new row for relation "task" violates check constraint "${boundsCheck}" (SQLSTATE 23514)\n`;
      assert.deepEqual([code, stdout, stderr], [2, "", expected]);
    }
    assert.deepEqual(await count(), before);
    await client.query("ALTER TABLE task ADD CONSTRAINT small CHECK (max < 100)");
    const own = await run("add", "SELECT 1", "--max", "100", "--repeat", "1 s");
    await client.query("ALTER TABLE task DROP CONSTRAINT small");
    assert.match(own.stderr, /rejects the task: new row for relation "task" violates check constraint "small"/);
    const { pathname } = new URL(database.url);
    await client.query(`ALTER DATABASE ${pathname.slice(1)} SET pg_task.repeat = '-1 s'`);
    const byDefault = await run("add", "SELECT 1");
    await client.query(`ALTER DATABASE ${pathname.slice(1)} RESET pg_task.repeat`);
    const named = `rejects the task: new row for relation "task" violates check constraint "${boundsCheck}"`;
    assert.ok(byDefault.stderr.includes(named), byDefault.stderr);
  });

  test("inserts a task with all given columns and prints its id", async () => {
    await client.query("ALTER TABLE task ADD COLUMN mine text");
    const options = {
      plan: "2999-01-01 00:00+00",
      group: "gruppe",
      max: "-5",
      active: "2 hours",
      timeout: "3 s",
      repeat: "1 day",
      live: "4 s",
      gap: "5 s",
      retry: "4",
      backoff: "6 s",
      sqlstate: "{40,55P03}",
      count: "6",
      keep: "7 days",
      delimiter: ";",
      escape: "\\",
      quote: "'",
      null: "nil",
      data: "d",
      remote: "host=h",
      parent: "12",
    };
    const values = Object.entries(options).flatMap(([name, value]) => [`--${name}`, value]);
    const flags = "--no-delete --drift --no-header --no-string --save --no-atomic --set mine=a=b --set crash=2".split(
      " ",
    );
    const result = await run("add", "SELECT 7", ...values, ...flags);
    assert.deepEqual([result.code, result.stderr], [0, ""]);
    const { task } = JSON.parse((await run("show", idOf(result), "--json")).stdout);
    const generated = "id hash take start stop pid ready owner error output created plain".split(" ");
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
    const id = idOf(await run("add", "SELECT 1", "--in", "100 years"));
    assert.deepEqual(
      (await client.query("SELECT plan > now() + interval '99 years' AS late FROM task WHERE id = $1", [id])).rows,
      [{ late: true }],
    );
  });

  test("--wait waits for the end, prints the output and exits with 0", async () => {
    assert.deepEqual(await run("add", "--wait", "SELECT 1 AS a, 'ü' AS b"), {
      code: 0,
      stdout: "a\tb\n1\tü\n",
      stderr: "",
    });
    assert.deepEqual(await run("add", "-w", "SELECT WHERE false"), {
      code: 0,
      stdout: "",
      stderr: "",
    });
  });

  test("exits with 10 when the task fails, after printing its output so far", async () => {
    assert.deepEqual(await run("add", "--wait", "SELECT 'before'; SELECT 1/0"), {
      code: 10,
      stdout: "before\n",
      stderr: "ERROR:  division by zero\nSTATEMENT:  SELECT 'before'; SELECT 1/0\n",
    });
  });

  test("exits with 11 when the task is GONE, and with 12 when it is stopped", async () => {
    const gone = await run("add", "-w", "SELECT 1", "--plan", "2000-01-01");
    assert.deepEqual([gone.code, gone.stderr], [11, "ERROR:  task not active\n"]);
    const stopped = await run("add", "-w", "SELECT 1", "--set", "state=STOP");
    assert.equal(stopped.code, 12);
  });

  test("exits with 13 when the row is deleted while it waits", async () => {
    await failsWith(run("add", "-w", "SELECT WHERE false", "--delete"), 13, /was deleted while waiting/);
  });

  test("prints the result as JSON", async () => {
    const { code, stdout } = await run("add", "-w", "--json", "SELECT 5");
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
    [
      "args that are no JSON",
      ["SELECT 1", "--max", "1", "--args", "{bad"],
      "",
      /^pg-task: --args: .* rejects the task: invalid input syntax for type json \(SQLSTATE 22P02\)/,
    ],
    ["a delay that is no interval", ["SELECT 1", "--max", "1", "--in", "soon"], "", /^pg-task: --in: .*"soon"/],
    ["a wrong value of --set", ["SELECT 1", "--set", "crash=no"], "", /^pg-task: --set crash: .*"no"/],
    ["an after that is no list of ids", ["SELECT 1", "--after", "x y"], "", /^pg-task: --after: .*"x y"/],
    [
      "a zone that is misspelt",
      ["SELECT 1", "--rule", "@daily", "--zone", "Europe/Berln"],
      "",
      /: perhaps "Europe\/Berlin"\n/,
    ],
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
      await failsWith(cli(["add", ...args], { env, input }), 2, message);
      assert.deepEqual(await count(), before);
    });
  }

  test("shows the task's state on a terminal while it waits, and erases it afterwards", async () => {
    const stops: Promise<CliResult>[] = [];
    const { code, shown } = await cliOnTerminal(["add", "-w", "SELECT pg_sleep(3600)"], {
      env,
      onOutput: (text) => {
        const [, id] = /task (\d+): WORK, not ended after [\d.]+ s/.exec(text) ?? [];
        if (id !== undefined && stops.length === 0) stops.push(run("stop", id));
      },
    });
    await Promise.all(stops);
    assert.equal(code, 12, shown);
    const [, after = ""] = shown.split(/\r.\[K(?!task)/);
    assert.match(after, /^(pg-task: task \d+ ended as STOP|ERROR: .*)\n/);
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
      await run("pause", ...options);
      const explained = new RegExp(`pg-task: task \\d+ waits: ${reason.source}`);
      const resumes: Promise<CliResult>[] = [];
      const { code, shown } = await cliOnTerminal(["add", "--wait", "SELECT 'resumed'", "--group", "halted"], {
        env,
        onOutput: (text) => {
          if (explained.test(text) && resumes.length === 0) resumes.push(run("resume", ...options));
        },
      });
      await Promise.all(resumes);
      assert.equal(code, 0, shown);
    }
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
      await failsWith(
        asProducer(role, "--wait"),
        4,
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
      await failsWith(asProducer(role), 4, new RegExp(`GRANT SELECT \\(id\\) ON "public"\\."task" TO ${role}`));
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
    const before = idOf(await run("add", "SELECT 1"));
    const waiting = run("add", "-w", "SELECT 2", "--in", "1 hour");
    // Ends the connection as soon as the task is added.
    await eventually(
      client,
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
       WHERE datname = current_database() AND application_name = 'pg-task add'
         AND EXISTS (SELECT FROM task WHERE id > ${before})`,
      (rows) => rows.length === 1,
    );
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
