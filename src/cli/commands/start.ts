import { resolve } from "node:path";
import { findSource } from "../../shared/config/findSource.js";
import { explainConfiguration } from "../../shared/config/loadConfiguration.js";
import { PgTaskError } from "../../shared/errors.js";
import { defaultDataDirectory, resolveDataDirectory } from "../../library/process/dataDirectory.js";
import { openLog } from "../../library/process/openLog.js";
import { Service } from "../../library/process/service.js";
import { noServerError } from "../support/noServerError.js";
import { resolveConfiguration } from "../support/resolveConfiguration.js";

export interface StartOptions {
  readonly config?: string;
  readonly embedded?: true;
  /** Data directory of the embedded server. */
  readonly data?: string;
  /** Port of the embedded server. */
  readonly port?: number;
}

/**
 * Runs pg-task until it is asked to stop.
 *
 * @returns the exit code
 * @throws PgTaskError of the family CONFIG before anything is started; CONFIG_MISSING if nothing names a server
 */
export async function start(options: StartOptions): Promise<number> {
  const { data, port } = options;
  const cwd = process.cwd();
  const source = { file: options.config, cwd, env: process.env };
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
  if (process.stdout.isTTY) service.once("ready", () => void showNextSteps(service));
  void service.run();
  const error = await service.stopped;
  if (error !== null) throw error;
  return 0;
}

/** Tells the user of the terminal what to do next. A standby has nothing to tell. */
async function showNextSteps({ role, launched, entries }: Service): Promise<void> {
  if (role !== "leader" || launched === null) return;
  const { explained, embedded, web } = launched;
  const isHidden = embedded !== null && embedded.server.dataDirectory !== resolve(defaultDataDirectory);
  const { formatNextSteps } = await import("../start/nextSteps.js");
  const text = formatNextSteps({
    explained,
    hiddenServer: isHidden ? embedded.url : null,
    waiting: entries.filter(({ state }) => state !== "working").length,
    page: await web.pageUrl(),
  });
  process.stdout.write(text);
}
