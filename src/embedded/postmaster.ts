import { setTimeout as sleep } from "node:timers/promises";
import type { Log } from "../shared/log.js";
import { PgTaskError } from "../shared/errors.js";
import type { Binaries } from "./binaries/usableBinaries.js";
import { run, type Account } from "./serverAccount.js";
import { pathFor } from "./data/dataDirectory.js";
import { portDenied, loopback } from "./port.js";
import { describeExit, startGuarded, type GuardedProcess } from "./guardedProcess.js";
import { readLockFile, holderSetting } from "./data/lockFile.js";
import { ServerLog } from "./serverLog.js";

export interface Postmaster {
  readonly pid: number;
  /** Resolves with the exit status, and what the log says about the end. */
  readonly ended: Promise<string>;
  /** Shuts the server down in PostgreSQL's fast mode. Can be called repeatedly. */
  stop(): Promise<void>;
}

/** Why a server did not start, if another attempt may succeed. */
export type StartFailure = "data held" | "port taken";

export interface PostmasterOptions {
  readonly binaries: Binaries;
  readonly account: Account | null;
  readonly dataDirectory: string;
  readonly port: number;
  readonly settings: ServerSettings;
  /** The process id in a stale lock file. Another process may have it by now. */
  readonly stalePid: number | null;
  /** How long a starting server can log nothing, in ms. One in recovery logs something every 10 s. */
  readonly silenceLimitMs: number;
  readonly log: Log;
}

const dataHeld =
  /lock file "postmaster\.pid" (already exists|is empty)|bogus data in lock file|pre-existing shared memory block/;

const pollMs = 20;
/** Time limit for a fast shutdown, in ms. After an immediate one, the next start has to perform crash recovery. */
const fastShutdownLimitMs = 60_000;

/** @throws PgTaskError if no other attempt can succeed, with the server's last log lines */
export async function startPostmaster(options: PostmasterOptions): Promise<Postmaster | StartFailure> {
  const serverLog = new ServerLog(options.log);
  const { account, dataDirectory, stalePid } = options;
  const server = await startGuarded(
    options.binaries.postgres,
    ["-D", await pathFor(account, dataDirectory), ...settingArguments(options.port, options.settings)],
    {
      directory: dataDirectory,
      account,
      // PostgreSQL considers a lock file stale if the file contains the process id of the server's grandparent.
      environment: stalePid === null ? {} : { PG_GRANDPARENT_PID: String(stalePid) },
      onLine: serverLog.take,
    },
  );
  let isRunning = false;
  const ended = server.ended.then((exit) => {
    const why = isRunning ? serverLog.explainEnd(server.pid) : `its last log lines: ${serverLog.lastLines()}`;
    return `${describeExit(exit)}; ${why}`;
  });
  const outcome = await Promise.race([ended, isReady(server, serverLog, options)]);
  if (outcome === "ready") {
    isRunning = true;
    let stopped: Promise<void> | undefined;
    return { pid: server.pid, ended, stop: () => (stopped ??= stop(server, serverLog, options)) };
  }
  if (outcome === "silent") {
    server.signal("SIGQUIT");
    await server.ended;
    const why = `it was not ready, and logged nothing for ${options.silenceLimitMs} ms; its last log lines: `;
    throw new PgTaskError("EMBEDDED_FAILED", `the embedded server did not start: ${why}${serverLog.lastLines()}`);
  }
  if (serverLog.matches(dataHeld)) return "data held";
  if (serverLog.matches(/could not bind .*Address already in use/)) return "port taken";
  throw refusedStart(outcome, serverLog, options);
}

/** The error for a server for which no other attempt can succeed. */
function refusedStart(outcome: string, serverLog: ServerLog, { dataDirectory, port }: PostmasterOptions): PgTaskError {
  // The server may know its data folder by another path (see `pathFor`).
  const withPath = (text: string): string => text.replaceAll("/proc/self/cwd", dataDirectory);
  if (serverLog.matches(/could not bind .*Permission denied/)) return portDenied(port);
  if (serverLog.matches(/^FATAL: +configuration file .* contains errors|invalid value for parameter/)) {
    return new PgTaskError(
      "EMBEDDED_SETTINGS_INVALID",
      `the embedded server refuses its settings: ${withPath(serverLog.allLines())}`,
    );
  }
  if (serverLog.matches(/pg_control|could not locate a valid checkpoint record|invalid checkpoint record/)) {
    return new PgTaskError(
      "EMBEDDED_DATA_DAMAGED",
      `the data folder ${dataDirectory} is damaged: ${withPath(serverLog.lastLines())}; restore it from a backup, or give another data folder`,
    );
  }
  return new PgTaskError("EMBEDDED_FAILED", `the embedded server did not start: ${withPath(outcome)}`);
}

async function isReady(
  server: GuardedProcess,
  serverLog: ServerLog,
  { dataDirectory, silenceLimitMs }: PostmasterOptions,
): Promise<"ready" | "silent"> {
  const state = { hasEnded: false };
  void server.ended.then(() => (state.hasEnded = true));
  while (!state.hasEnded) {
    const lockFile = await readLockFile(dataDirectory);
    if (lockFile?.pid === server.pid && lockFile.status === "ready") return "ready";
    if (serverLog.silenceMs() > silenceLimitMs) return "silent";
    await sleep(pollMs);
  }
  return await new Promise<never>(() => {});
}

async function stop(
  server: GuardedProcess,
  serverLog: ServerLog,
  { binaries, dataDirectory, log }: PostmasterOptions,
): Promise<void> {
  serverLog.expectShutdown();
  if (process.platform === "win32") {
    await run(binaries.pgCtl, ["stop", "--mode=fast", "-D", dataDirectory], null);
  } else {
    server.signal("SIGINT");
  }
  const timer = setTimeout(() => {
    log.warn(`the embedded server has not shut down after ${fastShutdownLimitMs} ms: ending it immediately`);
    server.signal("SIGQUIT");
  }, fastShutdownLimitMs);
  await server.ended;
  clearTimeout(timer);
}

export type ServerSettings = Readonly<Record<string, string | number>>;

/** The server's log becomes part of pg-task's log, which must not contain the SQL of tasks. */
const defaults: ServerSettings = { log_min_error_statement: "panic" };

export function settingArguments(port: number, settings: ServerSettings): string[] {
  const all = {
    ...defaults,
    ...settings,
    port,
    listen_addresses: loopback,
    // No Unix socket is used. Its path is limited to 107 bytes, and the path of the data folder may be longer.
    unix_socket_directories: "",
    log_destination: "stderr",
    logging_collector: "off",
    log_line_prefix: "[%p] ",
    [holderSetting]: process.pid,
  };
  return Object.entries(all).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
}
