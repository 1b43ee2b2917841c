import { createInterface } from "node:readline/promises";

/** Where a command writes, and what can be done there. */
export interface Terminal {
  /** Whether standard output is one: then there are tables and cut texts for a reader. */
  readonly isTerminal: boolean;
  readonly colours: boolean;
  readonly columns: number;
  readonly rows: number;
  /** Whether somebody can be asked. */
  readonly canAsk: boolean;
  write(text: string): void;
  /** On standard error. */
  note(text: string): void;
  /** Overwrites its last line of progress; nothing where standard error is no terminal. */
  progress(text: string | null): void;
  /** True for yes. */
  ask(question: string): Promise<boolean>;
}

const narrowest = 40;

export function processTerminal(): Terminal {
  const { stdout, stderr, stdin, env } = process;
  const isTerminal = stdout.isTTY;
  let inProgress = false;
  return {
    isTerminal,
    colours: isTerminal && !env["NO_COLOR"] && env["TERM"] !== "dumb",
    get columns() {
      return Math.max(narrowest, stdout.columns || 80);
    },
    get rows() {
      return stdout.rows || 24;
    },
    canAsk: isTerminal && stdin.isTTY,
    write: (text) => void stdout.write(text),
    note: (text) => void stderr.write(text),
    progress: (text) => {
      if (!stderr.isTTY || (text === null && !inProgress)) return;
      inProgress = text !== null;
      stderr.write(`\r\x1b[K${text ?? ""}`);
    },
    async ask(question) {
      const lines = createInterface({ input: stdin, output: stderr });
      // Ctrl-C and Ctrl-D mean no.
      const closed = new Promise<string>((resolve) => lines.once("close", () => resolve("")));
      const answer = await Promise.race([lines.question(`${question} [y/N] `), closed]);
      lines.close();
      return /^\s*y(es)?\s*$/i.test(answer);
    },
  };
}

/** What is said by a colour is said by words as well. */
export type Colour = "red" | "green" | "yellow" | "blue" | "grey" | "bold";

const codes: Readonly<Record<Colour, readonly [number, number]>> = {
  red: [31, 39],
  green: [32, 39],
  yellow: [33, 39],
  blue: [34, 39],
  grey: [90, 39],
  bold: [1, 22],
};

export function coloured(terminal: Terminal, colour: Colour | null, text: string): string {
  if (!terminal.colours || colour === null) return text;
  const [on, off] = codes[colour];
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
