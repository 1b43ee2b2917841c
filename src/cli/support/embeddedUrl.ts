import { resolve } from "node:path";
import { readLockFile } from "../../embedded/data/lockFile.js";
import { isAlive } from "../../embedded/isAlive.js";
import { loopback } from "../../embedded/port.js";
import { PgTaskError } from "../../shared/errors.js";

/** Where the embedded server keeps its data unless told otherwise, in the working folder. */
export const defaultData = ".pg-task/data";

/**
 * The url of the embedded server that runs on the working folder's data, null when none does.
 *
 * @throws PgTaskError CONNECTION_FAILED when that may not be seen.
 */
export async function embeddedUrl(cwd: string): Promise<string | null> {
  const data = resolve(cwd, defaultData);
  try {
    const found = await readLockFile(data);
    if (found === null || found.pid === null || found.port === null) return null;
    if (!(await isAlive(found.pid))) return null;
    return `postgresql://postgres@${loopback}:${found.port}/postgres?sslmode=disable`;
  } catch (error) {
    const words = error instanceof Error ? error.message : String(error);
    throw new PgTaskError(
      "CONNECTION_FAILED",
      `cannot see whether an embedded server runs on ${data}: ${words}; give its url in DATABASE_URL`,
      { cause: error },
    );
  }
}
