import { Command, CommanderError } from "commander";
import { errorDefinitions, exitCodes } from "../shared/errorCodes.js";
import { toReport } from "../shared/errors.js";
import { commands } from "./commands/index.js";
import { describeUsageErrors, filterOptions, jsonOption, refuseRepeated, tableOptions } from "./support/options.js";
import { handleOutputErrors } from "./support/exitCodes.js";
import { openTerminal, type Surroundings, type Terminal } from "./terminal/terminal.js";
import { printableText } from "../shared/printable.js";
import { packageVersion } from "../shared/version.js";

const usageError = exitCodes.CONFIG;

/** Ends the process if its output cannot be written. */
export async function main(): Promise<number> {
  handleOutputErrors();
  return await runCommand(process.argv.slice(2), process);
}

/** @param args the command's name and arguments */
export async function runCommand(args: readonly string[], surroundings: Surroundings): Promise<number> {
  const terminal = openTerminal(surroundings);
  let code = 0;
  const program = new Command("pg-task")
    .description("SQL that runs later, in any PostgreSQL")
    .version(packageVersion())
    .addHelpText(
      "after",
      "\nEvery command has --help. The commands find their server as start does: in pg_task.json, DATABASE_URL or the\nPG* variables, else the embedded server of this folder (start needs --embedded for that). Exit\ncodes: 0 done, 1 not everything done, 2 usage or configuration, 3 no connection, 4 table or\nprivilege missing.",
    )
    .configureOutput({
      writeOut: (text) => terminal.write(text),
      writeErr: (text) => terminal.writeError(printableText(text)),
      getOutHelpWidth: () => terminal.columns,
      getErrHelpWidth: () => terminal.columns,
    })
    .exitOverride();
  registerCommands(program, async (action) => {
    code = await action(terminal);
  });
  describeUsageErrors(program);
  try {
    await program.parseAsync(args, { from: "user" });
    return code;
  } catch (error) {
    return reportError(terminal, error);
  }
}

/**
 * @param run runs a command's action on the terminal of the process; the number that the action returns is the exit code
 */
export function registerCommands(
  program: Command,
  run: (action: (terminal: Terminal) => Promise<number>) => Promise<void>,
): void {
  for (const [name, row] of Object.entries(commands)) {
    const { summary, aliases = [], examples, notes, table = false, filter } = row;
    const command = program
      .command(name, { hidden: summary === undefined })
      .description(summary ?? "")
      .aliases(aliases);
    for (const each of row.arguments ?? []) command.addArgument(each);
    const options = [
      ...(row.options ?? []),
      ...(table ? [...tableOptions(), jsonOption()] : []),
      ...(filter === undefined ? [] : filterOptions(filter)),
    ];
    for (const each of options) command.addOption(each);
    if (notes !== undefined) command.addHelpText("after", `\n${notes}`);
    if (examples.length > 0)
      command.addHelpText("after", `\nExamples:\n${examples.map((example) => `  pg-task ${example}`).join("\n")}`);
    refuseRepeated(command);
    command.action((...given: unknown[]) =>
      run(async (terminal) => await Reflect.apply(await row.load(), undefined, [terminal, ...given])),
    );
  }
}

function reportError(terminal: Terminal, error: unknown): number {
  // Commander has already printed this error. Commander also throws for --help and --version, which are not errors.
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : usageError;
  const { code, message } = toReport(error);
  if (code !== "INTERNAL") {
    terminal.writeError(`pg-task: ${printableText(message)}\n${hintLine(error)}`);
    return exitCodes[errorDefinitions[code].family];
  }
  terminal.writeError(`pg-task: internal error: ${String(error instanceof Error ? error.stack : error)}\n`);
  return exitCodes.INTERNAL;
}

/** The hint of the server's error, if there is one. */
function hintLine(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  // A refused login has the server's error as a property.
  const told = cause instanceof Error && "error" in cause ? cause.error : cause;
  const isServers = typeof told === "object" && told !== null && "severity" in told && "hint" in told;
  return isServers && typeof told.hint === "string" ? `HINT:  ${printableText(told.hint)}\n` : "";
}
