import { setTimeout as sleep } from "node:timers/promises";
import { PgTaskError } from "../shared/errors.js";
import type { Log } from "../shared/log.js";
import { serverAccount } from "./serverAccount.js";
import { usableBinaries } from "./binaries/usableBinaries.js";
import { inspect, requireMajor, requireUsable, type DataDirectory } from "./data/dataDirectory.js";
import { awaitRelease } from "./data/awaitRelease.js";
import { initialise } from "./data/initdb.js";
import { installedPackage, type InstalledPackage } from "./binaries/installedPackage.js";
import { freePort, loopback, portTaken, requireFree } from "./port.js";
import {
  startPostmaster,
  type Obstacle,
  type Postmaster,
  type PostmasterOptions,
} from "./postmaster.js";
import { requireFreeSettings, type ServerSettings } from "./serverSettings.js";

/** A PostgreSQL server that ends with this process, however that ends. */
export interface EmbeddedServer {
  /** `postgresql://postgres@127.0.0.1:PORT/postgres`, works as it stands. */
  readonly url: string;
  readonly port: number;
  /** Absolute path. */
  readonly dataDirectory: string;
  /** Process id of the server. */
  readonly pid: number;
  /** Resolves when the server has ended, with how and with its last words. */
  readonly ended: Promise<string>;
  /** Fast shutdown; resolves when the server is gone. May be called again. */
  stop(): Promise<void>;
}

export interface EmbeddedOptions {
  /** Made when it is not there; its data is kept. */
  readonly dataDirectory: string;
  /** A free one when it is not given. */
  readonly port?: number;
  /** More settings for the server, as in postgresql.conf. */
  readonly settings?: ServerSettings;
  readonly log: Log;
}

/** What stands for the machine: tests give others. */
export interface EmbeddedEnvironment {
  readonly installed: InstalledPackage;
  /** Where copies of the programs may be kept. */
  readonly cachePlaces?: readonly string[];
  /** How long a starting server may be silent, in ms. */
  readonly silenceLimitMs?: number;
}

/**
 * Starts the embedded server and waits until it takes connections.
 *
 * @throws PgTaskError EMBEDDED_UNAVAILABLE, EMBEDDED_PORT_TAKEN, EMBEDDED_DATA_IN_USE,
 * EMBEDDED_DATA_VERSION, EMBEDDED_DATA_UNWRITABLE, EMBEDDED_DATA_FOREIGN, EMBEDDED_FAILED; and
 * CONFIG_CONFLICT for a setting that is the launcher's own.
 */
export async function startEmbedded(options: EmbeddedOptions): Promise<EmbeddedServer> {
  return await startEmbeddedWith({ installed: await installedPackage() }, options);
}

const silenceLimitMs = 60_000;
/** What is left of a server that was killed goes by itself, as does whoever came first to a port. */
const obstacleLimitMs = 30_000;
const nextAttemptMs = 50;

/** Like `startEmbedded`, with the surroundings given. */
export async function startEmbeddedWith(
  surroundings: EmbeddedEnvironment,
  options: EmbeddedOptions,
): Promise<EmbeddedServer> {
  const { log, settings = {} } = options;
  requireFreeSettings(settings);
  const found = await inspect(options.dataDirectory);
  const account = await serverAccount(found.cluster?.owner ?? null);
  const binaries = await usableBinaries(surroundings.installed, account, surroundings.cachePlaces);
  requireMajor(found, binaries.major);
  await requireUsable(found);
  await awaitRelease(found.path, log);
  if (options.port !== undefined) await requireFree(options.port);
  const data = await withCluster(found, async () => {
    log.info(`making the data folder ${found.path} of the embedded server`);
    const durable = settings["fsync"] !== "off";
    await initialise(found.path, { binaries, account, durable, log });
  });
  requireMajor(data, binaries.major);
  const { port, postmaster } = await attempt(options.port, {
    binaries,
    account,
    dataDirectory: data.path,
    settings,
    silenceLimitMs: surroundings.silenceLimitMs ?? silenceLimitMs,
    log,
  });
  log.warn(
    `any local user may enter the embedded server on ${loopback}:${port} as its superuser, without a password (trust), and run programs as ${account?.name ?? "the user who started it"}`,
  );
  return {
    url: `postgresql://postgres@${loopback}:${port}/postgres`,
    port,
    dataDirectory: data.path,
    ...postmaster,
  };
}

async function withCluster(
  found: DataDirectory,
  make: () => Promise<void>,
): Promise<DataDirectory> {
  if (found.cluster !== null) return found;
  await make();
  return await inspect(found.path);
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
    if (performance.now() - start > obstacleLimitMs) throw stuck(options.dataDirectory, postmaster);
    await sleep(nextAttemptMs);
  }
}

function stuck(dataDirectory: string, obstacle: Obstacle): PgTaskError {
  if (obstacle === "port taken") {
    return new PgTaskError(
      "EMBEDDED_PORT_TAKEN",
      "each port found free was taken at once: try again",
    );
  }
  return new PgTaskError(
    "EMBEDDED_DATA_IN_USE",
    `the data folder ${dataDirectory} is in use: processes of an earlier server, which was killed, still work on it; end them, or give another data folder`,
  );
}
