import type { Command } from "commander";
import { commandDefinitions } from "../definitions/definitions.js";
import { manualPage } from "../definitions/manualPage.js";
import type { RunCommand } from "../support/options.js";
import { packageVersion } from "../../shared/version.js";

/** The exit codes of all commands, and what they mean. */
const exitCodes: readonly [string, string][] = [
  ["0", "everything was done"],
  ["1", "not everything was done"],
  ["2", "invalid option, argument or configuration"],
  ["3", "no connection"],
  ["4", "table or privilege missing, or the server refused everything"],
  ["10, 11, 12", "add --wait: the task ended as FAIL, GONE or STOP"],
  ["13", "add --wait: the task's row was deleted while the command waited"],
  ["14", "add --wait: the task was added, but its outcome cannot be read"],
  ["70", "a bug in pg-task"],
  ["130", "add --wait was interrupted; the task keeps running"],
];

export function registerManual(program: Command, run: RunCommand): void {
  program
    .command("manual")
    .description("print the manual page, for man -l -")
    .action(() =>
      run((terminal) => {
        const about = { version: packageVersion(), description: program.description(), exitCodes };
        terminal.write(manualPage(commandDefinitions(program), about));
        return Promise.resolve(0);
      }),
    );
}
