import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { TestProcess } from "./process.js";

/** Replaces the program's `pg_task.json` by renaming a new file over it, as most editors do. */
export async function replaceConfig(program: TestProcess, config: unknown): Promise<void> {
  const text = typeof config === "string" ? config : JSON.stringify(config);
  const file = join(program.cwd, "pg_task.json");
  await writeFile(`${file}.new`, text);
  await rename(`${file}.new`, file);
}
