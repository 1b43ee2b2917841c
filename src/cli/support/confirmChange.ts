import { PgTaskError } from "../../shared/errors.js";
import type { Terminal } from "../terminal/terminal.js";

/**
 * Asks whether to change many tasks, unless the user has said yes already.
 *
 * @returns false if the user declines
 * @throws PgTaskError USAGE if there is nobody to ask
 */
export async function confirmChange(terminal: Terminal, yes: boolean, question: string): Promise<boolean> {
  if (yes) return true;
  if (!terminal.isInteractive) {
    throw new PgTaskError("USAGE", `${question} Without a terminal, give --yes`);
  }
  if (await terminal.confirm(question)) return true;
  terminal.writeError("nothing was changed\n");
  return false;
}
