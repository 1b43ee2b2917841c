import type { Command } from "commander";

/** Matches what commander says of an option or argument whose parser throws an InvalidArgumentError. */
const invalidOption = /^option '(?:-\w, )?(--[\w-]+)[^']*' argument '([^]*)' is invalid\. ([^]*)\n$/;
const invalidArgument = /^command-argument value '[^]*' is invalid for argument '[^']*'\. /;

/** Lets all commands of the program say what is wrong with a command line in pg-task's words instead of commander's. */
export function describeUsageErrors(program: Command): void {
  for (const command of [program, ...program.commands]) {
    const help = command === program ? "pg-task --help" : `pg-task ${command.name()} --help`;
    command.configureOutput({
      outputError: (text, write) => write(`pg-task: ${describeUsageError(text.replace(/^error: /, ""), help)}`),
    });
  }
}

function describeUsageError(text: string, help: string): string {
  // The second line is a suggestion.
  if (/^unknown option [^\n]*\n$/.test(text)) return `${text.trimEnd()}: ${help} lists the options\n`;
  const [, option, value = "", message = ""] = invalidOption.exec(text) ?? [];
  if (option === undefined) return text.replace(invalidArgument, "");
  return `${option}: ${message}${message.includes(", got ") ? "" : `, got ${JSON.stringify(value)}`}\n`;
}
