import { readFileSync } from "node:fs";
import { chmod, mkdtemp, readdir, rm } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { inspect, parseArgs } from "node:util";
import { startEmbeddedWith } from "../src/embedded/embeddedServer.js";
import { createLog } from "../src/shared/log.js";
import type { FileResult } from "./runner/messages.js";
import { runFiles } from "./runner/pool.js";
import { formatResult, formatSummary } from "./runner/report.js";
import { suites, takesLong } from "./runner/suites.js";
import { readTimes } from "./runner/times.js";
import { onServer } from "./support/database.js";
import { needsServer } from "./support/needsServer.js";
import { projectPath } from "./support/project.js";
import { otherPackage, serverPackage } from "./support/serverPackage.js";
import { createTemplate } from "./support/template.js";
import { dataRoot } from "./support/temporaryFolder.js";

/**
 * Runs the tests of a suite (`--suite quick`, `slow` or `all`), or the files whose path contains one of the arguments.
 * They use a new PostgreSQL server, or the server at TEST_DATABASE_URL if this variable is set. If TEST_POSTGRES is set, the new
 * server comes from the npm package in that folder, and only test files that need a server are run.
 */
const { values, positionals: wanted } = parseArgs({
  options: { suite: { type: "string", default: "quick" } },
  allowPositionals: true,
});
const suite = Object.entries(suites).find(([name]) => name === values.suite);
if (suite === undefined) throw new Error(`expected --suite quick, slow or all, got ${values.suite}`);
const folder = fileURLToPath(new URL(".", import.meta.url));
const nameOf = (path: string): string => relative(folder, path).replace(/\.test\.js$/, "");

// The folder of the compiled files may still have some whose sources are gone.
const files = (await readdir(projectPath("test"), { recursive: true }))
  .filter((file) => file.endsWith(".test.ts"))
  .map((file) => file.replace(/\.ts$/, ".js"))
  .filter(wanted.length === 0 ? suite[1] : (file) => wanted.some((part) => file.includes(part)))
  .map((file) => ({ path: join(folder, file), long: takesLong(file) }))
  .filter(({ path }) => otherPackage === null || needsServer(path))
  .map(({ path, long }) => ({ path, long, text: readFileSync(path, "utf8") }))
  .toSorted((a, b) => Number(b.long) - Number(a.long) || b.text.length - a.text.length)
  .map(({ path, text }) => ({ path, ownProcess: /^\/\/ Needs a process of its own/m.test(text) }));
if (files.length === 0) throw new Error(`no test file's path contains ${wanted.join(" or ")}`);

/** Many tests wait most of the time, so there are more workers than cores. */
const workers = Math.min(8, availableParallelism() + 3);

const given = process.env["TEST_DATABASE_URL"];
const scratch = await mkdtemp(join(dataRoot(), "pg-task-test-"));
// PostgreSQL before 16 needs search permission on all parent folders of its data.
await chmod(scratch, 0o711);
const log = createLog({
  level: "error",
  name: "test",
  write: (line) => process.stderr.write(line),
});
const server =
  given === undefined
    ? await startEmbeddedWith(
        { installed: await serverPackage() },
        {
          dataDirectory: join(scratch, "data"),
          // Durability costs time, and none of the data is needed after the tests.
          settings: { fsync: "off", full_page_writes: "off", max_connections: 200, max_prepared_transactions: 20 },
          log,
        },
      )
    : null;
/** Prints what the server is doing, to find out what a file that hangs waits for. */
async function printActivity(): Promise<void> {
  const found = await onServer((client) =>
    client.query(`SELECT datname, application_name, state, wait_event, state_change, pg_blocking_pids(pid), query
      FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`),
  ).then(
    ({ rows }) => rows,
    (error: unknown) => error,
  );
  process.stdout.write(`a file takes too long; the server's sessions:\n${inspect(found)}\n`);
}

const results: FileResult[] = [];
// The server and its data must not stay behind, least of all in memory.
const interrupt = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => interrupt.abort());
try {
  process.env["TEST_DATABASE_URL"] = given ?? server?.url ?? "";
  process.env["TZ"] = "UTC";
  await createTemplate(process.env["TEST_DATABASE_URL"]);
  const report = (result: FileResult): void => {
    results.push(result);
    process.stdout.write(`${formatResult(nameOf(result.file), result)}\n`);
  };
  await runFiles(files, workers, { onEnd: report, onHang: printActivity, interrupt: interrupt.signal });
} finally {
  await server?.stop();
  await rm(scratch, { recursive: true, force: true });
}
process.stdout.write(`${formatSummary(results, readTimes(), nameOf)}\n`);
process.exitCode = results.some(({ failures }) => failures.length > 0) ? 1 : 0;
