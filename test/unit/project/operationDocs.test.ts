import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { it } from "node:test";
import { projectPath } from "../../support/project.js";

const root = projectPath();
const text = readFileSync(join(root, "docs/operation.md"), "utf8");
const sources = readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".ts"))
  .map((file) => ({ file, source: readFileSync(join(root, "src", file), "utf8") }));
const everything = sources.map(({ source }) => source).join("\n");

/** The messages in the rows of the tables of log lines. */
const messages = [...(text.split("\n### Errors\n")[1] ?? "").matchAll(/^\| (`.*?`) +\|/gm)]
  .flatMap(([, cell = ""]) => [...cell.matchAll(/`([^`]+)`/g)].map(([, msg = ""]) => msg))
  .filter((msg) => msg !== "msg");

it("documents only existing log lines, each once", () => {
  assert.ok(messages.length > 30);
  assert.equal(new Set(messages).size, messages.length);
  for (const msg of messages) assert.ok(everything.includes(`"${msg}"`), msg);
});

/** The messages of all log calls whose message is a literal, or a constant that is defined just before the call. */
const logged = sources
  .filter(({ file }) => !file.startsWith("embedded"))
  .flatMap(({ file, source }) =>
    [...source.matchAll(/\b#?[lL]og\??\.(?:info|warn|error)\(\s*(?:\{[^}]*\}|[\w.]+\([^()]*\))?,?\s*"([^"]+)"/g)].map(
      ([, msg = ""]) => ({ file, msg }),
    ),
  );

it("documents every line that is logged above debug", () => {
  assert.ok(logged.length > 50, String(logged.length));
  for (const { file, msg } of logged) assert.ok(messages.includes(msg), `${file}: ${msg}`);
});
