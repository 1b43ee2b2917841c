import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { test } from "../../support/limitedTest.js";
import { bin, projectPath } from "../../support/project.js";

/** Runs `pg-task --version` on a Node that says that it has this version. */
async function runOn(version: string): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const pretend = `Object.defineProperty(process, "versions", { value: { ...process.versions, node: "${version}" } })`;
  const preload = `data:text/javascript,${encodeURIComponent(pretend)}`;
  const child = spawn(process.execPath, ["--import", preload, bin, "--version"]);
  const output = { stdout: "", stderr: "" };
  child.stdout.setEncoding("utf8").on("data", (text: string) => (output.stdout += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (output.stderr += text));
  await once(child, "close");
  return { code: child.exitCode, ...output };
}

test("a Node that is too old is refused in one line", async () => {
  for (const version of ["14.21.3", "18.20.8", "20.18.3"]) {
    assert.deepEqual(await runOn(version), {
      code: 2,
      stdout: "",
      stderr: `pg-task: expected Node.js 20.19 or later, got ${version}\n`,
    });
  }
});

test("the oldest version that is accepted is the one in package.json", async () => {
  const { version, engines }: { version: string; engines: { node: string } } = JSON.parse(
    readFileSync(projectPath("package.json"), "utf8"),
  );
  assert.equal(engines.node, ">=20.19");
  for (const accepted of ["20.19.0", "22.0.0", "100.1.0"]) {
    assert.deepEqual(await runOn(accepted), { code: 0, stdout: `${version}\n`, stderr: "" });
  }
});
