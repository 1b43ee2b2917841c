import { createInterface } from "node:readline/promises";

/** A command's input and output. */
export interface Terminal {
  /** Whether standard output is a terminal. Tables and truncated values are written only to a terminal. */
  readonly isTerminal: boolean;
  readonly hasColours: boolean;
  readonly columns: number;
  readonly rows: number;
  /** Whether the command can ask the user questions. */
  readonly isInteractive: boolean;
  write(text: string): void;
  /** Writes to standard error. */
  writeError(text: string): void;
  /** Overwrites the progress line; null clears the line. Does nothing if standard error is not a terminal. */
  showProgress(text: string | null): void;
  /** Asks a yes-or-no question. Resolves to true for yes. */
  confirm(question: string): Promise<boolean>;
}

const minColumns = 40;

export function processTerminal(): Terminal {
  const { stdout, stderr, stdin, env } = process;
  const isTerminal = stdout.isTTY;
  let hasProgress = false;
  return {
    isTerminal,
    hasColours: isTerminal && !env["NO_COLOR"] && env["TERM"] !== "dumb",
    get columns() {
      return Math.max(minColumns, stdout.columns || 80);
    },
    get rows() {
      return stdout.rows || 24;
    },
    isInteractive: isTerminal && stdin.isTTY,
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
