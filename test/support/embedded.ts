import { spawn, type ChildProcess } from "node:child_process";
import { chmod, mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { installedPackage } from "../../src/embedded/binaries/installedPackage.js";
import { isAlive } from "../../src/embedded/isAlive.js";
import {
  startEmbeddedWith,
  type EmbeddedOptions,
  type EmbeddedServer,
  type EmbeddedEnvironment,
} from "../../src/embedded/embeddedServer.js";
import { connectClient, type Client } from "../../src/shared/postgres/client.js";
import { createLog, type Log } from "../../src/shared/log.js";

export const isRoot = process.getuid?.() === 0;

/** Faster, and as good where no machine crashes. */
export const quick = { fsync: "off", shared_buffers: "8MB" };

const deadlineMs = 30_000;

/** A folder of the test file's own that only we can enter, gone when the file has run. */
export async function temporaryFolder(): Promise<string> {
  const folder = await realpath(await mkdtemp(join(tmpdir(), "pg-task-embedded-")));
  after(async () => {
    await chmod(folder, 0o700);
    await rm(folder, { recursive: true, force: true });
  });
  return folder;
}

export interface LogLine {
  readonly level: string;
  readonly msg: string;
}

export function recordingLog(): { readonly log: Log; readonly lines: LogLine[] } {
  const lines: LogLine[] = [];
  const log = createLog({
    level: "debug",
    name: "test",
    write: (line) => void lines.push(JSON.parse(line)),
  });
  return { log, lines };
}

/** Starts a server in this process; it is stopped when the test file has run. */
export async function start(
  options: Partial<EmbeddedOptions> & { readonly dataDirectory: string },
  surroundings: Partial<EmbeddedEnvironment> = {},
): Promise<EmbeddedServer> {
  const server = await startEmbeddedWith(
    { installed: await installedPackage(), ...surroundings },
    { log: recordingLog().log, settings: quick, ...options },
  );
  after(() => server.stop());
  return server;
}

/** Connects with nothing but the server's url and runs something. */
export async function onServer<T>(url: string, work: (client: Client) => Promise<T>): Promise<T> {
  const { hostname, port, username, pathname } = new URL(url);
  const client = await connectClient(
    {
      host: hostname,
      port: Number(port),
      user: username,
      database: pathname.slice(1),
      sslmode: "disable",
      connectTimeoutMs: 10_000,
    },
    { applicationName: "test" },
  );
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

export type HolderEvent =
  | { readonly event: "started"; readonly url: string; readonly port: number; readonly pid: number }
  | { readonly event: "failed"; readonly code: string; readonly message: string }
  | { readonly event: "interrupted" };

/** Another process that starts a server and keeps it. */
export interface Holder {
  readonly process: ChildProcess;
  readonly pid: number;
  /** The next thing it tells. */
  next(): Promise<HolderEvent>;
  /** Like `next`, for one that has to start its server. */
  started(): Promise<Extract<HolderEvent, { event: "started" }>>;
  kill(): Promise<void>;
}

export function spawnHolder(
  dataDirectory: string,
  options: { readonly port?: number } = {},
): Holder {
  const script = fileURLToPath(new URL("embeddedHolder.js", import.meta.url));
  const child = spawn(process.execPath, [script, JSON.stringify({ dataDirectory, ...options })], {
    stdio: ["ignore", "pipe", "inherit"],
    // A process group of its own, as a terminal gives to what it runs.
    detached: true,
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const next = async (): Promise<HolderEvent> => {
    const { value, done } = await lines.next();
    if (done === true) throw new Error("the holder ended without a word");
    return JSON.parse(value);
  };
  const kill = async () => {
    child.kill("SIGKILL");
    await gone;
  };
  after(kill);
  if (child.pid === undefined) throw new Error("the holder cannot be started");
  return {
    process: child,
    pid: child.pid,
    next,
    async started() {
      const event = await next();
      if (event.event !== "started") throw new Error(`not started: ${JSON.stringify(event)}`);
      return event;
    },
    kill,
  };
}

/** Resolves when a process that is not our child is gone. */
export async function untilGone(pid: number): Promise<void> {
  await until(`process ${pid} is gone`, async () => !(await isAlive(pid)));
}

/** Looks again and again until something is so that nobody tells us about. */
export async function until(what: string, isSo: () => Promise<boolean>): Promise<void> {
  const end = performance.now() + deadlineMs;
  while (!(await isSo())) {
    if (performance.now() > end) throw new Error(`not so after ${deadlineMs} ms: ${what}`);
    await pause(10);
  }
}
