import { spawn, type ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import { Writable } from "node:stream";
import { PgTaskError } from "../shared/errors.js";
import { explainSystemError } from "../shared/systemErrors.js";
import { identity, serverEnvironment, type Account } from "./serverAccount.js";

/**
 * Makes the program end when this process dies: a small shell, the guard, reads a pipe whose other end only this
 * process holds. If the pipe is closed without a line, the guard tells the program to shut down. In a subshell, it is
 * no child of the program, which waits for its own children.
 */
const guard = `
(
  {
    trap '' HUP INT TERM
    read -r word <&3 || kill -INT $$
  } >/dev/null 2>&1 &
)
exec "$@" 3<&-`;

/** How long, in ms, to wait for output in the pipe after the end: stray children of the program may hold it open. */
const outputAfterEndMs = 500;

export interface ProcessExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export interface GuardedProcess {
  readonly pid: number;
  /** Resolves when the program has ended and its output has been read. */
  readonly ended: Promise<ProcessExit>;
  signal(name: NodeJS.Signals): void;
}

/**
 * Starts a program in its own process session, so that Ctrl-C reaches only this process.
 *
 * @throws PgTaskError EMBEDDED_FAILED if it cannot be started
 */
export async function startGuarded(
  program: string,
  args: readonly string[],
  options: {
    readonly directory: string;
    readonly account: Account | null;
    readonly environment?: Readonly<Record<string, string>>;
    readonly onLine: (line: string) => void;
  },
): Promise<GuardedProcess> {
  const windows = process.platform === "win32";
  const [file, argv] = windows ? [program, args] : ["/bin/sh", ["-c", guard, "sh", program, ...args]];
  const child = spawn(file, argv, {
    cwd: options.directory,
    env: serverEnvironment(options.environment),
    // On Windows, a child process ends together with its parent unless the child is detached.
    detached: !windows,
    windowsHide: true,
    stdio: ["ignore", "pipe", "pipe", "pipe"],
    ...identity(options.account),
  });
  const pid = await started(child, program);
  for (const output of [child.stdout, child.stderr]) {
    if (output !== null) createInterface({ input: output }).on("line", options.onLine);
  }
  // If the guard is killed, the pipe breaks. This does not affect the program.
  child.stdio[3]?.on("error", () => {});
  return {
    pid,
    ended: end(child),
    signal: (name) => void child.kill(name),
  };
}

async function started(child: ChildProcess, program: string): Promise<number> {
  return await new Promise((resolve, reject) => {
    if (child.pid !== undefined) resolve(child.pid);
    child.once("error", (error) =>
      reject(
        new PgTaskError("EMBEDDED_FAILED", `${program} cannot be started: ${explainSystemError(error)}`, {
          cause: error,
        }),
      ),
    );
  });
}

async function end(child: ChildProcess): Promise<ProcessExit> {
  return await new Promise((resolve) => {
    child.once("exit", (code, signal) => {
      // The program's process id may be reused, so the guard must no longer send a signal to it.
      const guardPipe = child.stdio[3];
      if (guardPipe instanceof Writable) guardPipe.end("ended\n", () => guardPipe.destroy());
      // If this process was stalled, the timer may fire although some output has arrived but has not been read yet. Let
      // that output be read first.
      const timer = setTimeout(() => setImmediate(() => resolve({ code, signal })), outputAfterEndMs);
      child.once("close", () => {
        clearTimeout(timer);
        resolve({ code, signal });
      });
    });
  });
}

export function describeExit({ code, signal }: ProcessExit): string {
  return signal === null ? `exit code ${code}` : `signal ${signal}`;
}
