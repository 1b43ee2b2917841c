import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { TestProcess } from "./process.js";

/** Puts another `pg_task.json` in the place of the program's, as most editors do. */
export async function replaceConfig(program: TestProcess, config: unknown): Promise<void> {
  const text = typeof config === "string" ? config : JSON.stringify(config);
  const file = join(program.cwd, "pg_task.json");
  await writeFile(`${file}.new`, text);
  await rename(`${file}.new`, file);
}
