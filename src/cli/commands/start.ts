import { relative, resolve } from "node:path";
import type { EmbeddedServer } from "../../embedded/embeddedServer.js";
import {
  explainConfiguration,
  type ControlConnection,
  type ExplainedConfiguration,
  type LoadOptions,
} from "../../shared/config/loadConfiguration.js";
import { findSource } from "../../shared/config/findSource.js";
import { describeTarget } from "../../shared/postgres/target/describeTarget.js";
import { PgTaskError } from "../../shared/errors.js";
import { Supervisor } from "../../supervisor/supervisor.js";
import { defaultData } from "../support/embeddedUrl.js";
import { explainHere } from "../support/explainServerFailure.js";
import { FileWatch } from "../start/fileWatcher.js";
import { openLog, type OpenLog } from "../start/openLog.js";
import { Page } from "../start/webServerHandle.js";
import { Reloading } from "../start/configReloader.js";
import { ReloadRequest } from "../start/reloadSignal.js";
import { StopRequest } from "../start/stopSignal.js";
import { version } from "../support/version.js";

export interface StartOptions {
  readonly config?: string;
  readonly embedded?: true;
  /** Data folder of the embedded server. */
  readonly data?: string;
  /** Port of the embedded server. */
  readonly port?: number;
}

/** Stands for the embedded server's url while the configuration is read to see whether it is valid. */
const notStartedYet = "postgresql://postgres@127.0.0.1/postgres";

const noServerRemedy =
  "give a url in the file, DATABASE_URL or PG* variables; or --embedded for a server of pg-task's own";

/** What a run of pg-task lives in, whatever server it works on. */
interface Surroundings {
  readonly output: OpenLog;
  readonly requests: { readonly stop: StopRequest; readonly reload: ReloadRequest };
  /** Of the configuration file; null without one. */
  readonly watch: FileWatch | null;
  /** Reads the configuration, the first time or (with the control connection in use) again. */
  readonly read: (
    control: string | undefined,
    inUse?: ControlConnection,
  ) => Promise<ExplainedConfiguration>;
}

/**
 * Runs pg-task until it is told to stop.
 *
 * @returns the exit code.
 * @throws PgTaskError of the family CONFIG before anything was started.
 */
export async function start(options: StartOptions): Promise<number> {
  const source = { file: options.config, cwd: process.cwd(), env: process.env };
  const { file, nothing } = await findSource(source);
  const embedding = options.embedded === true || nothing;
  if (!embedding && (options.data !== undefined || options.port !== undefined)) {
    throw new PgTaskError(
      "CONFIG_CONFLICT",
      "--data and --port are for the embedded server: add --embedded, or drop them",
    );
  }
  const watch = file === null ? null : await FileWatch.of(file);
  const valid = await explain(source, embedding ? notStartedYet : undefined);
  const output = await openLog(valid.configuration.parameters["pg_conf.log"]);
  const warn = (message: string): void => output.log.warn(message);
  const requests = { stop: new StopRequest(output.log), reload: new ReloadRequest() };
  const surroundings: Surroundings = {
    output,
    requests,
    watch,
    read: async (control, inUse) =>
      await explain(
        {
          ...source,
          // The one found at the start, also when it is gone meanwhile.
          ...(file === null ? {} : { file }),
          ...(inUse === undefined ? {} : { inUse, warn }),
        },
        control,
      ),
  };
  if (valid.controlFrom === "libpq's defaults") {
    output.log.warn(
      { server: describeTarget(valid.configuration.control), remedy: noServerRemedy },
      "nothing names a server: it is where libpq looks by default",
    );
  }
  try {
    if (!embedding) return await supervise(valid, surroundings);
    return await superviseEmbedded(options, surroundings);
  } finally {
    requests.stop.ignore();
    requests.reload.ignore();
  }
}

/** @param control the url of an embedded server of its own */
async function explain(
  source: LoadOptions,
  control: string | undefined,
): Promise<ExplainedConfiguration> {
  if (control !== undefined) return await explainConfiguration({ ...source, control });
  return (await explainHere(source)) ?? (await explainConfiguration(source));
}

/** @throws PgTaskError CONFIG_INVALID for the working folder or one above: it would be replaced. */
function dataFolder(data: string): string {
  const folder = resolve(data);
  const within = relative(folder, process.cwd());
  if (data === "" || !within.startsWith("..")) {
    throw new PgTaskError(
      "CONFIG_INVALID",
      `expected --data to be a folder of its own, got ${JSON.stringify(data)}, which is the working folder or one above it`,
    );
  }
  return folder;
}

async function superviseEmbedded(
  { data, port }: StartOptions,
  surroundings: Surroundings,
): Promise<number> {
  const { startEmbedded } = await import("../../embedded/embeddedServer.js");
  const embedded = await startEmbedded({
    dataDirectory: dataFolder(data ?? defaultData),
    log: surroundings.output.log,
    ...(port === undefined ? {} : { port }),
  });
  try {
    const url = `${embedded.url}?sslmode=disable`;
    return await supervise(await surroundings.read(url), surroundings, { embedded, url });
  } finally {
    await embedded.stop();
  }
}

async function supervise(
  explained: ExplainedConfiguration,
  { output: { log, writeLine }, requests, watch, read }: Surroundings,
  own?: { readonly embedded: EmbeddedServer; readonly url: string },
): Promise<number> {
  const supervisor = new Supervisor(explained.configuration, { log, writeLine });
  const page = new Page({ cluster: supervisor.board, log, version: version() });
  await page.use(explained.configuration);
  supervisor.once("ready", () => process.send?.("ready"));
  let failure: Error | null = null;
  void own?.embedded.ended.then((how) => {
    failure = new PgTaskError("EMBEDDED_FAILED", `the embedded server ended: ${how}`);
    return supervisor.end(0);
  });
  void supervisor.run().catch(() => {});
  requests.stop.passOn(supervisor);
  const reloading = new Reloading(explained, {
    read: (inUse) => read(own?.url, inUse),
    to: {
      reload: (configuration) => {
        supervisor.reload(configuration);
        void page.use(configuration);
      },
    },
    log,
  });
  requests.reload.passOn(() => reloading.asked());
  const ended = new AbortController();
  void watch?.follow(() => reloading.fileChanged(), ended.signal);
  const reason = (await supervisor.stopped) ?? failure;
  ended.abort();
  await page.end();
  if (reason !== null) throw reason;
  log.info("stopped");
  return 0;
}
