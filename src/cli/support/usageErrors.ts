import type { Command } from "commander";

/** Matches what commander says of an option or argument whose parser throws an InvalidArgumentError. */
const invalidOption =
  /^option '(?:-\w, )?(?<option>--[\w-]+)[^']*' argument '(?<value>[^]*)' is invalid\. (?<message>[^]*)\n$/;
const invalidArgument =
  /^command-argument value '(?<value>[^]*)' is invalid for argument '[^']*'\. (?<message>[^]*)\n$/;

/** Lets all commands of the program say what is wrong with a command line in pg-task's words instead of commander's. */
export function describeUsageErrors(program: Command): void {
  for (const command of [program, ...program.commands]) {
    const help = command === program ? "pg-task --help" : `pg-task ${command.name()} --help`;
    command.configureOutput({
      outputError: (text, write) =>
        write(`pg-task: ${describeUsageError(text.replace(/^error: /, ""), command, help)}`),
    });
  }
}

/** What the argument of a command is that may contain spaces, and an example. */
const withSpaces: Readonly<Record<string, string>> = {
  next: "the rule in quotes, such as pg-task next '30 2 * * *'",
  add: "the SQL in quotes, such as pg-task add 'SELECT 1'",
};

function describeUsageError(text: string, command: Command, help: string): string {
  // The second line is a suggestion.
  if (/^unknown option [^\n]*\n$/.test(text)) return `${text.trimEnd()}: ${help} lists the options\n`;
  const quoted = withSpaces[command.name()];
  if (quoted !== undefined && text.startsWith("too many arguments"))
    return `${text.trimEnd().replace(/\.$/, "")}: put ${quoted}\n`;
  const { option, value, message } = (invalidOption.exec(text) ?? invalidArgument.exec(text))?.groups ?? {};
  if (message === undefined) return text;
  const expected = message.replace(/^Allowed choices are (.*)\.$/, "expected one of $1");
  const got = expected.includes(", got ") ? "" : `, got ${JSON.stringify(value)}`;
  return `${option === undefined ? "" : `${option}: `}${expected}${got}\n`;
}
