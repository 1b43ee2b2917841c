import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { cli } from "../../support/cli.js";
import { completionScript } from "../../support/completionScript.js";
import { bin, projectPath } from "../../support/project.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";

const folder = await temporaryFolder();

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
      const program = `source '${await completionScript("bash", folder)}'; pg-task() { '${process.execPath}' '${bin}' "$@"; }; COMP_LINE='${typed.join(" ")}'; COMP_WORDS=(${quoted}); COMP_CWORD=${typed.length - 1}; _pg_task; echo "\${COMPREPLY[@]}"`;
      const output = execFileSync("bash", ["--norc", "-c", program], { cwd: folder, encoding: "utf8" });
      assert.deepEqual(words(output), expected);
    });
  }

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

  const skip = spawnSync("man", ["--version"]).error !== undefined && "man is not installed";
  test("is understood by man", { skip }, () => {
    const { stdout, stderr } = spawnSync("man", ["--warnings", "-l", projectPath("man/pg-task.1")], {
      encoding: "utf8",
      env: { ...process.env, MANWIDTH: "100", LC_ALL: "C.UTF-8" },
    });
    assert.equal(stderr, "");
    assert.match(stdout, /why \[id\]\n +explain why a task is not running/);
    assert.match(stdout, /-c, --config <file>\n/);
  });
});
