import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { it } from "node:test";
import { createDatabase } from "../../support/database.js";
import { startProcess } from "../../support/process.js";
import { token, Web } from "../../support/web.js";

const root = new URL("../../../../", import.meta.url);
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
  let text = "";
  // Between two scrapes it sees how late the event loop is.
  do ({ text } = await web.anonymously("/metrics"));
  while (!text.includes("pg_task_event_loop_delay_seconds{"));
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

  /** Labels that each sample of a metric has. */
  const labels = new Map<string, Set<string>>();
  for (const [, name = "", list = ""] of text.matchAll(/^(\w+)\{(.*)\} \S+$/gm)) {
    const own = labels.get(name) ?? new Set();
    for (const [, label = ""] of list.matchAll(/(\w+)="/g)) labels.set(name, own.add(label));
  }
  for (const expression of expressions) {
    // What the scraper adds aside.
    const by = [...expression.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, list = ""]) =>
      list.split(", ").filter((label) => label !== "instance"),
    );
    for (const name of namesIn(expression)) {
      const matched = [...expression.matchAll(new RegExp(`${name}\\{([^}]*)\\}`, "g"))].flatMap(
        ([, list = ""]) => [...list.matchAll(/(\w+)[=!]/g)].map(([, label = ""]) => label),
      );
      const own = labels.get(name) ?? new Set();
      const unknown = [...by, ...matched].filter((label) => !own.has(label));
      assert.deepEqual(unknown, [], `${expression} asks for labels that ${name} has not`);
    }
  }

  const rows = read("docs/web.md")
    .split("\n")
    .flatMap((line) => /^\| `([a-z_]+)` /.exec(line)?.[1] ?? [])
    .filter((name) => /^(pg_task|process)_/.test(name));
  assert.deepEqual(new Set(rows), new Set(told.map(({ name }) => name)));
});
