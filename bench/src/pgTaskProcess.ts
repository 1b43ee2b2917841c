import { fork } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { end, endWithUs, message } from "./childProcess.js";
import { files } from "./folders.js";

/** pg-task as users start it: the built program with a configuration file. */
export interface PgTaskProcess {
  readonly pid: number;
  stop(): Promise<void>;
}

export type Configuration = Readonly<Record<string, unknown>>;

/** Folder into which each thread writes its CPU profile when it ends. */
const profileInto = process.env["BENCH_PROFILE"];

/** How many of the last characters of pg-task's output are shown if pg-task ends unexpectedly. */
const shownOutput = 2000;

/** Starts pg-task. Resolves when pg-task reports to this process that it is ready. */
export async function startPgTask(options: {
  /** Path of the Node that runs pg-task. */
  readonly node: string;
  readonly url: string;
  readonly configuration: Configuration;
}): Promise<PgTaskProcess> {
  const folder = await mkdtemp(join(tmpdir(), "pg-task-bench-"));
  const file = join(folder, "pg_task.json");
  await writeFile(file, JSON.stringify({ url: options.url, ...options.configuration }));
  const child = fork(files.program, ["start", "--config", file], {
    execPath: options.node,
    execArgv: profileInto === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${profileInto}`],
    cwd: folder,
    env: { PATH: process.env["PATH"] },
    stdio: ["ignore", "pipe", "pipe", "ipc"],
  });
  endWithUs(child, folder);
  let said = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on("data", (chunk: Buffer) => {
      said = (said + chunk.toString()).slice(-shownOutput);
    });
  }
  let stopping = false;
  child.once("exit", (code) => {
    if (!stopping || code !== 0) process.stderr.write(`pg-task ended with ${code}:\n${said}\n`);
  });
  await message(child, (received): received is "ready" => received === "ready");
  return {
    pid: child.pid ?? 0,
    stop: async () => {
      stopping = true;
      await end(child);
      await rm(folder, { recursive: true });
    },
  };
}
