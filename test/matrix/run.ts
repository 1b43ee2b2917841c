import { join } from "node:path";
import { parseArgs } from "node:util";
import { runCell, type Cell, type CellResult } from "./cell.js";
import { selectVersions, installVersions, lockedVersions, bundledServer, type Version } from "./versions.js";

/**
 * Runs the test suite with each version of PostgreSQL on this Node.js, and with pg-task's own PostgreSQL on each
 * version of Node.js:
 *
 *     npm run test:matrix [-- [--postgres 12,14] [--node 24] [pattern…]]
 *
 * With --postgres or --node, runs it only with those versions. Prints a table. The exit code is 1 if anything failed.
 */
const { values, positionals: patterns } = parseArgs({
  options: { postgres: { type: "string" }, node: { type: "string" } },
  allowPositionals: true,
});

const own = await bundledServer();
const servers = [...(await lockedVersions("postgres")), own];
const nodes = await lockedVersions("node");
const all = values.postgres === undefined && values.node === undefined;
const wantedServers = all ? servers : selectVersions(servers, values.postgres);
const wantedNodes = all ? nodes : selectVersions(nodes, values.node);

await installVersions([...wantedServers, ...wantedNodes].filter((each) => each !== own));

const cells: Cell[] = [
  ...wantedServers.map((server) => ({
    name: nameOf(server, process.versions.node),
    postgres: server === own ? null : server.folder,
    node: process.execPath,
  })),
  ...wantedNodes.map((node) => ({
    name: nameOf(own, node.version),
    postgres: null,
    node: join(node.folder, "bin", "node"),
  })),
];

const results: [Cell, CellResult][] = [];
for (const cell of cells) {
  process.stdout.write(`── ${cell.name}\n`);
  results.push([cell, await runCell(cell, patterns)]);
}
process.stdout.write(`${table(results)}\n`);
process.exitCode = results.some(([, { failed }]) => failed > 0) ? 1 : 0;

/** Names a cell. The package has a version such as 12.22.0-beta.15; the server's version is then 12.22. */
function nameOf(server: Version, node: string): string {
  return `PostgreSQL ${server.version.split(".").slice(0, 2).join(".")}, Node ${node}`;
}

function table(rows: readonly (readonly [Cell, CellResult])[]): string {
  const width = Math.max(...rows.map(([{ name }]) => name.length));
  const line = (name: string, ...columns: readonly (string | number)[]): string =>
    name.padEnd(width) + columns.map((column) => String(column).padStart(9)).join("");
  return [
    line("", "passed", "failed", "seconds"),
    ...rows.map(([{ name }, { passed, failed, seconds }]) => line(name, passed, failed, seconds)),
  ].join("\n");
}
