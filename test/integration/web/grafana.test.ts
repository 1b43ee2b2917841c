import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { it } from "node:test";
import { createDatabase } from "../../support/database.js";
import { startProcess } from "../../support/process.js";
import { token, Web } from "../../support/web.js";

const root = new URL("../../../../", import.meta.url);
const read = (file: string): string => readFileSync(new URL(file, root), "utf8");

/** Returns the names of pg-task's metrics that occur in a text. */
const namesIn = (text: string): Set<string> => new Set(text.match(/\b(?:pg_task|process)_[a-z_0-9]+\b/g) ?? []);

/** Returns the names by which an expression may refer to a metric. */
function seriesNames(name: string, type: string): string[] {
  return type === "histogram" ? [`${name}_bucket`, `${name}_sum`, `${name}_count`] : [name];
}

const database = await createDatabase();

it("exports exactly the metrics of docs/web.md, and all that the dashboard and the alert rules use", async () => {
  const program = await startProcess({
    config: { url: database.url, "pg_http.listen": "127.0.0.1:0", "pg_http.token": token },
  });
  const web = await Web.connect(program);
  await program.line("ready");
  // Without a retry, its metric has no labels.
  const client = await database.connect();
  await client.query("INSERT INTO task (input, retry, backoff) VALUES ('SELECT 1/0', 1, '1 ms')");
  let text = "";
  // The event loop delay is measured between two scrapes, so the first scrape does not contain it.
  do ({ text } = await web.requestWithoutToken("/metrics"));
  while (!text.includes("\npg_task_event_loop_delay_max_seconds ") || !text.includes("pg_task_retries_total{"));
  await program.end();
  const exported = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name = "", type = ""]) => ({
    name,
    type,
  }));

  const dashboard: { panels: { targets: { expr: string }[] }[] } = JSON.parse(read("examples/grafana.json"));
  const expressions = dashboard.panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));
  // The names of the alerts have no underscores.
  const used = namesIn([...expressions, read("examples/alerts.yml")].join("\n"));
  assert.ok(used.size > 10);
  const known = new Set(exported.flatMap(({ name, type }) => seriesNames(name, type)));
  assert.deepEqual(
    [...used].filter((name) => !known.has(name)),
    [],
  );

  /** Labels by metric. */
  const labels = new Map<string, Set<string>>();
  for (const [, name = "", list = ""] of text.matchAll(/^(\w+)\{(.*)\} \S+$/gm)) {
    const names = labels.get(name) ?? new Set();
    for (const [, label = ""] of list.matchAll(/(\w+)="/g)) labels.set(name, names.add(label));
  }
  for (const expression of expressions) {
    // The label `instance` is left out, because Prometheus adds it.
    const by = [...expression.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, list = ""]) =>
      list.split(", ").filter((label) => label !== "instance"),
    );
    for (const name of namesIn(expression)) {
      const matched = [...expression.matchAll(new RegExp(`${name}\\{([^}]*)\\}`, "g"))].flatMap(([, list = ""]) =>
        [...list.matchAll(/(\w+)[=!]/g)].map(([, label = ""]) => label),
      );
      const own = labels.get(name) ?? new Set();
      const unknown = [...by, ...matched].filter((label) => !own.has(label));
      assert.deepEqual(unknown, [], `${expression} uses labels that ${name} does not have`);
    }
  }

  const rows = read("docs/web.md")
    .split("\n")
    .flatMap((line) => /^\| `([a-z_0-9]+)` /.exec(line)?.[1] ?? [])
    .filter((name) => /^(pg_task|process)_/.test(name));
  assert.deepEqual(new Set(rows), new Set(exported.map(({ name }) => name)));
});
