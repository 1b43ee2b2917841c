import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, chown, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { canRead, serverAccount, identity, run } from "../../../src/embedded/serverAccount.js";
import { isRoot } from "../../support/embedded.js";

const files = ["life", "dataDirectoryLock", "refusals", "binaries"].map((name) =>
  fileURLToPath(new URL(`${name}.test.js`, import.meta.url)),
);
const account = await serverAccount(null);
const isReachable = (await canRead(files, account)) && (await run(process.execPath, ["-v"], account)).code === 0;
const skip = isRoot
  ? !isReachable && "neither these files nor node are within an ordinary user's reach"
  : "we are one: the other files said so";

test("the embedded server's tests also pass as an ordinary user", { skip }, async () => {
  assert.ok(account !== null);
  const temporary = await mkdtemp(join(tmpdir(), "pg-task-ordinary-"));
  after(() => rm(temporary, { recursive: true, force: true }));
  await chown(temporary, account.uid, account.gid);
  const { NODE_TEST_CONTEXT: _, ...environment } = process.env;
  const { code, output } = await new Promise<{ code: unknown; output: string }>((resolve) => {
    execFile(
      process.execPath,
      ["--test", "--test-concurrency=1", ...files],
      {
        ...identity(account),
        cwd: "/",
        env: { ...environment, TMPDIR: temporary, HOME: "/nonexistent" },
      },
      (error, stdout, stderr) => resolve({ code: error?.code ?? 0, output: stdout + stderr }),
    );
  });
  assert.equal(code, 0, output);
});
