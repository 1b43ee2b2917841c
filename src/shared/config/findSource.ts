import { access } from "node:fs/promises";
import { resolve } from "node:path";
import { connectionVariables } from "../postgres/target/resolveTarget.js";
import { errorCode } from "./errorCode.js";

/** Name of the file that is read from the working folder when no other is named. */
export const defaultFileName = "pg_task.json";

/** What there is to be configured from. */
export interface Source {
  /** Absolute path of the configuration file; null when there is none. */
  readonly file: string | null;
  /** What of the environment names a server; null when nothing does. */
  readonly environment: "DATABASE_URL" | "PG* variables" | null;
  /** Nobody said anything: the embedded server's case. */
  readonly nothing: boolean;
}

export interface SourceOptions {
  /** As `--config` gives it; relative to `cwd`. */
  readonly file?: string | undefined;
  readonly cwd: string;
  readonly env: NodeJS.ProcessEnv;
}

/** Looks for a configuration file and for connection variables, without reading either. */
export async function findSource(options: SourceOptions): Promise<Source> {
  const file = await findFile(options);
  const environment = findEnvironment(options.env);
  return { file, environment, nothing: file === null && environment === null };
}

async function findFile({ file, cwd }: SourceOptions): Promise<string | null> {
  if (file !== undefined) return resolve(cwd, file);
  const path = resolve(cwd, defaultFileName);
  try {
    await access(path);
  } catch (error) {
    // One that is there and can't be reached has to be complained about when it is read.
    if (errorCode(error) === "ENOENT") return null;
  }
  return path;
}

function findEnvironment(env: NodeJS.ProcessEnv): Source["environment"] {
  if (env["DATABASE_URL"]) return "DATABASE_URL";
  const names = [...connectionVariables, "PGSERVICE"];
  return names.some((name) => env[name]) ? "PG* variables" : null;
}
