import { defaultFileName, type SourceOptions } from "../../shared/config/findSource.js";
import { PgTaskError } from "../../shared/errors.js";

/** Names the variables that contain a URL of a server and that pg-task does not read. They may be misspelt. */
export function unreadVariables(env: NodeJS.ProcessEnv): string {
  const unread = Object.keys(env).filter(
    (name) => name !== "DATABASE_URL" && /^postgres(ql)?:\/\//.test(env[name] ?? ""),
  );
  return unread.length === 0 ? "" : `; pg-task does not read ${unread.join(", ")}, which contains such a URL`;
}

/**
 * The error for a start or a check without a server. Nothing is guessed: a misspelt variable must not start a server
 * that lets every local user in.
 */
export function noServerError({ cwd, env }: SourceOptions): PgTaskError {
  return new PgTaskError(
    "CONFIG_MISSING",
    `no server configured: there is no ${defaultFileName} in ${cwd}, and neither DATABASE_URL nor a PG* variable is set; either name your server in one of these (pg-task init writes the file), or start the PostgreSQL that comes with pg-task: pg-task start --embedded${unreadVariables(env)}`,
  );
}
