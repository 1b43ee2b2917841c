import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { OnTerminal } from "../../support/cli.js";
import { completionScript } from "../../support/completionScript.js";
import { installedProgram } from "../../support/debianPackage.js";
import { bin } from "../../support/project.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";

const folder = await temporaryFolder();

const skip = async (shell: string): Promise<string | false> =>
  (await installedProgram(shell, [`/bin/${shell}`, `/usr/bin/${shell}`, `/usr/local/bin/${shell}`])) === null &&
  `${shell} is not installed, and apt cannot install it here`;

describe("pg-task completion in several shells", async () => {
  test("completes in fish", { skip: await skip("fish") }, async () => {
    const path = await completionScript("fish", folder);
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

  describe("with names from anyone's file", async () => {
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
      "gg:x=y 'z",
    ];
    // zsh and fish quote by themselves.
    const quotes = { bash: ["", "'", '"'], zsh: [""], fish: [""] };
    for (const shell of ["bash", "zsh", "fish"] as const) {
      test(`completes them as one word in ${shell}, and runs nothing`, { skip: await skip(shell) }, async (t) => {
        const home = await temporaryFolder();
        // In place of pg-task, the shell runs this, which shows what the command would get.
        const program = `#!/bin/sh\n[ "$1" = complete-values ] && exec '${process.execPath}' '${bin}' "$@"\nprintf '%s\\0' "$@" > got\necho "<got>"\n`;
        await writeFile(join(home, "pg-task"), program, { mode: 0o755 });
        await writeFile(
          join(home, "pg_task.json"),
          JSON.stringify(names.map((table, index) => ({ data: `d${index}`, table }))),
        );
        const path = await completionScript(shell, folder);
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
        // bash splits words at colons and equals signs.
        const split = [
          "--table gg:",
          "--table gg:x",
          "--table gg:x=",
          "--table gg:x=y",
          "--table 'gg:x'=",
          String.raw`--table gg\:x=`,
          "--table=gg",
          "--table=gg:x=y",
          "--config=pg_task.json --table gg:x",
        ].map((line) => [line, "gg:x=y 'z"]);
        const all = [...typed, ...(shell === "bash" ? split : []), ["--config pg_t", "pg_task.json"]];
        for (const [line = "", value = ""] of all) {
          const from = terminal.shown.length;
          terminal.type(`pg-task list ${line}\t\r`);
          await terminal.until("<got>\r\n", from);
          const got = readFileSync(join(home, "got"), "utf8").split("\0");
          const options = line.split(" ").slice(0, -1);
          const last = line.startsWith("--table=") ? [`--table=${value}`] : [value];
          assert.deepEqual(got, ["list", ...(line.startsWith("--table=") ? [] : options), ...last, ""], line);
        }
        assert.equal(existsSync(join(home, "ran")), false);
      });
    }
  });
});
