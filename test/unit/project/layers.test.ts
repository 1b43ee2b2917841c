import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path/posix";
import { it } from "node:test";
import { projectPath } from "../../support/project.js";

const read = (path: string): string => readFileSync(projectPath(path), "utf8");

const diagram = /^```mermaid\n(flowchart TD\n[\s\S]*?)^```/m.exec(read("docs/overview.md"))?.[1] ?? "";

/** The folder of each node of the diagram, by the node's id. */
const folders = new Map(
  [...diagram.matchAll(/^ +(\w+)\["(src\/[\w/]+)"\]$/gm)].map(([, id = "", folder = ""]) => [id, folder]),
);

const arrows = (shape: string): [from: string, to: string][] =>
  [...diagram.matchAll(new RegExp(`^ +(\\w+) ${shape} (\\w+)$`, "gm"))].map(([, from = "", to = ""]) => [
    folders.get(from) ?? from,
    folders.get(to) ?? to,
  ]);
const solid = arrows("-->");
const dotted = arrows("-\\.->");

/** Returns the innermost folder of the diagram that contains the file. */
function layerOf(file: string): string {
  const holders = [...folders.values()].filter((folder) => file.startsWith(`${folder}/`));
  return holders.toSorted((a, b) => b.length - a.length)[0] ?? "none";
}

interface Reference {
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

/** Returns the references to other layers. `target` returns the path that a match of the pattern refers to. */
const references = (pattern: RegExp, target: (file: string, matched: string) => string): Reference[] =>
  readdirSync(projectPath("src"), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .map((name) => join("src", name.replaceAll("\\", "/")))
    .flatMap((file) =>
      [...read(file).matchAll(pattern)].map(([, specifier = ""]) => ({
        file,
        from: layerOf(file),
        to: layerOf(target(file, specifier)),
      })),
    )
    .filter(({ from, to }) => from !== to);

const imports = references(/(?:\bfrom|\bimport|\bimport\()\s*"(\.[^"]+)"/g, (file, specifier) =>
  join(dirname(file), specifier),
);
const threads = references(/\bpackageFile\("dist\/([^"]+\.cjs)"\)/g, (_, path) => path);

function isAbove(from: string, to: string): boolean {
  return solid.some(([a, b]) => a === from && (b === to || isAbove(b, to)));
}

it("finds the diagram, the imports and the threads", () => {
  assert.ok(folders.size > 10);
  assert.ok(imports.length > 500);
  assert.equal(threads.length, 2);
});

it("has a layer for every file and every end of an arrow", () => {
  const known = new Set(folders.values());
  for (const arrow of [...solid, ...dotted]) for (const end of arrow) assert.ok(known.has(end), end);
  for (const { file, from, to } of [...imports, ...threads]) assert.ok(known.has(from) && known.has(to), file);
});

it("has no circle of layers", () => {
  const visit = (layer: string, path: readonly string[]): void => {
    assert.ok(!path.includes(layer), [...path, layer].join(" → "));
    for (const [from, to] of solid) if (from === layer) visit(to, [...path, layer]);
  };
  for (const layer of folders.values()) visit(layer, []);
});

it("imports only along the solid arrows", () => {
  const wrong = imports.filter(({ from, to }) => !isAbove(from, to)).map(({ file, to }) => `${file} imports ${to}`);
  assert.deepEqual(wrong, []);
});

it("starts threads only along the dotted arrows", () => {
  assert.deepEqual(
    threads.map(({ from, to }) => `${from} → ${to}`).toSorted(),
    dotted.map(([from, to]) => `${from} → ${to}`).toSorted(),
  );
});

it("has an import behind every solid arrow", () => {
  const unused = solid.filter(([a, b]) => !imports.some(({ from, to }) => from === a && to === b));
  assert.deepEqual(unused, []);
});
