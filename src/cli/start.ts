import { resolve } from "node:path";
import { startEmbedded, type EmbeddedServer } from "../embedded/server.js";
import { loadConfiguration } from "../shared/config/load.js";
import { findSource } from "../shared/config/source.js";
import type { Configuration } from "../shared/config/types.js";
import { PgTaskError } from "../shared/errors.js";
import { Supervisor } from "../supervisor/supervisor.js";
import { openLog, type OpenLog } from "./output.js";
import { StopRequest } from "./stopRequest.js";

export interface StartOptions {
  readonly config?: string;
  readonly embedded?: true;
  /** Data folder of the embedded server. */
  readonly data?: string;
  /** Port of the embedded server. */
  readonly port?: number;
}

/** Where the embedded server keeps its data unless told otherwise, in the working folder. */
const defaultData = ".pg-task/data";

/** Stands for the embedded server's url while the configuration is read to see whether it is valid. */
const notStartedYet = "postgresql://postgres@127.0.0.1/postgres";

/**
 * Runs pg-task until it is told to stop.
 *
 * @returns the exit code.
 * @throws PgTaskError of the family CONFIG before anything was started.
 */
export async function start(options: StartOptions): Promise<number> {
  const source = { file: options.config, cwd: process.cwd(), env: process.env };
  const embedding = options.embedded === true || (await findSource(source)).nothing;
  if (!embedding && (options.data !== undefined || options.port !== undefined)) {
    throw new PgTaskError(
      "CONFIG_CONFLICT",
      "--data and --port are for the embedded server: add --embedded, or drop them",
    );
  }
  const read = async (control: string | undefined): Promise<Configuration> =>
    await loadConfiguration({ ...source, control });
  const valid = await read(embedding ? notStartedYet : undefined);
  const output = openLog(valid.parameters["pg_conf.log"]);
  const stop = new StopRequest(output.log);
  try {
    if (!embedding) return await supervise(valid, output, stop);
    return await superviseEmbedded(options, output, stop, read);
  } finally {
    stop.ignore();
  }
}

async function superviseEmbedded(
  { data, port }: StartOptions,
  output: OpenLog,
  stop: StopRequest,
  read: (control: string) => Promise<Configuration>,
): Promise<number> {
  const embedded = await startEmbedded({
    dataDirectory: resolve(data ?? defaultData),
    log: output.log,
    ...(port === undefined ? {} : { port }),
  });
  try {
    return await supervise(await read(`${embedded.url}?sslmode=disable`), output, stop, embedded);
  } finally {
    await embedded.stop();
  }
}

async function supervise(
  configuration: Configuration,
  { log, writeLine }: OpenLog,
  stop: StopRequest,
  embedded?: EmbeddedServer,
): Promise<number> {
  const supervisor = new Supervisor(configuration, { log, writeLine });
  supervisor.once("ready", () => process.send?.("ready"));
  let failure: Error | null = null;
  void embedded?.ended.then((how) => {
    failure = new PgTaskError("EMBEDDED_FAILED", `the embedded server ended: ${how}`);
    return supervisor.end(0);
  });
  void supervisor.run().catch(() => {});
  stop.passOn(supervisor);
  const reason = (await supervisor.stopped) ?? failure;
  if (reason !== null) throw reason;
  log.info("stopped");
  return 0;
}
