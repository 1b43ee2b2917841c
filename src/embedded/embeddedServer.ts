import { setTimeout as sleep } from "node:timers/promises";
import { PgTaskError } from "../shared/errors.js";
import type { Log } from "../shared/log.js";
import { serverAccount } from "./serverAccount.js";
import { usableBinaries } from "./binaries/usableBinaries.js";
import { inspect, requireMajor, requireUsable } from "./data/dataDirectory.js";
import { awaitRelease } from "./data/lockFile.js";
import { runInitdbInto } from "./data/initdb.js";
import { installedPackage, type InstalledPackage } from "./binaries/installedPackage.js";
import { freePort, loopback, portTaken, requireFree, serverUrl } from "./port.js";
import {
  startPostmaster,
  type Postmaster,
  type PostmasterOptions,
  type StartFailure,
  type ServerSettings,
} from "./postmaster.js";

/** A PostgreSQL server that ends together with this process, even if this process is killed. */
export interface EmbeddedServer extends Postmaster {
  /** URL of the server: `postgresql://postgres@127.0.0.1:PORT/postgres`. */
  readonly url: string;
  readonly port: number;
  readonly dataDirectory: string;
}

export interface EmbeddedOptions {
  /** The data folder. It is created if it is missing, and existing data in it is kept. */
  readonly dataDirectory: string;
  /** The port of the server. By default, any free port is used. */
  readonly port?: number;
  /** Settings of the server for tests, with the names and values of postgresql.conf. Those of pg-task prevail. */
  readonly settings?: ServerSettings;
  readonly log: Log;
}

/** Properties of the machine. Tests replace them. */
export interface EmbeddedEnvironment {
  readonly installed: InstalledPackage;
  /** Folders in which copies of PostgreSQL's programs can be made. */
  readonly cacheFolders?: readonly string[];
  /** How long a starting server can go without logging anything, in ms. */
  readonly silenceLimitMs?: number;
}

/**
 * Starts the embedded server and waits until it accepts connections.
 *
 * @throws PgTaskError EMBEDDED_UNAVAILABLE, EMBEDDED_PORT_TAKEN, EMBEDDED_PORT_DENIED, EMBEDDED_DATA_IN_USE,
 * EMBEDDED_DATA_VERSION, EMBEDDED_DATA_UNWRITABLE, EMBEDDED_DATA_FOREIGN, EMBEDDED_DATA_DAMAGED,
 * EMBEDDED_SETTINGS_INVALID or EMBEDDED_FAILED
 */
export async function startEmbedded(options: EmbeddedOptions): Promise<EmbeddedServer> {
  return await startEmbeddedWith({ installed: await installedPackage() }, options);
}

const silenceLimitMs = 60_000;
/** How long to retry a start, in ms: the remains of a killed server may disappear, or a port be freed. */
const startRetryLimitMs = 30_000;
const retryMs = 50;

export async function startEmbeddedWith(
  environment: EmbeddedEnvironment,
  options: EmbeddedOptions,
): Promise<EmbeddedServer> {
  const { log, settings = {} } = options;
  const found = await inspect(options.dataDirectory);
  const account = await serverAccount(found.cluster?.owner ?? null);
  const binaries = await usableBinaries(environment.installed, account, environment.cacheFolders);
  requireMajor(found, binaries.major);
  await requireUsable(found);
  await awaitRelease(found.path, log);
  if (options.port !== undefined) await requireFree(options.port);
  let data = found;
  if (found.cluster === null) {
    log.info(`creating the data folder ${found.path} of the embedded server`);
    await runInitdbInto(found.path, { binaries, account, durable: settings["fsync"] !== "off", log });
    data = await inspect(found.path);
  }
  requireMajor(data, binaries.major);
  const { port, postmaster } = await attempt(options.port, {
    binaries,
    account,
    dataDirectory: data.path,
    settings,
    silenceLimitMs: environment.silenceLimitMs ?? silenceLimitMs,
    log,
  });
  log.warn(
    `any local user may connect to the embedded server on ${loopback}:${port} as superuser without a password (trust), and run programs as ${account?.name ?? "the user who started it"}`,
  );
  return { url: serverUrl(port), port, dataDirectory: data.path, ...postmaster };
}

async function attempt(
  givenPort: number | undefined,
  options: Omit<PostmasterOptions, "port" | "stalePid">,
): Promise<{ port: number; postmaster: Postmaster }> {
  const start = performance.now();
  for (;;) {
    const stalePid = await awaitRelease(options.dataDirectory, options.log);
    const port = givenPort ?? (await freePort());
    const postmaster = await startPostmaster({ ...options, port, stalePid });
    if (typeof postmaster !== "string") return { port, postmaster };
    if (postmaster === "port taken" && givenPort !== undefined) throw portTaken(port);
    if (performance.now() - start > startRetryLimitMs) throw startFailedError(options.dataDirectory, postmaster);
    await sleep(retryMs);
  }
}

function startFailedError(dataDirectory: string, failure: StartFailure): PgTaskError {
  if (failure === "port taken") {
    return new PgTaskError("EMBEDDED_PORT_TAKEN", "every free port was taken before it could be used: try again");
  }
  return new PgTaskError(
    "EMBEDDED_DATA_IN_USE",
    `the data folder ${dataDirectory} is in use: processes of an earlier, killed server still use it; end them, or give another data folder`,
  );
}
