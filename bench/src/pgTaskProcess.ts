import { fork } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { end, endWithUs, message } from "./childProcess.js";
import { files } from "./folders.js";

/** pg-task as it is started by its users: the built program with a configuration file. */
export interface PgTaskProcess {
  readonly pid: number;
  stop(): Promise<void>;
}

export type Configuration = Readonly<Record<string, unknown>>;

/** Folder for CPU profiles of each thread, written when it ends. */
const profileInto = process.env["BENCH_PROFILE"];

/** What pg-task says last is shown when it ends by itself. */
const lastWords = 2000;

/** Resolves when it says that it is ready. */
export async function startPgTask(options: {
  /** The Node that runs it. */
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
      said = (said + chunk.toString()).slice(-lastWords);
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
