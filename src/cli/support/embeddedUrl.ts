import { resolve } from "node:path";
import { readLockFile } from "../../embedded/data/lockFile.js";
import { isAlive } from "../../embedded/isAlive.js";
import { serverUrlWithoutTls } from "../../embedded/serverUrl.js";
import { defaultDataDirectory } from "../../library/process/dataDirectory.js";
import { PgTaskError } from "../../shared/errors.js";
import { explainSystemError } from "../../shared/systemErrors.js";

/**
 * Returns the URL of the embedded server that runs in the working directory, or null if none runs there.
 *
 * @throws PgTaskError CONNECTION_FAILED if the server's lock file cannot be read
 */
export async function embeddedUrl(cwd: string): Promise<string | null> {
  const data = resolve(cwd, defaultDataDirectory);
  try {
    const lock = await readLockFile(data);
    if (lock === null || lock.pid === null || lock.port === null) return null;
    if (!(await isAlive(lock.pid))) return null;
    return serverUrlWithoutTls(lock.port);
  } catch (error) {
    throw new PgTaskError(
      "CONNECTION_FAILED",
      `cannot tell whether an embedded server runs in ${data}: ${explainSystemError(error)}; set its url in DATABASE_URL`,
      { cause: error },
    );
  }
}
