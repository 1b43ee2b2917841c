import { spawn } from "node:child_process";
import { chmod, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startEmbeddedWith } from "../src/embedded/embeddedServer.js";
import { createLog } from "../src/shared/log.js";
import { needsServer } from "./support/needsServer.js";
import { otherPackage, serverPackage } from "./support/serverPackage.js";
import { createTemplate } from "./support/template.js";

/**
 * Runs the test files whose path contains one of the arguments, or all test files if there are no arguments. They use a
 * new PostgreSQL server, or the server at TEST_DATABASE_URL if this variable is set. If TEST_POSTGRES is set, the new
 * server comes from the npm package in that folder, and only test files that need a server are run.
 */
const folder = fileURLToPath(new URL(".", import.meta.url));
const wanted = process.argv.slice(2);
const files = (await readdir(folder, { recursive: true }))
  .filter((file) => file.endsWith(".test.js"))
  .filter((file) => wanted.length === 0 || wanted.some((part) => file.includes(part)))
  .toSorted()
  .map((file) => join(folder, file))
  .filter((file) => otherPackage === null || needsServer(file));
if (files.length === 0) throw new Error(`no test file's path contains ${wanted.join(" or ")}`);

const given = process.env["TEST_DATABASE_URL"];
const scratch = await mkdtemp(join(tmpdir(), "pg-task-test-"));
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
          settings: { fsync: "off", max_connections: 200 },
          log,
        },
      )
    : null;
try {
  const url = given ?? server?.url ?? "";
  await createTemplate(url);
  process.exitCode = await new Promise<number>((resolve) => {
    // A file that hangs is killed, so that the others are still reported.
    const options = ["--test", "--test-concurrency=2", "--test-timeout=900000"];
    const tests = spawn(process.execPath, [...options, ...files], {
      stdio: "inherit",
      env: { ...process.env, TEST_DATABASE_URL: url },
    });
    tests.once("exit", (code) => resolve(code ?? 1));
  });
} finally {
  await server?.stop();
  await rm(scratch, { recursive: true, force: true });
}
