import { Command, InvalidArgumentError } from "commander";
import { errorKinds, exitCodes, toReport } from "../shared/errors.js";
import type { CheckOptions } from "./commands/check.js";
import { configOption } from "./support/options.js";
import { processTerminal } from "./terminal/terminal.js";
import { printableText } from "./terminal/escape.js";
import { version } from "./support/version.js";
import type { StartOptions } from "./commands/start.js";
import type { CommandRun } from "./support/run.js";

/** Exit code for a command line that makes no sense. */
const usageError = exitCodes.CONFIG;

/**
 * Runs the command line.
 *
 * @returns the exit code.
 */
export async function main(argv: readonly string[]): Promise<number> {
  let code = 0;
  const program = new Command("pg-task")
    .description("SQL that runs later, in any PostgreSQL")
    .version(version())
    .addHelpText(
      "after",
      "\nEach command tells more with --help. Those about tasks find their server as start does: by pg_task.json,\nDATABASE_URL or the PG* variables, else the embedded server of this folder. Exit codes: 0 done, 1 not all of\nit, 2 usage or configuration, 3 no connection, 4 the table or a right is missing.",
    )
    .configureOutput({
      writeErr: (text) => void process.stderr.write(printableText(text)),
      outputError: (text, write) => write(text.replace(/^error: /, "pg-task: ")),
    })
    .exitOverride();
  program
    .command("start")
    .description("run tasks until told to stop")
    .addOption(configOption())
    .option("--embedded", "start an embedded PostgreSQL and work on it")
    .option("--data <dir>", "data folder of the embedded PostgreSQL (default: .pg-task/data)")
    .option("--port <n>", "port of the embedded PostgreSQL (default: a free one)", port)
    .action(async (options: StartOptions) => {
      const { start } = await import("./commands/start.js");
      code = await start(options);
    });
  program
    .command("check")
    .description("validate the configuration and show what it means; changes nothing")
    .addOption(configOption())
    .option("--json", "print JSON")
    .action(async (options: CheckOptions) => {
      const { check } = await import("./commands/check.js");
      code = await check(options);
    });
  const run: CommandRun = async (work) => {
    endWithReader();
    code = await work(processTerminal());
  };
  // A start after a death is not to wait until the code of all the others is loaded.
  if (argv[2] !== "start") {
    const { declarations } = await import("./commands/index.js");
    for (const declare of declarations) declare(program, run);
  }
  try {
    await program.parseAsync(argv);
    return code;
  } catch (error) {
    return report(error);
  }
}

/** Who reads the output may stop, as head does: there is nobody left to tell anything. */
function endWithReader(): void {
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
    process.exit(0);
  });
}

function port(text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= 1 && value <= 65_535) return value;
  throw new InvalidArgumentError("expected a port from 1 to 65535");
}

function report(error: unknown): number {
  // Commander has said it already; asking for help or version is no error.
  if (isCommanderError(error)) return error.exitCode === 0 ? 0 : usageError;
  const { code, message } = toReport(error);
  if (code !== "INTERNAL") {
    process.stderr.write(`pg-task: ${printableText(message)}\n`);
    return exitCodes[errorKinds[code].family];
  }
  process.stderr.write(
    `pg-task: internal error: ${String(error instanceof Error ? error.stack : error)}\n`,
  );
  return exitCodes.INTERNAL;
}

const isCommanderError = (error: unknown): error is { exitCode: number } =>
  error instanceof Error &&
  "exitCode" in error &&
  error.constructor.name.endsWith("Error") &&
  "code" in error &&
  String(error.code).startsWith("commander.");
