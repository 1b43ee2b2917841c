import {
  explainConfiguration,
  type ExplainedConfiguration,
  type LoadOptions,
} from "../shared/config/loadConfiguration.js";
import { logLevels } from "../shared/config/parameterTable.js";
import type { Entry } from "../shared/config/types.js";
import { Backoff, sleep } from "../shared/backoff.js";
import type { ClusterRole } from "../shared/clusterStatus.js";
import { PgTaskError } from "../shared/errors.js";
import { applicationNames } from "../shared/postgres/applicationNames.js";
import { connectClient, disconnect } from "../shared/postgres/client.js";
import { timeoutSignal } from "../shared/timeoutSignal.js";
import { locateTable } from "../manager/schema/locateTable.js";
import { taskTable } from "../manager/schema/taskTable.js";
import { readTableExistence } from "../tasks/queries/tableExistence.js";
import { logTo, noLog, type Logger } from "./logger.js";
import { checkOptions, embeddedChecks, startChecks } from "./optionChecks.js";
import type { ConfigOptions, StartOptions } from "./options.js";
import type { PgTask } from "./pgTask.js";
import { defaultDataDirectory, resolveDataDirectory } from "./process/dataDirectory.js";
import { openLog, type OpenLog } from "./process/openLog.js";
import { Service, type ServiceOptions } from "./process/service.js";

/** What `start` in index.ts does. */
export async function runPgTask(options: StartOptions): Promise<PgTask> {
  const service = new Service(serviceOptions(options));
  const { signal } = options;
  if (signal?.aborted === true) throw abortedError(signal);
  const stop = (): void => void service.stop();
  signal?.addEventListener("abort", stop, { once: true });
  void service.stopped.then(() => signal?.removeEventListener("abort", stop));
  void service.run();
  await untilReady(service);
  return service;
}

/** How long a standby waits for its tables, in ms. The leader may have other entries, and never create them. */
const tablesTimeoutMs = 10_000;

/**
 * A standby is ready when the tables of its entries exist, because a new database has none until the leader has created
 * them, or when some seconds have passed.
 *
 * @throws PgTaskError the error that ended it; START_ABORTED if it was stopped before
 */
async function untilReady(service: Service): Promise<void> {
  const ended = service.stopped.then((error) => {
    throw error ?? service.abortedError();
  });
  const role = await Promise.race([readyAs(service, "leader"), readyAs(service, "standby"), ended]);
  if (role === "leader") return;
  const enough = new AbortController();
  const signal = timeoutSignal(tablesTimeoutMs, enough.signal);
  try {
    const tables = untilTablesExist(service.configuration?.entries ?? [], signal);
    await Promise.race([tables, readyAs(service, "leader"), ended]);
  } finally {
    enough.abort();
  }
}

function readyAs(service: Service, role: ClusterRole): Promise<ClusterRole> {
  return new Promise((resolve) => {
    const onReady = (): void => {
      if (service.role !== role) return;
      service.off("ready", onReady);
      resolve(role);
    };
    service.on("ready", onReady);
  });
}

/**
 * Entries whose tables nobody creates (`"create": false`) are not waited for. Never rejects: the role or the database
 * may be missing as well, so the next attempt follows any failure.
 */
async function untilTablesExist(entries: readonly Entry[], signal: AbortSignal): Promise<void> {
  // One entry after another, so that a standby with many entries does not open many connections at once.
  for (const entry of entries) if (entry.create) await untilTableExists(entry, signal);
}

async function untilTableExists(entry: Entry, signal: AbortSignal): Promise<void> {
  const backoff = new Backoff({ firstMs: 50, maxMs: 500 });
  while (!signal.aborted) {
    if (await hasTable(entry, signal).catch(() => false)) return;
    await sleep(backoff.next(), signal);
  }
}

async function hasTable(entry: Entry, signal: AbortSignal): Promise<boolean> {
  const client = await connectClient(entry.target, { applicationName: applicationNames.check, signal });
  // On a half-open connection, the queries would never end.
  const abort = (): void => void client.connection.stream.destroy();
  signal.addEventListener("abort", abort);
  if (signal.aborted) abort();
  try {
    const { schema, table } = await locateTable(client, entry, () => {});
    return (await readTableExistence(client, taskTable(schema, table))) === "yes";
  } finally {
    signal.removeEventListener("abort", abort);
    await disconnect(client);
  }
}

const abortedError = (signal: AbortSignal): PgTaskError =>
  new PgTaskError("START_ABORTED", "pg-task was stopped before it was started", { cause: signal.reason });

function serviceOptions(options: StartOptions): ServiceOptions {
  checkOptions(options, startChecks, "an option of start");
  if (typeof options.embedded === "object") checkOptions(options.embedded, embeddedChecks, "an option of embedded");
  const { config, embedded = false, logger, signals = false } = options;
  const content = contentOf(options);
  refuseSecondServer(options);
  const cwd = process.cwd();
  const source = { file: typeof config === "string" ? config : undefined, content, cwd, env: process.env };
  const { data = defaultDataDirectory, port } = typeof embedded === "object" ? embedded : {};
  return {
    source,
    read: readConfiguration,
    embedded:
      embedded === false ? null : { dataDirectory: () => resolveDataDirectory(data, cwd, "embedded.data"), port },
    openLog: (level) => logOf(logger, level),
    handlesSignals: signals,
    defaults: defaultsFor(logger),
    noServerRemedy: "set url in the file, DATABASE_URL or PG* variables; or give start embedded: true",
  };
}

/**
 * libpq's default would be tried for ever if the url is a variable that is not set.
 *
 * @throws PgTaskError of the family CONFIG; CONFIG_MISSING if nothing names a server
 */
async function readConfiguration(options: LoadOptions): Promise<ExplainedConfiguration> {
  const explained = await explainConfiguration({ ...options, byProgram: true });
  const { controlFrom, configuration } = explained;
  const isNamed = controlFrom !== "libpq's defaults" || configuration.file !== null || options.inUse !== undefined;
  if (isNamed) return explained;
  throw new PgTaskError(
    "CONFIG_MISSING",
    "no server configured: give start a url, or a config with url, set DATABASE_URL or PG* variables, or give embedded: true",
  );
}

function logOf(logger: Logger | false | undefined, level: string): OpenLog | Promise<OpenLog> {
  if (logger === undefined) return openLog(level);
  return logger === false ? noLog() : logTo(logger, level);
}

interface GivenServer extends Pick<ConfigOptions, "config" | "embedded"> {
  readonly url?: string | undefined;
}

/** A URL in a file is found when the file is read. */
function refuseSecondServer({ config, url, embedded = false }: GivenServer): void {
  if (embedded === false) return;
  const hasOwnUrl = typeof config === "object" && !isArray(config) && config.url !== undefined;
  if (url === undefined && !hasOwnUrl) return;
  throw new PgTaskError(
    "CONFIG_CONFLICT",
    `${url === undefined ? "config.url" : "url"} names a server, and embedded starts another one: remove one of the two`,
  );
}

function contentOf({ config, url }: GivenServer): unknown {
  if (url === undefined) return typeof config === "string" ? undefined : config;
  if (config === undefined) return { url };
  if (typeof config === "string") {
    throw new PgTaskError(
      "CONFIG_CONFLICT",
      `expected url or the path of a file as config, got both: remove url, or write it into ${config}`,
    );
  }
  if (isArray(config)) {
    throw new PgTaskError(
      "CONFIG_CONFLICT",
      'expected url beside a config that is an object, got an array of entries: give them as { "pg_task.json": [ … ] }',
    );
  }
  if (config.url === undefined) return { ...config, url };
  throw new PgTaskError("CONFIG_CONFLICT", "expected url or config.url, got both: remove one of the two");
}

/** The same as `Array.isArray`, which does not recognize readonly arrays. */
const isArray = (value: object): value is readonly unknown[] => Array.isArray(value);

/** The level of the caller's logger is the default of `pg_conf.log`, so that lines that it drops are not made. */
function defaultsFor(logger: Logger | false | undefined): LoadOptions["defaults"] {
  if (logger === undefined) return {};
  if (logger === false) return { "pg_conf.log": "silent" };
  const level = logLevels.find((each) => each === logger.level);
  return level === undefined ? {} : { "pg_conf.log": level };
}
