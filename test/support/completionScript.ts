import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { cli } from "./cli.js";

/** Writes the completion script of a shell to a file of the folder, and returns its path. */
export async function completionScript(shell: string, folder: string): Promise<string> {
  const { code, stdout } = await cli(["completion", shell], {});
  assert.equal(code, 0);
  const path = join(folder, shell);
  await writeFile(path, stdout);
  return path;
}
