import {
  explainConfiguration,
  type ExplainedConfiguration,
  type LoadOptions,
} from "../../shared/config/loadConfiguration.js";
import { findSource, defaultFileName, type SourceOptions } from "../../shared/config/findSource.js";
import { resolve } from "node:path";
import { isAlive, readLockFile } from "../../embedded/data/lockFile.js";
import { serverUrlWithoutTls } from "../../embedded/port.js";
import { defaultDataDirectory } from "../../library/process/dataDirectory.js";
import { PgTaskError } from "../../shared/errors.js";
import { explainSystemError } from "../../shared/systemErrors.js";

/**
 * If nothing names a server, the embedded one that runs in the working directory is preferred to libpq's defaults.
 *
 * @returns null if there is neither a file nor such a server
 */
export async function resolveConfiguration(options: LoadOptions): Promise<ExplainedConfiguration | null> {
  const { nothing } = await findSource(options);
  const explained = nothing ? null : await explainConfiguration(options);
  if (explained !== null && explained.controlFrom !== "libpq's defaults") return explained;
  const control = await embeddedUrl(options.cwd);
  return control === null ? explained : await explainConfiguration({ ...options, control });
}

async function embeddedUrl(cwd: string): Promise<string | null> {
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

/** Names the variables that contain a URL of a server and that pg-task does not read. They may be misspelt. */
export function unreadVariables(env: NodeJS.ProcessEnv): string {
  const unread = Object.keys(env).filter(
    (name) => name !== "DATABASE_URL" && /^postgres(ql)?:\/\//.test(env[name] ?? ""),
  );
  return unread.length === 0 ? "" : `; pg-task does not read ${unread.join(", ")}, which contains such a URL`;
}

/** Nothing is guessed: a misspelt variable must not start a server that lets every local user in. */
export function noServerError({ cwd, env }: SourceOptions): PgTaskError {
  return new PgTaskError(
    "CONFIG_MISSING",
    `no server configured: there is no ${defaultFileName} in ${cwd}, and neither DATABASE_URL nor a PG* variable is set; either name your server in one of these (pg-task init writes the file), or start the PostgreSQL that comes with pg-task: pg-task start --embedded${unreadVariables(env)}`,
  );
}
