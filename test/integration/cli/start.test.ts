import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { describe } from "node:test";
import { createDatabase } from "../../support/database.js";
import { cli, cliOnTerminal, emptyFolder, OnTerminal, type CliResult } from "../../support/cli.js";
import { test } from "../../support/limitedTest.js";
import { PgTask } from "../../support/pgTask.js";
import { startProcess } from "../../support/process.js";
import { only, Tasks } from "../../support/tasks.js";
import { createRole } from "../../support/taskTables.js";
import { until } from "../../support/embedded.js";
import { bin, projectPath } from "../../support/project.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.of(client);
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

describe("pg-task add", () => {
  test("adds a task with every column that it is given, and prints its id", async () => {
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
    const own = ["id", "hash", "take", "start", "stop", "pid", "ready", "owner", "error", "output"];
    const given = Object.fromEntries(Object.entries(task).filter(([name]) => !own.includes(name)));
    assert.deepEqual(given, {
      parent: "12",
      plan: "2999-01-01T00:00:00+00:00",
      active: "02:00:00",
      live: "00:00:04",
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

  test("takes an interval from now instead of a time", async () => {
    const id = idOf(await cli(["add", "SELECT 1", "--in", "100 years"], { env }));
    const { rows } = await client.query(
      "SELECT plan > now() + interval '99 years' AS late FROM task WHERE id = $1",
      [id],
    );
    assert.deepEqual(rows, [{ late: true }]);
  });

  test("waits with --wait, prints the output and exits with 0", async () => {
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

  test("exits with 10 for one that fails, what came before on standard output", async () => {
    assert.deepEqual(await cli(["add", "--wait", "SELECT 'before'; SELECT 1/0"], { env }), {
      code: 10,
      stdout: "before\n",
      stderr: "ERROR:  division by zero\nSTATEMENT:  SELECT 'before'; SELECT 1/0\n",
    });
  });

  test("exits with 11 for one that is gone, and 12 for one that is stopped", async () => {
    const gone = await cli(["add", "-w", "SELECT 1", "--plan", "2000-01-01"], { env });
    assert.deepEqual([gone.code, gone.stderr], [11, "ERROR:  task not active\n"]);
    const stopped = await cli(["add", "-w", "SELECT 1", "--set", "state=STOP"], { env });
    assert.equal(stopped.code, 12);
  });

  test("exits with 13 when the row is deleted meanwhile", async () => {
    const { code, stderr } = await cli(["add", "-w", "SELECT WHERE false", "--delete"], { env });
    assert.equal(code, 13);
    assert.match(stderr, /was deleted while it was waited for/);
  });

  test("gives the outcome as JSON", async () => {
    const { code, stdout } = await cli(["add", "-w", "--json", "SELECT 5"], { env });
    const { id, ...rest } = JSON.parse(stdout);
    assert.match(id, /^\d+$/);
    assert.deepEqual([code, rest], [0, { state: "DONE", output: "5", error: null }]);
  });

  test("reads the SQL from standard input, or a file", async () => {
    const file = join(await emptyFolder(), "task.sql");
    await writeFile(file, "SELECT 'from a file'");
    const input = "SELECT 'from input'";
    for (const [args, said] of [
      [[], "from input\n"],
      [["-"], "from input\n"],
      [["--file", "-"], "from input\n"],
      [["-f", file], "from a file\n"],
    ] as const) {
      assert.equal((await cli(["add", "-w", ...args], { env, input })).stdout, said);
    }
  });

  for (const [what, args, input, said] of [
    [
      "no SQL at all",
      [],
      "",
      /expected SQL: as an argument, by --file, or on standard input; got nothing/,
    ],
    ["blanks", ["  "], "", /expected SQL/],
    [
      "an argument and a file",
      ["SELECT 1", "-f", "x"],
      "",
      /expected the SQL as an argument or by --file, got both/,
    ],
    ["a file that is not there", ["-f", "/nonexistent.sql"], "", /ENOENT/],
    [
      "bytes that are no UTF-8",
      [],
      Buffer.from([0xff, 0xfe]),
      /standard input: expected SQL in UTF-8/,
    ],
    ["a zero byte", [], "a\0b", /zero bytes/],
    ["two plans", ["SELECT 1", "--plan", "now", "--in", "1 s"], "", /one of --plan and --in/],
    [
      "a column that is not there",
      ["SELECT 1", "--set", "nosuch=1"],
      "",
      /column "nosuch".*does not exist/,
    ],
    [
      "a value of another type",
      ["SELECT 1", "--max", "many"],
      "",
      /invalid input syntax for type integer: "many"/,
    ],
    [
      "a value that a check forbids",
      ["SELECT 1", "--active", "0"],
      "",
      /violates check constraint/,
    ],
    [
      "a delimiter of two characters",
      ["SELECT 1", "--delimiter", "||"],
      "",
      /expected --delimiter with one ASCII character, got "\|\|"/,
    ],
    [
      "a quote that is no ASCII",
      ["SELECT 1", "--quote", "«"],
      "",
      /expected --quote with one ASCII character, got "«"/,
    ],
    [
      "half a --set",
      ["SELECT 1", "--set", "crash"],
      "",
      /expected --set column=value, got "crash"/,
    ],
  ] as const) {
    test(`refuses ${what} and adds nothing`, async () => {
      const before = await count();
      const { code, stdout, stderr } = await cli(["add", ...args], { env, input });
      assert.deepEqual([code, stdout], [2, ""]);
      assert.match(stderr, said);
      assert.doesNotMatch(stderr, /\n\s+at /);
      assert.deepEqual(await count(), before);
    });
  }

  test("shows on a terminal how the task is that it waits for, and nothing of that afterwards", async () => {
    const program = new OnTerminal(["add", "-w", "SELECT pg_sleep(3600)"], { env });
    await program.until(/task (\d+): WORK, waited for [\d.]+ s/);
    const [, id = ""] = /task (\d+): WORK/.exec(program.shown) ?? [];
    await cli(["stop", id], { env });
    assert.equal(await program.end(), 12);
    const [, after = ""] = program.shown.split(/\r.\[K(?!task)/);
    assert.match(after, /^(pg-task: task \d+ ended as STOP|ERROR: .*)\r\n/);
  });

  test("leaves the task alone when its waiting is interrupted", async () => {
    const child = spawn(
      process.execPath,
      [bin, "add", "--wait", "SELECT pg_sleep(60)", "--data", "interrupted"],
      {
        env: { PATH: process.env["PATH"], ...env },
        stdio: ["ignore", "ignore", "pipe"],
      },
    );
    let said = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => (said += text));
    let id = "";
    await until("the task runs", async () => {
      const { rows } = await client.query(
        "SELECT id FROM task WHERE data = 'interrupted' AND state = 'WORK'",
      );
      id = rows[0]?.id ?? "";
      return rows.length === 1;
    });
    child.kill("SIGINT");
    await once(child, "close");
    assert.equal(child.exitCode, 130);
    assert.equal(said, `pg-task: task ${id} goes on; pg-task stop ${id} would end it\n`);
    assert.equal((await tasks.row(id)).state, "WORK");
    assert.equal((await cli(["stop", id], { env })).code, 0);
    const row = only(await tasks.until([id], ({ owner }) => owner === null));
    assert.equal(row.state, "STOP");
  });

  describe("by a producer", () => {
    test("who has the documented grants waits with --wait, also where what keeps the task is not to be seen", async () => {
      const role = await createRole(client, `${database.target.database}_documented`);
      const security = readFileSync(projectPath("docs/security.md"), "utf8");
      const [, grants = ""] = /```sql\n(GRANT USAGE[^]*?)```/.exec(security) ?? [];
      await client.query(grants.replaceAll("TO producer", `TO ${role}`));
      const { code, stdout, stderr } = await asProducer(role, "--wait", "--in", "4 s");
      assert.deepEqual([code, stdout], [0, "produced\n"], stderr);
      assert.match(stderr, /^pg-task: task \d+ waits, and why cannot be told: /);
    });

    test("who may not read what --wait looks at adds nothing, and is told what to grant", async () => {
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
        new RegExp(
          `permission denied .*: GRANT SELECT \\(owner\\) ON "public"\\."task" TO ${role}`,
        ),
      );
      assert.deepEqual(await count(), before);
      const plain = await asProducer(role);
      assert.equal(plain.code, 0, plain.stderr);
      assert.match(plain.stdout, /^\d+\n$/);
    });

    test("who may not read ids, or write, is told every right that is missing", async () => {
      const role = await createRole(client, `${database.target.database}_writer`);
      await client.query(
        `GRANT INSERT ON task TO ${role}; GRANT USAGE ON SEQUENCE task_id_seq TO ${role}`,
      );
      const before = await count();
      const blind = await asProducer(role);
      assert.equal(blind.code, 4);
      assert.match(
        blind.stderr,
        new RegExp(`GRANT SELECT \\(id\\) ON "public"\\."task" TO ${role}`),
      );
      await client.query(
        `REVOKE ALL ON task FROM ${role}; REVOKE ALL ON SEQUENCE task_id_seq FROM ${role}`,
      );
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

  test("exits with 14 and the id when the connection ends while it waits", async () => {
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
    assert.match(
      stderr,
      new RegExp(`^pg-task: task ${rows[0].id} was added, and how it ends cannot be read: `),
    );
  });

  test("cuts a long output and makes it harmless on a terminal", async () => {
    const { code, shown } = await cliOnTerminal(
      ["add", "-w", "SELECT E'\\x1b[2J' || i FROM generate_series(1, 1000) AS i"],
      { env },
    );
    assert.equal(code, 0);
    assert.ok(shown.startsWith(String.raw`\x1b[2J1`), shown);
    assert.match(shown, /… [\d,]+ more characters/);
  });
});

/** The codes of the reasons that explain-plan gives. */
async function reasons(id: string): Promise<string[]> {
  const { stdout } = await cli(["explain-plan", id, "--json"], { env });
  return JSON.parse(stdout).reasons.map(({ code }: { code: string }) => code);
}

describe("pg-task explain-plan", () => {
  test("is explain as well", async () => {
    const id = idOf(await cli(["add", "SELECT 1", "--plan", "infinity"], { env }));
    const { code, stdout } = await cli(["explain", id], { env });
    assert.deepEqual([code, stdout], [0, (await cli(["explain-plan", id], { env })).stdout]);
  });

  test("says when a task is not due, never due, or has ended", async () => {
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

  test("names the tasks that hold its group, and those before it", async () => {
    const [first = "", second = "", third = ""] = await tasks.insert(
      { input: "SELECT pg_sleep(60)", group: "one" },
      { input: "SELECT 2", group: "one" },
      { input: "SELECT 3", group: "one" },
    );
    await tasks.underway(first);
    assert.deepEqual(await reasons(first), ["running"]);
    assert.deepEqual(await reasons(third), ["group-limit", "behind-others"]);
    const { code, stdout } = await cli(["explain-plan", second], { env });
    assert.equal(code, 0);
    assert.match(
      stdout,
      new RegExp(
        `^group-limit\\tits group "one" runs 1 \\(${first}\\), and it starts beside 0 at most\\t`,
      ),
    );
    await cli(["stop", first], { env });
    await tasks.ended(second, third);
    assert.deepEqual(await reasons(second), ["ended"]);
  });

  test("says what is paused, since when and why", async () => {
    await cli(["pause", "-g", "halted", "--reason", "because"], { env });
    const [id = ""] = await tasks.insert({ input: "SELECT 1", group: "halted" });
    assert.deepEqual(await reasons(id), ["group-paused"]);
    const { stdout } = await cli(["explain-plan", id], { env });
    assert.match(stdout, /its group "halted" has been paused since [-\dT:.+]+: because/);
    await cli(["resume", "-g", "halted"], { env });
    await tasks.ended(id);
  });

  test("names who has its row locked", async () => {
    const other = await database.connect();
    const { rows } = await other.query("SELECT pg_backend_pid() AS pid");
    await cli(["pause", "-g", "locked"], { env });
    const [id = ""] = await tasks.insert({ input: "SELECT 1", group: "locked" });
    await other.query("BEGIN");
    await other.query("UPDATE task SET data = 'mine' WHERE id = $1", [id]);
    assert.deepEqual(await reasons(id), ["group-paused", "row-locked"]);
    const { stdout } = await cli(["explain-plan", id], { env });
    assert.match(
      stdout,
      new RegExp(`its row is locked by the open transaction of server process ${rows[0].pid} `),
    );
    await other.query("ROLLBACK");
    await cli(["resume", "-g", "locked"], { env });
    await tasks.ended(id);
  });

  test("says of an id that is not there", async () => {
    assert.deepEqual(await cli(["explain-plan", "404404"], { env }), {
      code: 1,
      stdout: "",
      stderr: "pg-task: there is no task 404404\n",
    });
  });
});

const inChain = (shown: string): (string | undefined)[] =>
  [...shown.matchAll(/^(70\d\d) {2}PLAN/gm)].map(([, id]) => id);

describe("pg-task show", () => {
  test("shows twenty of a long chain each way on a terminal, and all with --full", async () => {
    await client.query(
      `INSERT INTO task (id, parent, input, plan) SELECT i, nullif(i - 1, 7000), 'SELECT 1', 'infinity'
       FROM generate_series(7001, 7061) AS i`,
    );
    const short = await cliOnTerminal(["show", "7031"], { env: { ...env, NO_COLOR: "1" } });
    assert.deepEqual(
      [inChain(short.shown).length, inChain(short.shown)[0], inChain(short.shown).at(-1)],
      [40, "7011", "7051"],
    );
    assert.equal(short.shown.match(/^… 10 more \(--full shows them\)$/gm)?.length, 2);
    const full = await cliOnTerminal(["show", "7031", "--full"], {
      env: { ...env, NO_COLOR: "1" },
    });
    assert.equal(inChain(full.shown).length, 60);
    assert.doesNotMatch(full.shown, /…/);
    await client.query("DELETE FROM task WHERE id > 7000");
  });
});

describe("pg-task status", () => {
  test("tells leader, standbys, manager, sessions and pauses", async () => {
    const standby = await startProcess({ config: { url: database.url } });
    await standby.line("standby");
    const [id = ""] = await tasks.insert({ input: "SELECT pg_sleep(60)" });
    await tasks.underway(id);
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

  test("tells where none of its name leads who does under another, or from another database, to anybody", async () => {
    const { rows } = await client.query<{ pid: number }>(
      "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pg_conf'",
    );
    const leader = new RegExp(
      `^other {6}server process ${only(rows).pid} .*leads(.*), its control database is ${database.target.database}$`,
      "m",
    );
    const role = await createRole(client, `status_${database.target.database}`);
    const elsewhere = await createDatabase("empty");
    const asRole = database.url.replace(/\/\/[^@]+@/, `//${role}@`);
    for (const [url, name, words] of [
      [database.url, "mine", " under another pg_conf.name"],
      [asRole, "mine", " under another pg_conf.name"],
      [elsewhere.url, "mine", " under another pg_conf.name"],
      [elsewhere.url, "pg_task", ""],
    ] as const) {
      const cwd = await emptyFolder();
      await writeFile(join(cwd, "pg_task.json"), JSON.stringify({ url, "pg_conf.name": name }));
      const { stdout } = await cli(["status"], { cwd });
      assert.match(stdout, /^leader {5}none: start one with pg-task start$/m);
      assert.equal(leader.exec(stdout)?.[1], words, stdout);
    }
    const cwd = await emptyFolder();
    const config = { url: database.url, "pg_conf.name": "mine" };
    await writeFile(join(cwd, "pg_task.json"), JSON.stringify(config));
    const diagnosis = await cli(["doctor"], { cwd });
    assert.ok(
      diagnosis.stdout.includes(
        `none of the cluster mine; server process ${only(rows).pid} leads one of another name\tgive pg_conf.name `,
      ),
      diagnosis.stdout,
    );
    assert.doesNotMatch((await cli(["status"], { env })).stdout, /^other/m);
  });
});

describe("pg-task watch", () => {
  test("shows the table live, and gives the terminal back as it was", async () => {
    const program = new OnTerminal(["watch"], { env: { ...env, NO_COLOR: "1" } });
    await program.until("q ends");
    const [id = ""] = await tasks.insert({ input: "SELECT 'seen by watch'", group: "watched" });
    await program.until(new RegExp(`${id} {2}DONE {3}watched`));
    program.type("q");
    assert.equal(await program.end(), 0);
    assert.ok(
      program.shown.startsWith("\x1b[?1049h\x1b[?25l"),
      "the second screen is not opened first",
    );
    assert.ok(program.shown.endsWith("\x1b[?25h\x1b[?1049l"), "the first screen is not back");
  });

  for (const [what, keys] of [
    ["Ctrl-C", "\x03"],
    ["Escape", "\x1b"],
  ] as const) {
    test(`is left by ${what} as well`, async () => {
      const program = new OnTerminal(["watch"], { env });
      await program.until("q ends");
      program.type(keys);
      assert.equal(await program.end(), 0);
      assert.ok(program.shown.endsWith("\x1b[?25h\x1b[?1049l"));
    });
  }

  test("goes on after its connection was ended", async () => {
    const program = new OnTerminal(["watch"], { env: { ...env, NO_COLOR: "1" } });
    await program.until("manager    server process");
    const { rows } = await client.query(
      "SELECT pg_terminate_backend(pid) AS ended FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pg-task watch'",
    );
    assert.deepEqual(rows, [{ ended: true }]);
    const [id = ""] = await tasks.insert({ input: "SELECT 1", group: "after the end" });
    await program.until(new RegExp(`${id} {2}DONE {3}after the end`));
    program.type("q");
    assert.equal(await program.end(), 0);
  });

  test("gives programs a line of JSON for each look, until it is told to end", async () => {
    const child = spawn(process.execPath, [bin, "watch", "--json"], {
      env: { PATH: process.env["PATH"], ...env },
      stdio: ["ignore", "pipe", "inherit"],
    });
    const closed = once(child, "close");
    const lines = createInterface({ input: child.stdout });
    let id: string | null = null;
    const seen: (string | undefined)[] = [];
    for await (const line of lines) {
      const look = JSON.parse(line);
      assert.equal(look.table, "task");
      assert.ok(look.backlog.due.exact);
      assert.ok(Array.isArray(look.groups.groups));
      const task = look.tasks.find((each: { id: string }) => each.id === id);
      if (task !== undefined) seen.push(task.state);
      if (task?.state === "DONE") child.kill("SIGINT");
      id ??= (await tasks.insert({ input: "SELECT 'seen by a program'" }))[0] ?? "";
    }
    await closed;
    assert.equal(child.exitCode, 0);
    assert.equal(seen.at(-1), "DONE");
  });

  test("says that it needs a terminal", async () => {
    const { code, stdout, stderr } = await cli(["watch"], { env });
    assert.deepEqual([code, stdout], [2, ""]);
    assert.match(stderr, /expected a terminal to watch on: scripts use pg-task watch --json/);
  });
});

/** Starts pg-task in a folder, with nothing in its environment; resolves when it has logged this. */
async function untilLogged(cwd: string, msg: string): Promise<ChildProcess> {
  const child = spawn(process.execPath, [bin, "start"], {
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

describe("without configuration", () => {
  test("a command finds the embedded server that runs for the folder", async () => {
    const cwd = await emptyFolder();
    const child = await untilLogged(cwd, "ready");
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
      const second = await untilLogged(cwd, "standby");
      second.kill("SIGTERM");
      await once(second, "close");
    } finally {
      child.kill("SIGTERM");
      await once(child, "close");
    }
    await rm(join(cwd, "pg_task.json"));
    const { code, stderr } = await cli(["list"], { cwd });
    assert.equal(code, 2);
    assert.match(stderr, /no embedded server runs for this folder/);
  });

  test("start says so when its file names no server and no embedded one runs", async () => {
    const cwd = await emptyFolder();
    await cli(["init"], { cwd });
    const child = await untilLogged(
      cwd,
      "nothing names a server: it is where libpq looks by default",
    );
    child.kill("SIGTERM");
    await once(child, "close");
  });
});
