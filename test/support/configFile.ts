import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { temporaryFolder } from "./temporaryFolder.js";

/** Creates a folder with a `pg_task.json`. It is removed after the file's tests. */
export async function configFolder(config: unknown): Promise<string> {
  const cwd = await temporaryFolder();
  await replaceConfig({ cwd }, config);
  return cwd;
}

/** Replaces the program's `pg_task.json` by renaming a new file over it, as most editors do. */
export async function replaceConfig({ cwd }: { readonly cwd: string }, config: unknown): Promise<void> {
  const text = typeof config === "string" ? config : JSON.stringify(config);
  const file = join(cwd, "pg_task.json");
  await writeFile(`${file}.new`, text);
  await rename(`${file}.new`, file);
}
