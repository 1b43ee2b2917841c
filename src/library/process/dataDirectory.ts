import { relative, resolve } from "node:path";
import { PgTaskError } from "../../shared/errors.js";

/** Relative to the working directory. */
export const defaultDataDirectory = ".pg-task/data";

/**
 * @throws PgTaskError CONFIG_INVALID if the data directory is the working directory or one of its parents, because
 * initdb would replace the contents of the data directory
 */
export function resolveDataDirectory(data: string, cwd: string, name: string): string {
  const directory = resolve(cwd, data);
  const within = relative(directory, cwd);
  if (data === "" || !within.startsWith("..")) {
    throw new PgTaskError(
      "CONFIG_INVALID",
      `expected ${name} to be a directory of its own, got ${JSON.stringify(data)}, which contains the working directory`,
    );
  }
  return directory;
}
