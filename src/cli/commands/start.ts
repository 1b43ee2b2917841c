import { findSource } from "../../shared/config/findSource.js";
import { explainConfiguration } from "../../shared/config/loadConfiguration.js";
import { PgTaskError } from "../../shared/errors.js";
import { defaultDataDirectory, resolveDataDirectory } from "../../library/process/dataDirectory.js";
import { openLog } from "../../library/process/openLog.js";
import { Service } from "../../library/process/service.js";
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
 * @throws PgTaskError of the family CONFIG before anything is started
 */
export async function start(options: StartOptions): Promise<number> {
  const { data, port } = options;
  const cwd = process.cwd();
  const source = { file: options.config, cwd, env: process.env };
  const { nothing } = await findSource(source);
  const useEmbedded = options.embedded === true || nothing;
  if (!useEmbedded && (data !== undefined || port !== undefined)) {
    throw new PgTaskError(
      "CONFIG_CONFLICT",
      "--data and --port configure the embedded server: add --embedded, or drop them",
    );
  }
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
  });
  service.once("ready", () => process.send?.("ready"));
  void service.run();
  const error = await service.stopped;
  if (error !== null) throw error;
  return 0;
}
