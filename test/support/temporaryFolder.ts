import { chmod, mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";

/** Creates an empty folder that only this user can access. It is removed after the file's tests. */
export async function temporaryFolder(): Promise<string> {
  const folder = await realpath(await mkdtemp(join(tmpdir(), "pg-task-test-")));
  after(async () => {
    await chmod(folder, 0o700);
    await rm(folder, { recursive: true, force: true, maxRetries: 10 });
  });
  return folder;
}
