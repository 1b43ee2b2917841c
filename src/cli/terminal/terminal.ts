import { createInterface } from "node:readline/promises";
import { PgTaskError } from "../../shared/errors.js";

/** Where a command runs: its input and output, its working directory and its environment. */
export interface Terminal {
  readonly cwd: string;
  readonly env: NodeJS.ProcessEnv;
  /** Whether standard output is a terminal. Tables and truncated values are written only to a terminal. */
  readonly isTerminal: boolean;
  readonly hasColours: boolean;
  readonly columns: number;
  readonly rows: number;
  readonly isInteractive: boolean;
  /** Whether standard input is a terminal, so that nothing is piped into the command. */
  readonly isInputTerminal: boolean;
  readInput(): Promise<Buffer>;
  write(text: string): void;
  writeError(text: string): void;
  /** Overwrites the progress line; null clears the line. Does nothing if standard error is not a terminal. */
  showProgress(text: string | null): void;
  confirm(question: string): Promise<boolean>;
}

const minColumns = 40;

interface Output {
  readonly isTTY?: boolean;
  readonly columns?: number;
  readonly rows?: number;
  write(text: string): unknown;
}

export interface Surroundings {
  readonly stdin: NodeJS.ReadableStream & { readonly isTTY?: boolean };
  readonly stdout: Output;
  readonly stderr: Output & NodeJS.WritableStream;
  readonly env: NodeJS.ProcessEnv;
  cwd(): string;
}

export function openTerminal(surroundings: Surroundings): Terminal {
  const { stdout, stderr, stdin, env } = surroundings;
  const isTerminal = stdout.isTTY === true;
  let hasProgress = false;
  return {
    cwd: surroundings.cwd(),
    env,
    isTerminal,
    hasColours: isTerminal && !env["NO_COLOR"] && env["TERM"] !== "dumb",
    get columns() {
      return Math.max(minColumns, stdout.columns || 80);
    },
    get rows() {
      return stdout.rows || 24;
    },
    isInteractive: isTerminal && stdin.isTTY === true,
    isInputTerminal: stdin.isTTY === true,
    async readInput() {
      const chunks: Uint8Array[] = [];
      for await (const chunk of stdin) if (typeof chunk !== "string") chunks.push(chunk);
      return Buffer.concat(chunks);
    },
    write: (text) => void stdout.write(text),
    writeError: (text) => void stderr.write(text),
    showProgress: (text) => {
      if (!stderr.isTTY || (text === null && !hasProgress)) return;
      hasProgress = text !== null;
      stderr.write(`\r\x1b[K${text ?? ""}`);
    },
    async confirm(question) {
      const lines = createInterface({ input: stdin, output: stderr });
      // Ctrl-C and Ctrl-D count as no.
      const closed = new Promise<string>((resolve) => lines.once("close", () => resolve("")));
      const answer = await Promise.race([lines.question(`${question} [y/N] `), closed]);
      lines.close();
      return /^\s*y(es)?\s*$/i.test(answer);
    },
  };
}

/** A colour or font style. Colours only repeat what the text already states. */
export type Colour = "red" | "green" | "yellow" | "blue" | "grey" | "bold";

const escapeCodes: Readonly<Record<Colour, readonly [number, number]>> = {
  red: [31, 39],
  green: [32, 39],
  yellow: [33, 39],
  blue: [34, 39],
  grey: [90, 39],
  bold: [1, 22],
};

export function colourText(terminal: Terminal, colour: Colour | null, text: string): string {
  if (!terminal.hasColours || colour === null) return text;
  const [on, off] = escapeCodes[colour];
  return `\x1b[${on}m${text}\x1b[${off}m`;
}

const stateColours: Readonly<Record<string, Colour>> = {
  TAKE: "blue",
  WORK: "blue",
  DONE: "green",
  FAIL: "red",
  GONE: "yellow",
  STOP: "yellow",
};

export const stateColour = (state: string): Colour | null => stateColours[state] ?? null;

/** @throws PgTaskError USAGE if there is nobody to ask */
export async function confirmChange(terminal: Terminal, yes: boolean, question: string): Promise<boolean> {
  if (yes) return true;
  if (!terminal.isInteractive) {
    throw new PgTaskError("USAGE", `${question} Without a terminal, give --yes`);
  }
  if (await terminal.confirm(question)) return true;
  terminal.writeError("nothing was changed\n");
  return false;
}

/** Runs `work`, whose signal is aborted by SIGINT and SIGTERM. */
export async function withInterrupt<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const interrupt = new AbortController();
  const stop = (): void => interrupt.abort();
  process.on("SIGINT", stop);
  process.on("SIGTERM", stop);
  try {
    return await work(interrupt.signal);
  } finally {
    process.off("SIGINT", stop);
    process.off("SIGTERM", stop);
  }
}
