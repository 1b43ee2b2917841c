import { access } from "node:fs/promises";
import { resolve } from "node:path";
import { connectionVariables } from "../postgres/target/resolveTarget.js";
import { systemErrorCode } from "../errors.js";

export const defaultFileName = "pg_task.json";

export interface ConfigSource {
  /** Absolute path of the configuration file; null if there is none. */
  readonly file: string | null;
  readonly environment: "DATABASE_URL" | "PG* variables" | null;
  readonly nothing: boolean;
}

export interface SourceOptions {
  /** The value of `--config`; a relative path is resolved against `cwd`. */
  readonly file?: string | undefined;
  readonly content?: unknown;
  readonly cwd: string;
  readonly env: NodeJS.ProcessEnv;
}

export async function findSource(options: SourceOptions): Promise<ConfigSource> {
  const file = await findFile(options);
  const environment = findEnvironment(options.env);
  const nothing = file === null && options.content === undefined && environment === null;
  return { file, environment, nothing };
}

async function findFile({ file, content, cwd }: SourceOptions): Promise<string | null> {
  if (content !== undefined) return null;
  if (file !== undefined) return resolve(cwd, file);
  const path = resolve(cwd, defaultFileName);
  try {
    await access(path);
  } catch (error) {
    // Any other error is reported when the file is read.
    if (systemErrorCode(error) === "ENOENT") return null;
  }
  return path;
}

function findEnvironment(env: NodeJS.ProcessEnv): ConfigSource["environment"] {
  if (env["DATABASE_URL"]) return "DATABASE_URL";
  return connectionVariables.some((name) => env[name]) ? "PG* variables" : null;
}
