import { spawn, type ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import { after } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { installedPackage } from "../../src/embedded/binaries/installedPackage.js";
import { isAlive } from "../../src/embedded/data/lockFile.js";
import {
  startEmbeddedWith,
  type EmbeddedOptions,
  type EmbeddedServer,
  type EmbeddedEnvironment,
} from "../../src/embedded/embeddedServer.js";
import { createLog, type Log } from "../../src/shared/log.js";
import type { LogLine } from "./logLines.js";

export const isRoot = process.getuid?.() === 0;

/** Settings that make a server fast. The tests need no durability. */
export const quick = { fsync: "off", shared_buffers: "8MB" };

const deadlineMs = 30_000;

export function recordingLog(): { readonly log: Log; readonly lines: LogLine[] } {
  const lines: LogLine[] = [];
  const log = createLog({
    level: "debug",
    name: "test",
    write: (line) => void lines.push(JSON.parse(line)),
  });
  return { log, lines };
}

/** Starts a server in this process. It is stopped after the file's tests. */
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

export type HolderEvent =
  | { readonly event: "started"; readonly url: string; readonly port: number; readonly pid: number }
  | { readonly event: "failed"; readonly code: string; readonly message: string }
  | { readonly event: "interrupted" };

/** Another process, which starts a server and keeps it running. */
export interface Holder {
  readonly process: ChildProcess;
  readonly pid: number;
  next(): Promise<HolderEvent>;
  started(): Promise<Extract<HolderEvent, { event: "started" }>>;
  kill(): Promise<void>;
}

export function spawnHolder(dataDirectory: string, options: { readonly port?: number } = {}): Holder {
  const script = fileURLToPath(new URL("embeddedHolder.js", import.meta.url));
  const child = spawn(process.execPath, [script, JSON.stringify({ dataDirectory, ...options })], {
    stdio: ["ignore", "pipe", "inherit"],
    // The process gets a process group of its own, like a command that is started from a terminal.
    detached: true,
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const next = async (): Promise<HolderEvent> => {
    const { value, done } = await lines.next();
    if (done === true) throw new Error("the holder ended without an event");
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

/** Resolves when a process is gone. The process need not be a child of this one. */
export async function untilGone(pid: number): Promise<void> {
  await until(`process ${pid} is gone`, async () => !(await isAlive(pid)));
}

export async function until(what: string, condition: () => Promise<boolean>): Promise<void> {
  const end = performance.now() + deadlineMs;
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`still not after ${deadlineMs} ms: ${what}`);
    await pause(10);
  }
}
