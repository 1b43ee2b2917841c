import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { folders } from "./folders.js";
import type { Recorded } from "./machine.js";

/** The stored result of one measurement, with all raw figures. */
export interface Result {
  readonly measure: string;
  readonly recorded: Recorded;
  readonly raw: unknown;
}

/**
 * Stores a result. Quick and partial results are stored in another folder, because the page does not show them.
 *
 * @returns the path of the file
 */
export async function keep(result: Result, { whole }: { whole: boolean }): Promise<string> {
  const folder = whole ? folders.results : folders.quickResults;
  await mkdir(folder, { recursive: true });
  const file = `${folder}${result.measure}.json`;
  await writeFile(file, `${JSON.stringify(result, null, 2)}\n`);
  return file;
}

/** Returns the results that the page shows, by the name of the measure. */
export async function kept(): Promise<Map<string, Result>> {
  const files = (await readdir(folders.results).catch(() => [])).filter((file) => file.endsWith(".json")).toSorted();
  const results = await Promise.all(
    files.map(async (file) => {
      const result: Result = JSON.parse(await readFile(`${folders.results}${file}`, "utf8"));
      return result;
    }),
  );
  return new Map(results.map((result) => [result.measure, result]));
}
