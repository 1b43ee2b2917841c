import { resolve, basename } from "node:path";
import { serverUrlWithoutTls } from "../../embedded/port.js";
import { findSource, defaultFileName } from "../../shared/config/findSource.js";
import { explainConfiguration, type ExplainedConfiguration } from "../../shared/config/loadConfiguration.js";
import { PgTaskError } from "../../shared/errors.js";
import { defaultDataDirectory, resolveDataDirectory } from "../../library/process/dataDirectory.js";
import { openLog } from "../../library/process/openLog.js";
import { Service } from "../../library/process/service.js";
import { noServerError, resolveConfiguration } from "../support/configuration.js";
import type { Terminal } from "../terminal/terminal.js";
import { entriesNamed } from "../../shared/config/entryNames.js";
import { describeTarget } from "../../shared/postgres/target/target.js";
import { printableLine } from "../../shared/printable.js";
import { shellWord } from "../support/pastedCommands.js";

interface StartOptions {
  readonly config?: string;
  readonly embedded?: true;
  readonly data?: string;
  readonly port?: number;
}

/** @throws PgTaskError of the family CONFIG before anything is started; CONFIG_MISSING if nothing names a server */
export async function start(terminal: Terminal, options: StartOptions): Promise<number> {
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

/** A standby has nothing to tell. */
async function showNextSteps(terminal: Terminal, { role, launched, entries }: Service): Promise<void> {
  if (role !== "leader" || launched === null) return;
  const { explained, embedded, web } = launched;
  const isHidden = embedded !== null && embedded.dataDirectory !== resolve(terminal.cwd, defaultDataDirectory);
  const text = formatNextSteps({
    explained,
    hiddenServer: isHidden ? serverUrlWithoutTls(embedded.port) : null,
    waiting: entries.filter(({ state }) => state !== "working" && state !== "sleeping").length,
    page: await web.pageUrl(),
  });
  terminal.write(text);
}

interface Started {
  readonly explained: ExplainedConfiguration;
  /** URL of the embedded server if other commands do not find it by themselves; otherwise null. */
  readonly hiddenServer: string | null;
  readonly waiting: number;
  readonly page: string | null;
}

export function formatNextSteps({ explained, hiddenServer, waiting, page }: Started): string {
  const { entries, parameters, file } = explained.configuration;
  const [entry] = entriesNamed(entries, parameters["pg_task.default"] || "1");
  const server = hiddenServer === null ? "" : `DATABASE_URL=${hiddenServer} `;
  const config = file === null || file === resolve(defaultFileName) ? "" : ` --config ${shellWord(file)}`;
  const command = `${server}${commandName()}`;
  const steps = [
    ...(entry === undefined ? [] : [["connect", `psql ${shellWord(describeTarget(entry.target))}`]]),
    ["add a task", `${command} add "SELECT 42" --wait${config}`],
    ...(waiting === 0 ? [] : [["problems", `${command} doctor${config}`]]),
    ...(page === null ? [] : [["page", page]]),
  ];
  const isFromEnvironment = explained.controlFrom === "DATABASE_URL" || explained.controlFrom === "PG* variables";
  const where = isFromEnvironment
    ? "in another terminal with the same variables"
    : "in another terminal in this folder";
  const state = waiting === 0 ? "pg-task runs" : `pg-task runs, but ${waiting} of ${entries.length} tables wait`;
  const lines = steps.map(([what = "", how = ""]) => printableLine(`  ${what.padEnd(10)}  ${how}`));
  return `\n${[`${state}. To go on, ${where}:`, ...lines, "Ctrl-C stops it."].join("\n")}\n\n`;
}

/** A global installation has its own name, npm runs the others. */
function commandName(): string {
  const isInstalled = basename(process.argv[1] ?? "") === "pg-task" && process.env["npm_command"] === undefined;
  return isInstalled ? "pg-task" : "npx pg-task";
}
