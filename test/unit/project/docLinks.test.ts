import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path/posix";
import { it } from "node:test";
import { projectPath, projectText } from "../../support/project.js";

const markdownIn = (folder: string): string[] =>
  readdirSync(projectPath(folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".md"))
    .map((name) => join(folder, name.replaceAll("\\", "/")));

/** The text of each document, without its code blocks. */
const documents = new Map(
  [
    ...readdirSync(projectPath()).filter((name) => name.endsWith(".md")),
    ...markdownIn("docs"),
    ...markdownIn(".github"),
  ].map((file) => [file, projectText(file).replaceAll(/^ *```[\s\S]*?^ *```$/gm, "")]),
);

/** Returns the anchors of a document's headings, according to GitHub's rule. */
function anchors(text: string): Set<string> {
  const found = new Set<string>();
  for (const [, heading = ""] of text.matchAll(/^#{1,6} +(.+?) *$/gm)) {
    const slug = heading
      .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1")
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}_ -]/gu, "")
      .replaceAll(" ", "-");
    let unique = slug;
    for (let n = 1; found.has(unique); n += 1) unique = `${slug}-${n}`;
    found.add(unique);
  }
  return found;
}

it("has documents to check", () => {
  assert.ok(documents.has("README.md") && documents.has("docs/overview.md"));
});

it("links only to files and headings that exist", () => {
  const broken: string[] = [];
  for (const [file, text] of documents) {
    for (const [link, target = ""] of text.matchAll(/\]\(([^()\s]+)(?: "[^"]*")?\)/g)) {
      if (/^[a-z]+:/.test(target)) continue;
      const [path = "", anchor] = target.split("#");
      const linked = path === "" ? file : join(dirname(file), path);
      const found =
        existsSync(projectPath(linked)) && (anchor === undefined || anchors(documents.get(linked) ?? "").has(anchor));
      if (!found) broken.push(`${file}: ${link.slice(1)}`);
    }
  }
  assert.deepEqual(broken, []);
});

it("names only files and folders that exist", () => {
  const missing: string[] = [];
  for (const [file, text] of documents)
    for (const [, path = ""] of text.matchAll(/`((?:src|test|docs|bench|examples)\/[^`\s]*)`/g))
      // If the path is a pattern, only its folder is checked.
      if (!existsSync(projectPath(path.replace(/[^/]*\*.*$/, "")))) missing.push(`${file}: ${path}`);
  assert.deepEqual(missing, []);
});
