import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { dirname, join, posix } from "node:path";
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

/** Patterns for the files of the package that are not compiled code. */
const others = [
  /^(?:README|CHANGELOG|CONTRIBUTING|LICENSE|SECURITY)(?:\.md)?$/,
  /^docs\/(?:(?:decisions|tutorials)\/)?[\w-]+\.md$/,
  /^docs\/img\/[\w-]+\.(?:png|svg)$/,
  /^examples\/[\w.-]+$/,
  /^(?:package|pg_task\.(?:jobs\.)?schema)\.json$/,
  /^man\/pg-task\.1$/,
  /^ecosystem\.config\.cjs$/,
  /^src\/manager\/schema\/calendar\/\w+\.sql$/,
  /^src\/manager\/schema\/(?:migration|facadeCron|users)\.sql$/,
  /^src\/web\/page\/icon\.svg$/,
];

it("ships of the compiled code only that of src", () => {
  const compiled = shipped.filter((path) => path.startsWith("dist/"));
  assert.ok(compiled.length > 400);
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

it("ships everything that the pages of the package link to", () => {
  const pages = shipped.filter((path) => path.endsWith(".md"));
  assert.ok(pages.length > 40);
  const dead = pages.flatMap((page) => {
    // What is in comments and code is no link.
    const text = readFileSync(join(root, page), "utf8").replaceAll(/<!--[^]*?-->|^```[^]*?^```|`[^`\n]*`/gm, "");
    const inline = [...text.matchAll(/\]\(([^()\s#]+)(?:#[^()\s]*)?(?:\s+"[^"]*")?\)/g)];
    const defined = [...text.matchAll(/^\[[^\]]+\]:\s+([^\s#]+)/gm)];
    const written = [...text.matchAll(/\b(?:href|src)="([^"#]+)/g)];
    return [...inline, ...defined, ...written]
      .map(([, target = ""]) => target)
      .filter((target) => !/^(?:https?|mailto):/.test(target))
      .filter((target) => !isShipped(posix.join(posix.dirname(page), target)))
      .map((target) => `${page}: ${target}`);
  });
  assert.deepEqual(dead, []);
});

/** Whether the package has this file, or files in this folder. */
function isShipped(target: string): boolean {
  const path = target.replace(/\/$/, "");
  return shipped.some((file) => file === path || file.startsWith(`${path}/`));
}

interface Manifest {
  readonly bin: Readonly<Record<string, string>>;
  readonly types: string;
  readonly exports: Readonly<Record<string, string | Readonly<Record<string, string>>>>;
}
const { bin, types, exports }: Manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));

it("ships the files that its bin entry, its types and its exports name", () => {
  const exported = Object.values(exports).flatMap((each) => (typeof each === "string" ? [each] : Object.values(each)));
  for (const path of [bin["pg-task"] ?? "", types, ...exported]) {
    assert.ok(shipped.includes(path.replace(/^\.\//, "")), path);
  }
});

it("ships the declarations that those of the library import", () => {
  const missing: string[] = [];
  const seen = new Set<string>();
  const visit = (path: string): void => {
    if (seen.has(path)) return;
    seen.add(path);
    if (!shipped.includes(path)) missing.push(path);
    else {
      const text = readFileSync(join(root, path), "utf8");
      for (const [, specifier = ""] of text.matchAll(/(?:from|import\() ?"(\.[^"]+)\.js"/g)) {
        visit(join(dirname(path), `${specifier}.d.ts`));
      }
    }
  };
  visit(types.replace(/^\.\//, ""));
  assert.ok(seen.size > 10);
  assert.deepEqual(missing, []);
});

it("is compiled with the native compiler, and documented with the other one", async () => {
  const { stdout: version } = await run(join(root, "node_modules/.bin/tsc"), ["--version"]);
  assert.match(version, /^Version 7\./);
});
