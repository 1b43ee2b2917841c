import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { it } from "node:test";
import { promisify } from "node:util";
import { projectPath } from "../../support/project.js";

const run = promisify(execFile);
const root = projectPath();

/** The paths of the files that `npm pack` would include. */
const { stdout } = await run("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], {
  cwd: root,
  maxBuffer: 16 * 1024 * 1024,
});
const [manifest]: [{ files: { path: string }[] }] = JSON.parse(stdout);
const shipped = manifest.files.map(({ path }) => path);

/** Returns the path of the source file from which a file was compiled. */
const sourceOf = (path: string): string =>
  path.replace(/^dist\//, "").replace(/(?:\.c?js|\.c?js\.map|\.d\.ts)$/, ".ts");

/** Patterns for the files of the package that are not compiled code. */
const others = [
  /^(?:README|CHANGELOG|LICENSE)(?:\.md)?$/,
  /^docs\/(?:decisions\/)?[\w-]+\.md$/,
  /^docs\/img\/[\w-]+\.(?:png|svg)$/,
  /^examples\/[\w.-]+$/,
  /^(?:package|pg_task\.schema)\.json$/,
  /^man\/pg-task\.1$/,
  /^ecosystem\.config\.cjs$/,
  /^src\/manager\/schema\/calendar\/\w+\.sql$/,
  /^src\/manager\/schema\/migrations\/\d{4}_\w+\.sql$/,
  /^src\/web\/page\/\w+\.(?:css|svg)$/,
];

it("ships compiled code only where its source exists", () => {
  const compiled = shipped.filter((path) => path.startsWith("dist/"));
  assert.ok(compiled.length > 500);
  const stale = compiled.filter((path) => !existsSync(join(root, sourceOf(path))));
  assert.deepEqual(stale, [], "outputs without a source: run npm run clean");
  assert.ok(compiled.every((path) => path.startsWith("dist/src/")));
});

it("ships nothing but documentation, examples, SQL and page assets beside the code", () => {
  const rest = shipped.filter((path) => !path.startsWith("dist/"));
  assert.deepEqual(
    rest.filter((path) => !others.some((pattern) => pattern.test(path))),
    [],
  );
  for (const pattern of others)
    assert.ok(
      rest.some((path) => pattern.test(path)),
      String(pattern),
    );
});

it("ships the file that its bin entry names", () => {
  const { bin }: { bin: Record<string, string> } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  assert.ok(shipped.includes(bin["pg-task"] ?? ""));
});
