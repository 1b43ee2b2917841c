import assert from "node:assert/strict";
import { describe } from "node:test";
import { OnTerminal } from "../../support/cli.js";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { suspend } from "../../support/suspend.js";
import { only } from "../../support/tasks.js";
import { serve } from "../../support/serve.js";
import { startProcess } from "../../support/process.js";

const { database, client, tasks } = await serve({ "pg_task.sleep": 100 });
const env = { DATABASE_URL: database.url };

/** The sequences that begin and end a frame, and the one that erases the rest of a line. */
const [home, end, rest] = ["\x1b[H", "\x1b[J", "\x1b[K"];
const escaped = (sequence: string): string => sequence.replace("[", "\\[");
const frames = (count: number): RegExp => new RegExp(`(?:${escaped(home)}[^]*${escaped(end)}){${count}}`);
const leave = "\x1b[?7h\x1b[?25h\x1b[?1049l";

describe("pg-task watch", () => {
  for (const [what, keys] of [
    ["Ctrl-C", "\x03"],
    ["Escape", "\x1b"],
  ] as const) {
    test(`quits on ${what}`, async () => {
      const program = new OnTerminal(["watch"], { env });
      await program.until("q quits");
      program.type(keys);
      assert.equal(await program.end(), 0);
      assert.ok(program.shown.endsWith(leave));
    });
  }

  test("continues after its connection was terminated", async () => {
    const program = new OnTerminal(["watch"], { env: { ...env, NO_COLOR: "1" } });
    await program.until("manager    server process");
    const { rows } = await client.query(
      "SELECT pg_terminate_backend(pid) AS ended FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pg-task watch'",
    );
    assert.deepEqual(rows, [{ ended: true }]);
    const id = await tasks.add("SELECT 1", { group: "reconnected" });
    await program.until(new RegExp(`${id} {2}DONE {3}reconnected`));
    program.type("q");
    assert.equal(await program.end(), 0);
  });
});

/** Types keys, and waits for what they show. */
async function typeUntil(program: OnTerminal, keys: string, what: RegExp | string): Promise<void> {
  const from = program.shown.length;
  program.type(keys);
  await program.until(what, from);
}

async function quit(program: OnTerminal, keys = "q"): Promise<void> {
  program.type(keys);
  assert.equal(await program.end(), 0);
  assert.ok(program.shown.endsWith(leave), "the main screen is not restored");
}

const shows = (first: number): RegExp => new RegExp(`from task ${first}, Home .*\\s+id .*\\s+${first} {2}DONE`);

describe("pg-task watch on a large table", async () => {
  /** Number of tasks. The table has no manager, so only the tests change it. */
  const many = 100_000;
  const large = await createDatabase();
  const user = await large.connect();
  await user.query(
    `INSERT INTO task (input, "group", state, error, start, stop)
     SELECT 'SELECT ' || i, 'g' || i % 3, CASE i % 1000 WHEN 7 THEN 'FAIL' ELSE 'DONE' END::state,
       CASE i % 1000 WHEN 7 THEN 'ERROR:  seven' END, now(), now() FROM generate_series(1, $1::integer) AS i`,
    [many],
  );

  /** Starts `watch`, and waits for its first tasks. */
  async function watch(...args: string[]): Promise<OnTerminal> {
    const program = new OnTerminal(["watch", ...args], { env: { DATABASE_URL: large.url, NO_COLOR: "1" } });
    await program.until(/\d+ {2}[A-Z]{4} {3}g\d/);
    return program;
  }

  /** The number of tasks that the terminal of 30 lines shows here. */
  const perPage = 18;

  test("scrolls by lines, pages and to both ends", async () => {
    const program = await watch();
    await typeUntil(program, "\x1b[B", shows(many - 1));
    await typeUntil(program, "j\x1b[Bk", shows(many - 2));
    await typeUntil(program, "\x1b[6~", shows(many - 2 - (perPage - 1)));
    await typeUntil(program, "  ", shows(many - 2 - 3 * (perPage - 1)));
    await typeUntil(program, "\x1b[5~", shows(many - 2 - 2 * (perPage - 1)));
    await typeUntil(program, "\x1b[F", shows(perPage));
    await program.until(/\s1 {2}DONE {3}g1/);
    await typeUntil(program, "\x1b[6~", shows(perPage));
    await typeUntil(program, "\x1b[H", new RegExp(`${escaped(rest)}\\s+${escaped(rest)}\\s+id .*\\s+${many} {2}DONE`));
    await quit(program);
  });

  test("new tasks do not move a page that the user has scrolled to, and scrolling back follows them", async () => {
    const program = await watch();
    await typeUntil(program, "\x1b[B\x1b[B", /from task/);
    const top = /from task (\d+)/.exec(program.shown.slice(program.shown.lastIndexOf("from task")))?.[1] ?? "";
    await user.query(
      `INSERT INTO task (input, "group", state) SELECT 'SELECT 0', 'new', 'STOP' FROM generate_series(1, 5)`,
    );
    const from = program.shown.length;
    // At least the third of these frames shows what was read after the insert.
    await program.until(frames(3), from);
    const frame = program.shown.slice(program.shown.lastIndexOf(home, program.shown.lastIndexOf(end)));
    assert.ok(frame.includes(`from task ${top}`), frame);
    assert.ok(!frame.includes("STOP   new"), frame);
    await typeUntil(program, "\x1b[5~", /STOP {3}new/);
    await user.query("DELETE FROM task WHERE state = 'STOP'");
    await typeUntil(program, "", /\s100000 {2}DONE/);
    await quit(program);
  });

  test("filters by text, states and group", async () => {
    const program = await watch();
    await typeUntil(program, "/", "text: _");
    await typeUntil(program, "SELECT 12345x\x7f", "text: SELECT 12345_");
    await typeUntil(program, "\r", /text SELECT 12345.*\s+id .*\s+12345 {2}DONE/);
    await typeUntil(program, "/\x15\r", /\s100000 {2}DONE/);
    await typeUntil(program, "sfail,no\r", "states: fail,no_  expected states from PLAN, TAKE,");
    await typeUntil(program, "\x7f\x7f\x7f\r", /states FAIL.*\s+id .*\s+99007 {2}FAIL {3}g1 .*seven.*\s+98007 {2}FAIL/);
    await typeUntil(program, "gg2\r", /states FAIL {2}group g2.*\s+id .*\s+97007 {2}FAIL/);
    await typeUntil(program, "\x1b[F", /from task \d+.*states FAIL {2}group g2/);
    await typeUntil(program, "ggone\x1b", `g group${rest}`);
    await typeUntil(program, "\x1b", /\s100000 {2}DONE/);
    await typeUntil(program, "gnone\r", "group none  no tasks");
    await quit(program);
  });

  test("takes the filter of list, also with --json", async () => {
    const program = await watch("--state", "FAIL", "--group", "g2");
    assert.match(program.shown, /states FAIL {2}group g2/);
    await quit(program);
    const args = ["watch", "--json", "--state", "FAIL", "--text", "SELECT 7007"];
    const child = await startProcess({ args, env: { DATABASE_URL: large.url } });
    const { tasks: shown } = await child.logged(({ tasks: found }) => Array.isArray(found) && found.length > 0);
    assert.deepEqual(
      JSON.parse(JSON.stringify(shown)).map(({ id }: { id: string }) => id),
      ["7007"],
    );
    await child.stop();
  });

  test("ends with exit code 2 and the main screen if the server refuses the filter", async () => {
    const program = new OnTerminal(["watch", "--since", "garbage"], { env: { DATABASE_URL: large.url } });
    assert.equal(await program.end(), 2);
    assert.match(program.shown.slice(program.shown.indexOf(leave)), /invalid value: .*garbage/);
  });

  test("fits another size of the terminal at once", async () => {
    const program = await watch("--interval", "3600");
    for (const [columns, rows] of [
      [60, 16],
      [120, 40],
      [45, 8],
    ] as const) {
      let from = program.shown.length;
      await program.resize(columns, rows);
      let lines: string[] = [];
      // Frames of the former size can still arrive, and the first of the new size has the tasks that fitted the former.
      while (lines.length !== rows || lines.filter((line) => line.includes("DONE   g")).length < 2) {
        await program.until(frames(1), from);
        const last = program.shown.lastIndexOf(end);
        const start = program.shown.lastIndexOf(home, last);
        from = last;
        lines = program.shown
          .slice(start, last)
          .split(/\r*\n/)
          .map((line) => line.replace(home, "").replace(rest, ""));
      }
      assert.ok(
        lines.every((line) => line.length <= columns),
        lines.join("\n"),
      );
      assert.ok(lines.at(-1)?.startsWith("q quits"));
    }
    await quit(program);
  });

  test("quits although the server does not answer", async () => {
    const program = await watch();
    const { rows } = await user.query<{ pid: number }>(
      "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pg-task watch'",
    );
    const { pid } = only(rows);
    await suspend(pid);
    try {
      await quit(program, "\x03");
    } finally {
      process.kill(pid, "SIGCONT");
    }
  });
});

test("rates are marked as lower bounds if too few rows are read", async () => {
  const busy = await createDatabase();
  const user = await busy.connect();
  await user.query(
    "INSERT INTO task (input, state, start, stop) SELECT '', 'DONE', now(), now() FROM generate_series(1, 20000)",
  );
  const program = new OnTerminal(["watch"], { env: { DATABASE_URL: busy.url, NO_COLOR: "1" } });
  await program.until("finished   at least 20,000 in the last minute, at least 20,000 in the last hour");
  await user.query("UPDATE task SET stop = now() - interval '2 minutes' WHERE id = 1");
  await program.until("finished   19,999 in the last minute, at least 20,000 in the last hour");
  program.type("q");
  assert.equal(await program.end(), 0);
});
