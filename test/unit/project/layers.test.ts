import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { dirname, join } from "node:path/posix";
import { describe, it } from "node:test";
import { projectPath, projectText } from "../../support/project.js";

const read = (path: string): string => projectText(path);

const files = readdirSync(projectPath("src"), { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".ts"))
  .map((name) => join("src", name.replaceAll("\\", "/")));

interface Reference {
  readonly from: string;
  readonly to: string;
}

/** Returns the references to other files. `target` returns the path that a match of the pattern refers to. */
const references = (pattern: RegExp, target: (file: string, matched: string) => string): Reference[] =>
  files.flatMap((from) =>
    [...read(from).matchAll(pattern)].map(([, specifier = ""]) => ({ from, to: target(from, specifier) })),
  );

const imports = references(/(?:\bfrom|\bimport|\bimport\()\s*"(\.[^"]+)"/g, (file, specifier) =>
  join(dirname(file), specifier),
);
const threads = references(/\bpackageFile\("dist\/([^"]+\.cjs)"\)/g, (_, path) => path);

const [overview = "", manager = ""] = [
  ...read("docs/overview.md").matchAll(/^```mermaid\n(flowchart TD\n[\s\S]*?)^```/gm),
].map(([, diagram = ""]) => diagram);

const layersOf = (diagram: string): Map<string, string> =>
  new Map([...diagram.matchAll(/^ +(\w+)\["(src\/[\w/]+)"\]$/gm)].map(([, id = "", folder = ""]) => [id, folder]));

function arrowsOf(diagram: string, shape: string): [from: string, to: string][] {
  const folders = layersOf(diagram);
  return [...diagram.matchAll(new RegExp(`^ +(\\w+) ${shape} (\\w+)$`, "gm"))].map(([, from = "", to = ""]) => [
    folders.get(from) ?? from,
    folders.get(to) ?? to,
  ]);
}

/** Returns the innermost layer that contains the file. */
const layerOf = (layers: readonly string[], file: string): string =>
  layers.filter((folder) => file.startsWith(`${folder}/`)).toSorted((a, b) => b.length - a.length)[0] ?? "none";

it("finds the diagrams, the imports and the threads", () => {
  assert.ok(layersOf(overview).size > 10);
  assert.ok(layersOf(manager).size > 10);
  assert.ok(imports.length > 1000);
  assert.equal(threads.length, 2);
});

it("has a layer for every file", () => {
  const parts = [...layersOf(overview).values()];
  for (const file of files) assert.notEqual(layerOf(parts, file), "none", file);
  const folders = [...layersOf(manager).values()];
  const inFolder = files.filter((file) => /^src\/manager\/\w+\//.test(file));
  for (const file of inFolder) assert.notEqual(layerOf(folders, file), "none", file);
});

it("has no circle of files, types included", () => {
  const done = new Set<string>();
  const visit = (file: string, path: readonly string[]): void => {
    assert.ok(!path.includes(file), [...path.slice(path.indexOf(file)), file].join(" → "));
    if (done.has(file)) return;
    for (const { from, to } of imports) if (from === file) visit(to.replace(/\.js$/, ".ts"), [...path, file]);
    done.add(file);
  };
  for (const file of files) visit(file, []);
});

for (const [title, diagram] of [
  ["all parts", overview],
  ["the manager", manager],
] as const) {
  describe(`layers of ${title}`, () => {
    const layers = [...layersOf(diagram).values()];
    const solid = arrowsOf(diagram, "-->");
    const between = imports
      .map(({ from, to }) => ({ file: from, from: layerOf(layers, from), to: layerOf(layers, to) }))
      .filter(({ from, to }) => from !== to && from !== "none" && to !== "none");

    function isAbove(from: string, to: string): boolean {
      return solid.some(([a, b]) => a === from && (b === to || isAbove(b, to)));
    }

    it("has a layer for every end of an arrow", () => {
      for (const end of solid.flat()) assert.ok(layers.includes(end), end);
    });

    it("has no circle", () => {
      const visit = (layer: string, path: readonly string[]): void => {
        assert.ok(!path.includes(layer), [...path, layer].join(" → "));
        for (const [from, to] of solid) if (from === layer) visit(to, [...path, layer]);
      };
      for (const layer of layers) visit(layer, []);
    });

    it("imports only along the solid arrows", () => {
      const wrong = between.filter(({ from, to }) => !isAbove(from, to)).map(({ file, to }) => `${file} imports ${to}`);
      assert.deepEqual(wrong, []);
    });

    it("has an import behind every solid arrow", () => {
      const unused = solid.filter(([a, b]) => !between.some(({ from, to }) => from === a && to === b));
      assert.deepEqual(unused, []);
    });
  });
}

it("starts threads only along the dotted arrows", () => {
  const layers = [...layersOf(overview).values()];
  assert.deepEqual(
    threads.map(({ from, to }) => `${layerOf(layers, from)} → ${layerOf(layers, to)}`).toSorted(),
    arrowsOf(overview, "-\\.->")
      .map(([from, to]) => `${from} → ${to}`)
      .toSorted(),
  );
});
