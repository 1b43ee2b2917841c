import { Argument, type Command } from "commander";
import { commandDefinitions } from "../definitions/definitions.js";
import { completionScript, shells, type Shell } from "../definitions/completionScript.js";
import type { RunCommand } from "../support/options.js";

export function registerCompletion(program: Command, run: RunCommand): void {
  program
    .command("completion")
    .description("print a script that completes commands and options in your shell")
    .addArgument(new Argument("<shell>", "your shell").choices(shells))
    .action((shell: Shell) =>
      run((terminal) => {
        terminal.write(completionScript(shell, commandDefinitions(program)));
        return Promise.resolve(0);
      }),
    );
}
