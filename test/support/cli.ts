import assert from "node:assert/strict";
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFile, readlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { PassThrough } from "node:stream";
import { promisify } from "node:util";

import { runCommand } from "../../src/cli/main.js";
import { bin } from "./project.js";

export interface CliResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CliOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Standard input of the program. Empty by default. */
  readonly input?: string | Buffer;
}

const environment = (more: CliOptions["env"]): NodeJS.ProcessEnv => ({
  PATH: process.env["PATH"],
  HOME: process.env["HOME"],
  TZ: "UTC",
  ...more,
});

/**
 * Runs a command until it ends, with pipes for its output. It runs in this process, which is some twenty times as fast
 * as in one of its own.
 */
export async function cli(args: readonly string[], options: CliOptions = {}): Promise<CliResult> {
  const stdout = new TextOutput();
  const stderr = new TextOutput();
  const code = await runHere(args, options, { stdout, stderr });
  return { code, stdout: stdout.text, stderr: stderr.text };
}

interface TerminalOptions extends CliOptions {
  readonly columns?: number;
  readonly rows?: number;
  /** Keys that the user types. Without them, the input of the terminal is at its end. */
  readonly typed?: string;
  /** Called with everything shown so far, when the command has written more. */
  readonly onOutput?: (shown: string) => void;
}

/** Runs a command until it ends, with a terminal for its input and output. It runs in this process. */
export async function cliOnTerminal(
  args: readonly string[],
  options: TerminalOptions = {},
): Promise<{ readonly code: number; readonly shown: string }> {
  const { columns = 100, rows = 30, onOutput } = options;
  const screen = new TextOutput({ isTTY: true, columns, rows, ...(onOutput === undefined ? {} : { onOutput }) });
  const env = { TERM: "xterm", ...options.env };
  const code = await runHere(args, { ...options, env }, { stdout: screen, stderr: screen });
  return { code, shown: screen.text };
}

class TextOutput extends PassThrough {
  text = "";
  readonly isTTY?: true;
  readonly columns?: number;
  readonly rows?: number;
  readonly onOutput?: (text: string) => void;

  constructor(terminal: Partial<Pick<TextOutput, "isTTY" | "columns" | "rows" | "onOutput">> = {}) {
    super();
    Object.assign(this, terminal);
  }

  override write(text: unknown): boolean {
    this.text += String(text);
    this.onOutput?.(this.text);
    return true;
  }
}

async function runHere(
  args: readonly string[],
  { cwd = tmpdir(), env, input = "", typed }: TerminalOptions,
  { stdout, stderr }: { readonly stdout: TextOutput; readonly stderr: TextOutput },
): Promise<number> {
  const stdin = Object.assign(new PassThrough(), stdout.isTTY === undefined ? {} : { isTTY: true });
  // A terminal whose user types has no end.
  if (typed === undefined) stdin.end(input);
  else stdin.write(typed);
  const surroundings = { stdin, stdout, stderr, env: environment(env), cwd: () => cwd };
  const zone = env?.["TZ"];
  // test/run.ts lets the tests run in UTC.
  if (zone === undefined) return await runCommand(args, surroundings);
  process.env["TZ"] = zone;
  try {
    return await runCommand(args, surroundings);
  } finally {
    process.env["TZ"] = "UTC";
  }
}

/** A program that runs on a pseudo-terminal, which the command `script` creates. */
export class OnTerminal {
  readonly #child: ChildProcess;
  readonly #exit: Promise<number | null>;
  #shown = "";
  #over = false;
  readonly #watchers = new Set<() => void>();

  /** @param program pg-task's arguments, or a shell command */
  constructor(program: readonly string[] | string, options: CliOptions & { columns?: number; rows?: number }) {
    const { columns = 100, rows = 30 } = options;
    const command =
      typeof program === "string" ? program : `exec ${[process.execPath, bin, ...program].map(shellWord).join(" ")}`;
    const sized = `stty cols ${columns} rows ${rows}; ${command}`;
    this.#child = spawn("script", ["-qec", sized, "/dev/null"], {
      cwd: options.cwd ?? tmpdir(),
      env: { ...environment(options.env), TERM: "xterm", SHELL: "/bin/sh" },
      stdio: ["pipe", "pipe", "inherit"],
    });
    this.#child.stdin?.on("error", () => {});
    this.#child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      this.#shown += text;
      for (const look of this.#watchers) look();
    });
    this.#exit = once(this.#child, "close").then(([code]) => {
      this.#over = true;
      for (const look of this.#watchers) look();
      return code;
    });
  }

  get shown(): string {
    return this.#shown;
  }

  /** Resolves when `what` has appeared in the output, at or after position `from`. */
  async until(what: RegExp | string, from = 0): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const look = (): void => {
        const text = this.#shown.slice(from);
        const found = typeof what === "string" ? text.includes(what) : what.test(text);
        if (!found && !this.#over) return;
        this.#watchers.delete(look);
        if (found) resolve();
        else reject(new Error(`it ended without ${String(what)}: ${this.#shown}`));
      };
      this.#watchers.add(look);
      look();
    });
  }

  /** Changes the size of the terminal, as the window of a terminal does. The program gets SIGWINCH. */
  async resize(columns: number, rows: number): Promise<void> {
    const script = this.#child.pid ?? 0;
    const [program = ""] = (await readFile(`/proc/${script}/task/${script}/children`, "utf8")).split(" ");
    const tty = await readlink(`/proc/${program}/fd/0`);
    await promisify(execFile)("stty", ["-F", tty, "cols", String(columns), "rows", String(rows)]);
  }

  type(keys: string): void {
    this.#child.stdin?.write(keys);
  }

  /** Closes the terminal. Its program gets SIGHUP. */
  async hangUp(): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.#exit;
  }

  /** Waits until the program has ended, and returns its exit code. */
  async end(): Promise<number | null> {
    return await this.#exit;
  }
}

/** Runs a shell command on a terminal until it ends. */
export async function onShellTerminal(
  command: string,
  options: CliOptions,
): Promise<{ readonly code: number | null; readonly shown: string }> {
  const program = new OnTerminal(command, options);
  const code = await program.end();
  return { code, shown: program.shown.replaceAll("\r\n", "\n") };
}

const shellWord = (word: string): string => `'${word.replaceAll("'", `'\\''`)}'`;

/** Asserts that a command prints nothing but an error like this, without a stack, and ends with this code. Returns it. */
export async function failsWith(running: Promise<CliResult>, code: number, error: RegExp): Promise<string> {
  const { stderr, ...result } = await running;
  assert.deepEqual(result, { code, stdout: "" }, stderr);
  assert.match(stderr, error);
  assert.doesNotMatch(stderr, /\n\s+at /);
  return stderr;
}

/** With it, commands connect as this role. */
export const envOf = ({ url }: { readonly url: string }, role: string) => ({
  DATABASE_URL: url.replace(/\/\/[^@]+@/, `//${role}@`),
});

/** Commands that find this server in DATABASE_URL. */
export function commandsOn({ url }: { readonly url: string }) {
  const env = { DATABASE_URL: url };
  const run = (...args: readonly string[]): Promise<CliResult> => cli(args, { env });
  return {
    env,
    run,
    /** Runs a command without a terminal. Returns the fields of each line. */
    fieldsOf: async (...args: readonly string[]): Promise<string[][]> => {
      const { stdout } = await run(...args);
      return linesOf(stdout).map((line) => line.split("\t"));
    },
    onTerminal: (...args: readonly string[]) => cliOnTerminal(args, { env }),
    /** Returns what a command shows on a terminal without colours. */
    shownBy: async (args: readonly string[], options: TerminalOptions = {}): Promise<string> =>
      (await cliOnTerminal(args, { ...options, env: { ...env, NO_COLOR: "1", ...options.env } })).shown,
  };
}

export const linesOf = (text: string): string[] => text.split("\n").filter((line) => line !== "");
