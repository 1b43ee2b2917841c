import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { it } from "node:test";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../..", import.meta.url));
const text = readFileSync(join(root, "docs/operation.md"), "utf8");
const sources = readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".ts"))
  .map((file) => readFileSync(join(root, "src", file), "utf8"))
  .join("\n");

/** Of each row of the table of log lines. */
const messages = [...text.matchAll(/^\| (?:info|warn|error) +\| `([^`]+)`/gm)].map(
  ([, msg = ""]) => msg,
);

it("documents log lines that there are, each once", () => {
  assert.ok(messages.length > 30);
  assert.equal(new Set(messages).size, messages.length);
  for (const msg of messages) assert.ok(sources.includes(`"${msg}"`), msg);
});
