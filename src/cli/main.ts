import { Command, InvalidArgumentError } from "commander";
import { addExamples } from "./definitions/examples.js";
import { errorDefinitions, exitCodes } from "../shared/errorCodes.js";
import { toReport } from "../shared/errors.js";
import type { CheckOptions } from "./commands/check.js";
import { configOption, refuseRepeated, type RunCommand } from "./support/options.js";
import { describeUsageErrors } from "./support/usageErrors.js";
import { handleOutputErrors } from "./terminal/outputErrors.js";
import { processTerminal } from "./terminal/terminal.js";
import { printableText } from "../shared/printable.js";
import { packageVersion } from "../shared/version.js";
import type { StartOptions } from "./commands/start.js";

/** Exit code for an invalid command line. */
const usageError = exitCodes.CONFIG;

/**
 * Runs the command line.
 *
 * @returns the exit code
 */
export async function main(argv: readonly string[]): Promise<number> {
  let code = 0;
  const program = new Command("pg-task")
    .description("SQL that runs later, in any PostgreSQL")
    .version(packageVersion())
    .addHelpText(
      "after",
      "\nEvery command has --help. The commands find their server as start does: in pg_task.json, DATABASE_URL or the\nPG* variables, else the embedded server of this folder (start needs --embedded for that). Exit\ncodes: 0 done, 1 not everything done, 2 usage or configuration, 3 no connection, 4 table or\nprivilege missing.",
    )
    .configureOutput({ writeErr: (text) => void process.stderr.write(printableText(text)) })
    .exitOverride();
  program
    .command("start")
    .description("run tasks until stopped")
    .addOption(configOption())
    .option("--embedded", "start an embedded PostgreSQL and use it")
    .option("--data <dir>", "data directory of the embedded PostgreSQL (default: .pg-task/data)")
    .option("--port <n>", "port of the embedded PostgreSQL (default: a free one)", parsePortOption)
    .action(async (options: StartOptions) => {
      const { start } = await import("./commands/start.js");
      code = await start(options);
    });
  program
    .command("check")
    .description("validate and explain the configuration; changes nothing")
    .addOption(configOption())
    .option("--all", "list also the parameters that have their defaults")
    .option("--json", "print JSON")
    .action(async (options: CheckOptions) => {
      const { check } = await import("./commands/check.js");
      code = await check(options);
    });
  handleOutputErrors();
  const run: RunCommand = async (action) => {
    code = await action(processTerminal());
  };
  // `start` does not load the other commands, because loading them would delay a restart after a crash.
  if (argv[2] !== "start") {
    const { registrations } = await import("./commands/index.js");
    for (const register of registrations) register(program, run);
  }
  addExamples(program);
  for (const command of program.commands) refuseRepeated(command);
  describeUsageErrors(program);
  try {
    await program.parseAsync(argv);
    return code;
  } catch (error) {
    return reportError(error);
  }
}

function parsePortOption(text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= 1 && value <= 65_535) return value;
  throw new InvalidArgumentError("expected a port from 1 to 65535");
}

function reportError(error: unknown): number {
  // Commander has already printed this error. Commander also throws for --help and --version, which are not errors.
  if (isCommanderError(error)) return error.exitCode === 0 ? 0 : usageError;
  const { code, message } = toReport(error);
  if (code !== "INTERNAL") {
    process.stderr.write(`pg-task: ${printableText(message)}\n${hintLine(error)}`);
    return exitCodes[errorDefinitions[code].family];
  }
  process.stderr.write(`pg-task: internal error: ${String(error instanceof Error ? error.stack : error)}\n`);
  return exitCodes.INTERNAL;
}

/** Returns a line with the hint of the server error that caused the error. It is empty if there is none. */
function hintLine(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  const isServerHint = cause instanceof Error && "severity" in cause && "hint" in cause;
  return isServerHint && typeof cause.hint === "string" ? `HINT:  ${printableText(cause.hint)}\n` : "";
}

const isCommanderError = (error: unknown): error is { exitCode: number } =>
  error instanceof Error &&
  "exitCode" in error &&
  error.constructor.name.endsWith("Error") &&
  "code" in error &&
  String(error.code).startsWith("commander.");
