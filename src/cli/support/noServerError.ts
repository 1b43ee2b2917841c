import { defaultFileName, type SourceOptions } from "../../shared/config/findSource.js";
import { PgTaskError } from "../../shared/errors.js";

/**
 * The error for a start or a check without a server. Nothing is guessed: a misspelt variable must not start a server
 * that lets every local user in.
 */
export function noServerError({ cwd, env }: SourceOptions): PgTaskError {
  const unread = Object.keys(env).filter((name) => /^postgres(ql)?:\/\//.test(env[name] ?? ""));
  const hint = unread.length === 0 ? "" : `; pg-task does not read ${unread.join(", ")}, which contains such a URL`;
  return new PgTaskError(
    "CONFIG_MISSING",
    `no server configured: there is no ${defaultFileName} in ${cwd}, and neither DATABASE_URL nor a PG* variable is set; either name your server in one of these (pg-task init writes the file), or start the PostgreSQL that comes with pg-task: pg-task start --embedded${hint}`,
  );
}
