import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { it } from "node:test";
import { createDatabase } from "../support/database.js";
import { startProcess } from "../support/process.js";
import { token, Web } from "../support/web.js";

const root = new URL("../../../", import.meta.url);
const read = (file: string): string => readFileSync(new URL(file, root), "utf8");

/** What begins like one of our metrics. */
const namesIn = (text: string): Set<string> =>
  new Set(text.match(/\b(?:pg_task|process)_[a-z_]+\b/g) ?? []);

/** What an expression may name of a metric of that type. */
function expressible(name: string, type: string): string[] {
  return type === "histogram" ? [`${name}_bucket`, `${name}_sum`, `${name}_count`] : [name];
}

const database = await createDatabase();

it("tells every metric that the dashboard and the documentation name, and no other", async () => {
  const program = await startProcess({
    config: { url: database.url, "pg_http.listen": "127.0.0.1:0", "pg_http.token": token },
  });
  const web = await Web.of(program);
  await program.line("ready");
  const { text } = await web.anonymously("/metrics");
  await program.end();
  const told = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name = "", type = ""]) => ({
    name,
    type,
  }));

  const dashboard: { panels: { targets: { expr: string }[] }[] } = JSON.parse(
    read("examples/grafana.json"),
  );
  const expressions = dashboard.panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));
  const drawn = namesIn(expressions.join("\n"));
  assert.ok(drawn.size > 10);
  const known = new Set(told.flatMap(({ name, type }) => expressible(name, type)));
  assert.deepEqual(
    [...drawn].filter((name) => !known.has(name)),
    [],
  );

  const rows = read("docs/web.md")
    .split("\n")
    .flatMap((line) => /^\| `([a-z_]+)` /.exec(line)?.[1] ?? [])
    .filter((name) => /^(pg_task|process)_/.test(name));
  assert.deepEqual(new Set(rows), new Set(told.map(({ name }) => name)));
});
