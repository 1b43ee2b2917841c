import { Command, InvalidArgumentError, Option } from "commander";
import { exitCodes, PgTaskError } from "../shared/errors.js";
import { check, type CheckOptions } from "./check.js";
import { version } from "./version.js";
import { start, type StartOptions } from "./start.js";

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
    .exitOverride();
  program
    .command("start")
    .description("run tasks until told to stop")
    .addOption(configOption())
    .option("--embedded", "start an embedded PostgreSQL and work on it")
    .option("--data <dir>", "data folder of the embedded PostgreSQL (default: .pg-task/data)")
    .option("--port <n>", "port of the embedded PostgreSQL (default: a free one)", port)
    .action(async (options: StartOptions) => {
      code = await start(options);
    });
  program
    .command("check")
    .description("validate the configuration and show what it means; changes nothing")
    .addOption(configOption())
    .option("--json", "print JSON")
    .action(async (options: CheckOptions) => {
      code = await check(options);
    });
  try {
    await program.parseAsync(argv);
    return code;
  } catch (error) {
    return report(error);
  }
}

const configOption = (): Option =>
  new Option("-c, --config <file>", "configuration file (default: ./pg_task.json if present)");

function port(text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= 1 && value <= 65_535) return value;
  throw new InvalidArgumentError("expected a port from 1 to 65535");
}

function report(error: unknown): number {
  // Commander has said it already; asking for help or version is no error.
  if (isCommanderError(error)) return error.exitCode === 0 ? 0 : usageError;
  if (error instanceof PgTaskError && error.code !== "INTERNAL") {
    process.stderr.write(`pg-task: ${error.message}\n`);
    return error.exitCode;
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
