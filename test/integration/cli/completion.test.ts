import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { cli, OnTerminal } from "../../support/cli.js";
import { bin, projectPath } from "../../support/project.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";

const folder = await temporaryFolder();

async function script(shell: string): Promise<string> {
  const { code, stdout } = await cli(["completion", shell], {});
  assert.equal(code, 0);
  const path = join(folder, shell);
  await writeFile(path, stdout);
  return path;
}

const installed = (program: string): boolean => spawnSync(program, ["--version"]).error === undefined;
const skip = (program: string): { skip: string | false } => ({
  skip: !installed(program) && `${program} is not installed`,
});

const words = (output: string): string[] => output.split(/\s+/).filter((word) => word !== "");

describe("pg-task completion", () => {
  const cases = [
    [["pg-task", "pr"], ["prune"]],
    [["pg-task", "why", "--t"], ["--table"]],
    [["pg-task", "explain", "--js"], ["--json"]],
    [["pg-task", "add", "--no-dr"], ["--no-drift"]],
    [["pg-task", "add", "--group", ""], []],
    [["pg-task", "nosuch", "-"], []],
    [["pg-task", "help", "pru"], ["prune"]],
    [["pg-task", "completion", "f"], ["fish"]],
    [["pg-task", "list", "--state", "G"], ["GONE"]],
    [["pg-task", "list", "-s", "FAIL,P"], ["FAIL,PLAN"]],
    [["pg-task", "prune", "--state", "P"], []],
    [["pg-task", "list", "--table", "out"], ["outbox"]],
    [["pg-task", "show", "--table", "mail."], ["mail.outbox"]],
    [["pg-task", "list", "--entry", "sh"], ["shop"]],
    [
      ["pg-task", "list", "--config", "other.json", "--entry", ""],
      ["1", "elsewhere"],
    ],
  ] as const;
  for (const [typed, expected] of cases) {
    test(`completes ${JSON.stringify(typed)} in bash`, async () => {
      await writeFile(
        join(folder, "pg_task.json"),
        JSON.stringify([{ data: "shop" }, { data: "shop", schema: "mail", table: "outbox" }]),
      );
      await writeFile(join(folder, "other.json"), JSON.stringify([{ data: "elsewhere" }]));
      const quoted = typed.map((word) => `'${word}'`).join(" ");
      const program = `source '${await script("bash")}'; pg-task() { '${process.execPath}' '${bin}' "$@"; }; COMP_WORDS=(${quoted}); COMP_CWORD=${typed.length - 1}; _pg_task; echo "\${COMPREPLY[@]}"`;
      const output = execFileSync("bash", ["--norc", "-c", program], { cwd: folder, encoding: "utf8" });
      assert.deepEqual(words(output), expected);
    });
  }

  test("completes in fish", skip("fish"), async () => {
    const path = await script("fish");
    const own = `function pg-task; '${process.execPath}' '${bin}' $argv; end`;
    await writeFile(join(folder, "pg_task.json"), JSON.stringify([{ data: "shop", table: "outbox" }]));
    const complete = (line: string): string[] =>
      execFileSync("fish", ["--no-config", "-c", `${own}; source '${path}'; complete -C '${line}'`], {
        encoding: "utf8",
        cwd: folder,
      })
        .split("\n")
        .flatMap((each) => each.split("\t", 1))
        .filter((each) => each !== "");
    assert.deepEqual(complete("pg-task pr"), ["prune"]);
    assert.deepEqual(complete("pg-task explain --js"), ["--json"]);
    assert.deepEqual(complete("pg-task list --state G"), ["GONE"]);
    assert.deepEqual(complete("pg-task list --state FAIL,P"), ["FAIL,PLAN"]);
    assert.deepEqual(complete("pg-task completion z"), ["zsh"]);
    assert.deepEqual(complete("pg-task list --table out"), ["outbox"]);
    assert.deepEqual(complete("pg-task list --entry sh"), ["shop"]);
    await writeFile(join(folder, "other.json"), JSON.stringify([{ data: "elsewhere" }]));
    assert.deepEqual(complete("pg-task list -c other.json --entry else"), ["elsewhere"]);
  });

  describe("with names from anyone's file", () => {
    const started = {
      bash: (path: string) => `PS1='ready> ' exec bash --norc --rcfile /dev/null -i; # ${path}`,
      zsh: (path: string) => `PS1='ready> ' exec zsh -f -i; # ${path}`,
      fish: (path: string) => `exec fish --no-config -i -C 'function fish_prompt; echo "ready> "; end; source ${path}'`,
    };
    // Each has its own first two letters, which are all that is typed.
    const names = [
      "aa $(touch ran) `touch ran`",
      `bb'x "y`,
      String.raw`cc\x\\ *?[a-z] {a,b}`,
      "dd\nx !;&|<> =:@ $HOME ~ #x",
      "eeäx'",
      'ff"',
    ];
    // zsh and fish quote by themselves.
    const quotes = { bash: ["", "'", '"'], zsh: [""], fish: [""] };
    for (const shell of ["bash", "zsh", "fish"] as const) {
      test(`completes them as one word in ${shell}, and runs nothing`, skip(shell), async (t) => {
        const home = await temporaryFolder();
        // In place of pg-task, the shell runs this, which shows what the command would get.
        const program = `#!/bin/sh\n[ "$1" = complete-values ] && exec '${process.execPath}' '${bin}' "$@"\nprintf '%s\\0' "$@" > got\necho "<got>"\n`;
        await writeFile(join(home, "pg-task"), program, { mode: 0o755 });
        await writeFile(
          join(home, "pg_task.json"),
          JSON.stringify(names.map((table, index) => ({ data: `d${index}`, table }))),
        );
        const path = await script(shell);
        const terminal = new OnTerminal(started[shell](path), {
          cwd: home,
          columns: 1000,
          env: { HOME: home, PATH: `${home}:${process.env["PATH"]}`, LC_ALL: "C.UTF-8" },
        });
        t.after(() => terminal.hangUp());
        await terminal.until("ready> ");
        if (shell !== "fish") terminal.type(`. '${path}'\r`);
        const typed = quotes[shell].flatMap((quote) =>
          names.map((name) => [`--table ${quote}${name.slice(0, 2)}`, name]),
        );
        for (const [line = "", value = ""] of [...typed, ["--config pg_t", "pg_task.json"]]) {
          const from = terminal.shown.length;
          terminal.type(`pg-task list ${line}\t\r`);
          await terminal.until("<got>\r\n", from);
          const got = readFileSync(join(home, "got"), "utf8").split("\0");
          assert.deepEqual(got, ["list", line.split(" ")[0], value, ""], line);
        }
        assert.equal(existsSync(join(home, "ran")), false);
      });
    }
  });

  test("refuses another shell", async () => {
    const { code, stderr } = await cli(["completion", "tcsh"], {});
    assert.equal(code, 2);
    assert.equal(stderr, 'pg-task: expected one of bash, zsh, fish, got "tcsh"\n');
  });
});

describe("pg-task manual", () => {
  test("prints the manual page of the package", async () => {
    const { code, stdout } = await cli(["manual"], {});
    assert.equal(code, 0);
    assert.equal(stdout, readFileSync(projectPath("man/pg-task.1"), "utf8"), "npm run manual writes it anew");
  });

  test("is understood by man", skip("man"), () => {
    const { stdout, stderr } = spawnSync("man", ["--warnings", "-l", projectPath("man/pg-task.1")], {
      encoding: "utf8",
      env: { ...process.env, MANWIDTH: "100", LC_ALL: "C.UTF-8" },
    });
    assert.equal(stderr, "");
    assert.match(stdout, /why \[id\]\n +explain why a task is not running/);
    assert.match(stdout, /-c, --config <file>\n/);
  });
});
