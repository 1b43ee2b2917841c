import { spawn, type ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import { Writable } from "node:stream";
import { PgTaskError } from "../shared/errors.js";
import { identity, serverEnvironment, type Account } from "./runCommand.js";

/**
 * A small shell stands beside the program and reads a pipe whose other end only we hold. When that
 * ends without a word, we are gone, however we went, and it asks the program to shut down. It is no
 * child of the program (hence the inner subshell), which looks after its own children.
 */
const guard = `
(
  {
    trap '' HUP INT TERM
    read -r word <&3 || kill -INT $$
  } >/dev/null 2>&1 &
)
exec "$@" 3<&-`;

/** Output may still be in the pipe when the program has ended, and strays may hold it open. */
const outputAfterEndMs = 500;

export interface Ending {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A program that does not outlive this process. */
export interface GuardedProcess {
  readonly pid: number;
  /** Resolves when it has ended and its output has been read. */
  readonly ended: Promise<Ending>;
  signal(name: NodeJS.Signals): void;
}

/**
 * Starts a program in a session of its own, out of the terminal's reach, so that Ctrl-C comes to us
 * alone. `onLine` gets each line of its output.
 *
 * @throws PgTaskError EMBEDDED_FAILED when it cannot be started.
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
  const [file, argv] = windows
    ? [program, args]
    : ["/bin/sh", ["-c", guard, "sh", program, ...args]];
  const child = spawn(file, argv, {
    cwd: options.directory,
    env: serverEnvironment(options.environment),
    // Windows ends children with their parent unless they are detached.
    detached: !windows,
    windowsHide: true,
    stdio: ["ignore", "pipe", "pipe", "pipe"],
    ...identity(options.account),
  });
  const pid = await started(child, program);
  for (const output of [child.stdout, child.stderr]) {
    if (output !== null) createInterface({ input: output }).on("line", options.onLine);
  }
  // It breaks when somebody ends the guard, which changes nothing for the program.
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
        new PgTaskError("EMBEDDED_FAILED", `${program} cannot be started: ${error.message}`, {
          cause: error,
        }),
      ),
    );
  });
}

async function end(child: ChildProcess): Promise<Ending> {
  return await new Promise((resolve) => {
    child.once("exit", (code, signal) => {
      // Its id may be another's soon: the guard must not signal it any more.
      const guardPipe = child.stdio[3];
      if (guardPipe instanceof Writable) guardPipe.end("ended\n", () => guardPipe.destroy());
      // After a stall the timer may come before output that has long been there: that is read first.
      const timer = setTimeout(
        () => setImmediate(() => resolve({ code, signal })),
        outputAfterEndMs,
      );
      child.once("close", () => {
        clearTimeout(timer);
        resolve({ code, signal });
      });
    });
  });
}

export function describeEnding({ code, signal }: Ending): string {
  return signal === null ? `exit code ${code}` : `signal ${signal}`;
}
