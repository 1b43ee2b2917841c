import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path/posix";
import { it } from "node:test";
import { projectPath, projectText } from "../../support/project.js";

// What this overlooks: test/integration/shadows.test.ts sends the statements.

const read = (path: string): string => projectText(path);

/** The files that the library needs, and that contain the statements which it sends on its caller's connections. */
const files = [...reachable("src/library/taskClient.ts")].filter((file) =>
  /^src\/(?:library\/|tasks\/|manager\/schema\/changes)/.test(file),
);

function reachable(file: string, found = new Set<string>()): Set<string> {
  if (found.has(file) || !existsSync(projectPath(file))) return found;
  found.add(file);
  for (const [, path = ""] of read(file).matchAll(/^(?:import|export) (?!type )[^;]*?from "(\.[^"]+)\.js";$/gm))
    reachable(`${join(dirname(file), path)}.ts`, found);
  return found;
}

/** The names of functions that are qualified somewhere. */
const functions = new Set(
  readdirSync(projectPath("src"), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .flatMap((name) =>
      [...read(join("src", name)).matchAll(/\bpg_catalog\.(\w+)\(/g)].map(([, called = ""]) => called),
    ),
);

const operator = String.raw`(?:=|<>|<=?|>=?|@>|<@|\|\||->>?|#>>?|~|[-+*/]|(?:NOT )?(?:IN|LIKE|BETWEEN)|IS (?:NOT )?DISTINCT FROM)`;

/** SQL whose meaning depends on the `search_path`. The names of some types, such as `bigint`, are keywords, and do not. */
const unqualified: Readonly<Record<string, RegExp>> = {
  type: /::(?!pg_catalog\.|\$\{|(?:bigint|integer|interval|boolean|numeric)\b)/,
  function: new RegExp(String.raw`(?<![.\w$"])(?:nullif|${[...functions].join("|")})\(`, "i"),
  operator: new RegExp(
    String.raw`\b[a-z]\.(?:\w+|"\w+")(?:::[\w.]+)? ${operator} |[^.]= (?:ANY|ALL) \(|<> ALL \(|\bIN \(|#>> '`,
  ),
  relation: /\b(?:FROM|JOIN) pg_(?!catalog\.)/,
};

const withoutComments = (text: string): string => text.replace(/\/\*\*[^]*?\*\/|^ *\/\/.*$/gm, "");

it("knows the library's statements, and what is not qualified", () => {
  assert.ok(files.includes("src/manager/schema/changes.sql.ts") && functions.has("unnest"));
  const wrong = {
    type: "t.id::text",
    function: "FROM unnest($1)",
    operator: "ON t.id = $1",
    relation: "FROM pg_class",
  };
  for (const [kind, sql] of Object.entries(wrong)) assert.match(sql, unqualified[kind] ?? /^$/);
});

for (const file of files)
  it(`${file} qualifies functions, operators and types`, () => {
    const lines = withoutComments(read(file)).split("\n");
    const found = lines.flatMap((line) =>
      Object.entries(unqualified).flatMap(([kind, pattern]) => (pattern.test(line) ? [`${kind}: ${line.trim()}`] : [])),
    );
    assert.deepEqual(found, []);
  });
