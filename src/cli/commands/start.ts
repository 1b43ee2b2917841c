import { resolve } from "node:path";
import { InvalidArgumentError, type Command } from "commander";
import { findSource } from "../../shared/config/findSource.js";
import { explainConfiguration } from "../../shared/config/loadConfiguration.js";
import { PgTaskError } from "../../shared/errors.js";
import { defaultDataDirectory, resolveDataDirectory } from "../../library/process/dataDirectory.js";
import { openLog } from "../../library/process/openLog.js";
import { Service } from "../../library/process/service.js";
import { formatNextSteps } from "../start/nextSteps.js";
import { noServerError } from "../support/noServerError.js";
import { configOption, type RunCommand } from "../support/options.js";
import { resolveConfiguration } from "../support/resolveConfiguration.js";
import type { Terminal } from "../terminal/terminal.js";

interface StartOptions {
  readonly config?: string;
  readonly embedded?: true;
  /** Data directory of the embedded server. */
  readonly data?: string;
  /** Port of the embedded server. */
  readonly port?: number;
}

export function registerStart(program: Command, run: RunCommand): void {
  program
    .command("start")
    .description("run tasks until stopped")
    .addOption(configOption())
    .option("--embedded", "start an embedded PostgreSQL and use it")
    .option("--data <dir>", "data directory of the embedded PostgreSQL (default: .pg-task/data)")
    .option("--port <n>", "port of the embedded PostgreSQL (default: a free one)", parsePort)
    .action((options: StartOptions) => run((terminal) => start(terminal, options)));
}

function parsePort(text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= 1 && value <= 65_535) return value;
  throw new InvalidArgumentError("expected a port from 1 to 65535");
}

/**
 * Runs pg-task until it is asked to stop.
 *
 * @returns the exit code
 * @throws PgTaskError of the family CONFIG before anything is started; CONFIG_MISSING if nothing names a server
 */
async function start(terminal: Terminal, options: StartOptions): Promise<number> {
  const { data, port } = options;
  const { cwd, env } = terminal;
  const source = { file: options.config, cwd, env };
  const { nothing } = await findSource(source);
  const useEmbedded = options.embedded === true;
  if (!useEmbedded && (data !== undefined || port !== undefined)) {
    throw new PgTaskError(
      "CONFIG_CONFLICT",
      "--data and --port configure the embedded server: add --embedded, or drop them",
    );
  }
  if (nothing && !useEmbedded) throw noServerError(source);
  const service = new Service({
    source,
    read: async (given) =>
      given.control === undefined
        ? ((await resolveConfiguration(given)) ?? (await explainConfiguration(given)))
        : await explainConfiguration(given),
    embedded: useEmbedded
      ? { dataDirectory: () => resolveDataDirectory(data ?? defaultDataDirectory, cwd, "--data"), port }
      : null,
    openLog,
    handlesSignals: true,
    noServerRemedy: "set url in the file, DATABASE_URL or PG* variables; or use --embedded to start a server",
  });
  service.once("ready", () => process.send?.("ready"));
  if (terminal.isTerminal) service.once("ready", () => void showNextSteps(terminal, service));
  void service.run();
  const error = await service.stopped;
  if (error !== null) throw error;
  return 0;
}

/** Tells the user of the terminal what to do next. A standby has nothing to tell. */
async function showNextSteps(terminal: Terminal, { role, launched, entries }: Service): Promise<void> {
  if (role !== "leader" || launched === null) return;
  const { explained, embedded, web } = launched;
  const isHidden = embedded !== null && embedded.server.dataDirectory !== resolve(terminal.cwd, defaultDataDirectory);
  const text = formatNextSteps({
    explained,
    hiddenServer: isHidden ? embedded.url : null,
    waiting: entries.filter(({ state }) => state !== "working").length,
    page: await web.pageUrl(),
  });
  terminal.write(text);
}
