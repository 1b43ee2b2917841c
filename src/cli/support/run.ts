import type { Terminal } from "../terminal/terminal.js";

/** How a command's action runs: with the process's terminal, its result being the exit code. */
export type CommandRun = (work: (terminal: Terminal) => Promise<number>) => Promise<void>;
