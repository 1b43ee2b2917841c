import { access } from "node:fs/promises";
import { resolve } from "node:path";
import { connectionVariables } from "../postgres/target/parseTarget.js";
import { systemErrorCode } from "../errors.js";

/** Name of the configuration file that is read from the working directory by default. */
export const defaultFileName = "pg_task.json";

/** Where the configuration comes from. */
export interface ConfigSource {
  /** Absolute path of the configuration file; null if there is none. */
  readonly file: string | null;
  /** The environment variables that name a server; null if none do. */
  readonly environment: "DATABASE_URL" | "PG* variables" | null;
  /** Whether there is neither a configuration file nor a variable that names a server. */
  readonly nothing: boolean;
}

export interface SourceOptions {
  /** The value of `--config`; a relative path is resolved against `cwd`. */
  readonly file?: string | undefined;
  /** The content of a configuration file, given by a program instead of a file. */
  readonly content?: unknown;
  readonly cwd: string;
  readonly env: NodeJS.ProcessEnv;
}

/** Finds the configuration file and the connection variables without reading the file. */
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
  const names = [...connectionVariables, "PGSERVICE"];
  return names.some((name) => env[name]) ? "PG* variables" : null;
}
