import { relative, resolve } from "node:path";
import type { EmbeddedServer } from "../../embedded/embeddedServer.js";
import { serverUrlWithoutTls } from "../../embedded/serverUrl.js";
import {
  explainConfiguration,
  type ControlConnection,
  type ExplainedConfiguration,
  type LoadOptions,
} from "../../shared/config/loadConfiguration.js";
import { findSource } from "../../shared/config/findSource.js";
import { describeTarget } from "../../shared/postgres/target/target.js";
import { PgTaskError } from "../../shared/errors.js";
import { Supervisor } from "../../supervisor/supervisor.js";
import { defaultDataDirectory } from "../support/embeddedUrl.js";
import { noServerError } from "../support/noServerError.js";
import { resolveConfiguration } from "../support/resolveConfiguration.js";
import { FileWatcher } from "../start/fileWatcher.js";
import { openLog, type OpenLog } from "../start/openLog.js";
import { WebServerHandle } from "../start/webServerHandle.js";
import { ConfigReloader } from "../start/configReloader.js";
import { ReloadSignal } from "../start/reloadSignal.js";
import { StopSignal } from "../start/stopSignal.js";
import { packageVersion } from "../support/version.js";

export interface StartOptions {
  readonly config?: string;
  readonly embedded?: true;
  /** Data directory of the embedded server. */
  readonly data?: string;
  /** Port of the embedded server. */
  readonly port?: number;
}

/**
 * Stands in for the embedded server's URL while the configuration is validated, because the server starts only after
 * the validation.
 */
const placeholderUrl = serverUrlWithoutTls(5432);

const noServerRemedy = "set url in the file, DATABASE_URL or PG* variables; or use --embedded to start a server";

interface RunContext {
  readonly output: OpenLog;
  readonly signals: { readonly stop: StopSignal; readonly reload: ReloadSignal };
  /** Detects changes of the configuration file; null if there is no file. */
  readonly watcher: FileWatcher | null;
  /** Reads the configuration. For a reload, `inUse` is the control connection in use. */
  readonly read: (control: string | undefined, inUse?: ControlConnection) => Promise<ExplainedConfiguration>;
}

/**
 * Runs pg-task until it is asked to stop.
 *
 * @returns the exit code
 * @throws PgTaskError of the family CONFIG before anything is started; CONFIG_MISSING if nothing names a server
 */
export async function start(options: StartOptions): Promise<number> {
  const source = { file: options.config, cwd: process.cwd(), env: process.env };
  const { file, environment, nothing } = await findSource(source);
  const useEmbedded = options.embedded === true;
  if (!useEmbedded && (options.data !== undefined || options.port !== undefined)) {
    throw new PgTaskError(
      "CONFIG_CONFLICT",
      "--data and --port configure the embedded server: add --embedded, or drop them",
    );
  }
  if (nothing && !useEmbedded) throw noServerError(source);
  const watcher = file === null ? null : await FileWatcher.create(file);
  const initial = await readConfiguration(source, useEmbedded ? placeholderUrl : undefined);
  const output = await openLog(initial.configuration.parameters["pg_conf.log"]);
  const warn = (message: string): void => output.log.warn(message);
  const signals = { stop: new StopSignal(output.log), reload: new ReloadSignal() };
  const context: RunContext = {
    output,
    signals,
    watcher,
    read: async (control, inUse) =>
      await readConfiguration(
        {
          ...source,
          // A reload always reads the file that was found when the process started. If this file no longer exists, the
          // reload fails, and no other source takes its place.
          ...(file === null ? {} : { file }),
          ...(inUse === undefined ? {} : { inUse, warn }),
        },
        control,
      ),
  };
  if (initial.controlFrom === "libpq's defaults") {
    output.log.warn(
      { server: describeTarget(initial.configuration.control), remedy: noServerRemedy },
      "no server configured, using libpq's default",
    );
  }
  if (useEmbedded && environment !== null) {
    output.log.warn({ ignored: environment }, "embedded server used instead of the one in the environment");
  }
  try {
    if (!useEmbedded) return await supervise(initial, context);
    return await superviseEmbedded(options, context);
  } finally {
    signals.stop.close();
    signals.reload.close();
  }
}

/**
 * Reads the configuration.
 *
 * @param control URL of the embedded server, if `start` runs one
 */
async function readConfiguration(source: LoadOptions, control: string | undefined): Promise<ExplainedConfiguration> {
  if (control !== undefined) return await explainConfiguration({ ...source, control });
  return (await resolveConfiguration(source)) ?? (await explainConfiguration(source));
}

/**
 * Resolves the path of the data directory.
 *
 * @throws PgTaskError CONFIG_INVALID if the data directory is the working directory or one of its parents, because
 * initdb would replace the contents of the data directory
 */
function resolveDataDirectory(data: string): string {
  const directory = resolve(data);
  const within = relative(directory, process.cwd());
  if (data === "" || !within.startsWith("..")) {
    throw new PgTaskError(
      "CONFIG_INVALID",
      `expected --data to be a directory of its own, got ${JSON.stringify(data)}, which contains the working directory`,
    );
  }
  return directory;
}

async function superviseEmbedded({ data, port }: StartOptions, context: RunContext): Promise<number> {
  const { startEmbedded } = await import("../../embedded/embeddedServer.js");
  const embedded = await startEmbedded({
    dataDirectory: resolveDataDirectory(data ?? defaultDataDirectory),
    log: context.output.log,
    ...(port === undefined ? {} : { port }),
  });
  try {
    const url = serverUrlWithoutTls(embedded.port);
    return await supervise(await context.read(url), context, { server: embedded, url });
  } finally {
    await embedded.stop();
  }
}

interface RunningServer {
  readonly server: EmbeddedServer;
  readonly url: string;
}

/** Tells the user of the terminal what to do next. A standby has nothing to tell. */
async function showNextSteps(
  explained: ExplainedConfiguration,
  {
    supervisor: { board },
    web,
    embedded,
  }: { readonly supervisor: Supervisor; readonly web: WebServerHandle; readonly embedded: RunningServer | undefined },
): Promise<void> {
  if (board.role !== "leader") return;
  const isHidden = embedded !== undefined && embedded.server.dataDirectory !== resolve(defaultDataDirectory);
  const { formatNextSteps } = await import("../start/nextSteps.js");
  const { entries } = explained.configuration;
  const text = formatNextSteps({
    explained,
    hiddenServer: isHidden ? embedded.url : null,
    waiting: entries.filter(({ key }) => board.manager(key)?.state !== "working").length,
    page: await web.pageUrl(),
  });
  process.stdout.write(text);
}

async function supervise(
  explained: ExplainedConfiguration,
  { output: { log, writeLine }, signals, watcher, read }: RunContext,
  embedded?: RunningServer,
): Promise<number> {
  const supervisor = new Supervisor(explained.configuration, { log, writeLine });
  const web = new WebServerHandle({ cluster: supervisor.board, log, version: packageVersion() });
  await web.configure(explained.configuration);
  supervisor.once("ready", () => process.send?.("ready"));
  let failure: Error | null = null;
  void embedded?.server.ended.then((how) => {
    failure = new PgTaskError("EMBEDDED_FAILED", `the embedded server ended: ${how}`);
    return supervisor.end(0);
  });
  if (process.stdout.isTTY)
    supervisor.once("ready", () => void showNextSteps(explained, { supervisor, web, embedded }));
  void supervisor.run().catch(() => {});
  signals.stop.stopOnRequest(supervisor);
  const reloader = new ConfigReloader(explained, {
    read: (inUse) => read(embedded?.url, inUse),
    target: {
      reload: (configuration) => {
        supervisor.reload(configuration);
        void web.configure(configuration);
      },
    },
    log,
  });
  signals.reload.subscribe(() => reloader.onReloadRequested());
  const ended = new AbortController();
  void watcher?.watch(() => reloader.onFileChanged(), ended.signal);
  const reason = (await supervisor.stopped) ?? failure;
  ended.abort();
  await web.end();
  if (reason !== null) throw reason;
  log.info("stopped");
  return 0;
}
