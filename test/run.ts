import { spawn } from "node:child_process";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startEmbedded } from "../src/embedded/server.js";
import { createLog } from "../src/shared/log.js";
import { createTemplate } from "./support/template.js";

/**
 * Runs the suite on a PostgreSQL of its own: the test files whose path contains one of the
 * arguments, all of them without arguments. With TEST_DATABASE_URL set, on that server.
 */
const folder = fileURLToPath(new URL(".", import.meta.url));
const wanted = process.argv.slice(2);
const files = (await readdir(folder, { recursive: true }))
  .filter((file) => file.endsWith(".test.js"))
  .filter((file) => wanted.length === 0 || wanted.some((part) => file.includes(part)))
  .toSorted()
  .map((file) => join(folder, file));

const given = process.env["TEST_DATABASE_URL"];
const scratch = await mkdtemp(join(tmpdir(), "pg-task-test-"));
const log = createLog({
  level: "error",
  name: "test",
  write: (line) => process.stderr.write(line),
});
const server =
  given === undefined
    ? await startEmbedded({
        dataDirectory: join(scratch, "data"),
        // Durability costs time, and nothing here outlives the run.
        settings: { fsync: "off", max_connections: 200 },
        log,
      })
    : null;
try {
  const url = given ?? server?.url ?? "";
  await createTemplate(url);
  process.exitCode = await new Promise<number>((resolve) => {
    const tests = spawn(process.execPath, ["--test", "--test-concurrency=2", ...files], {
      stdio: "inherit",
      env: { ...process.env, TEST_DATABASE_URL: url },
    });
    tests.once("exit", (code) => resolve(code ?? 1));
  });
} finally {
  await server?.stop();
  await rm(scratch, { recursive: true, force: true });
}
