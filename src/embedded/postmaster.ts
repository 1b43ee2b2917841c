import { setTimeout as sleep } from "node:timers/promises";
import type { Log } from "../shared/log.js";
import { PgTaskError } from "../shared/errors.js";
import type { Binaries } from "./binaries/usableBinaries.js";
import { run, type Account } from "./runCommand.js";
import { nameFor } from "./data/dataDirectory.js";
import { describeEnding, startGuarded, type GuardedProcess } from "./guardedProcess.js";
import { readLockFile } from "./data/lockFile.js";
import { createServerLog, type ServerLog } from "./serverLog.js";
import { settingArguments, type ServerSettings } from "./serverSettings.js";

/** A server that takes connections. */
export interface Postmaster {
  readonly pid: number;
  /** How it ended, with its last words. */
  readonly ended: Promise<string>;
  stop(): Promise<void>;
}

/** Why a server did not start where another attempt may do better. */
export type Obstacle = "data held" | "port taken" | "memory held";

export interface PostmasterOptions {
  readonly binaries: Binaries;
  readonly account: Account | null;
  readonly dataDirectory: string;
  readonly port: number;
  readonly settings: ServerSettings;
  /** Process id in a stale lock file, which belongs to something else by now. */
  readonly stalePid: number | null;
  /** How long it may be silent while it starts, in ms; a server that recovers reports every 10 s. */
  readonly silenceLimitMs: number;
  readonly log: Log;
}

const obstacles: readonly (readonly [RegExp, Obstacle])[] = [
  [/lock file "postmaster\.pid" (already exists|is empty)|bogus data in lock file/, "data held"],
  [/could not bind .*Address already in use/, "port taken"],
  [/pre-existing shared memory block/, "memory held"],
];

const lookEveryMs = 20;
/** A fast shutdown that takes longer is made an immediate one: the next start recovers. */
const fastShutdownLimitMs = 60_000;

/** @throws PgTaskError EMBEDDED_FAILED with the server's last words. */
export async function startPostmaster(options: PostmasterOptions): Promise<Postmaster | Obstacle> {
  const words = createServerLog(options.log);
  const { account, dataDirectory, stalePid } = options;
  const server = await startGuarded(
    options.binaries.postgres,
    [
      "-D",
      await nameFor(account, dataDirectory),
      ...settingArguments(options.port, options.settings),
    ],
    {
      directory: dataDirectory,
      account,
      // A lock file of its grandparent's is one that PostgreSQL itself takes for stale.
      environment: stalePid === null ? {} : { PG_GRANDPARENT_PID: String(stalePid) },
      onLine: words.take,
    },
  );
  const ended = server.ended.then(
    (ending) => `${describeEnding(ending)}; its last words: ${words.lastWords()}`,
  );
  const outcome = await Promise.race([ended, isReady(server, words, options)]);
  if (outcome === "ready") return { pid: server.pid, ended, stop: stopper(server, words, options) };
  if (outcome === "silent") {
    server.signal("SIGQUIT");
    await server.ended;
    throw failure(`it was not ready, and silent for ${options.silenceLimitMs} ms`, words);
  }
  const obstacle = obstacles.find(([pattern]) => words.says(pattern));
  if (obstacle !== undefined) return obstacle[1];
  throw new PgTaskError("EMBEDDED_FAILED", `the embedded server did not start: ${outcome}`);
}

function failure(why: string, words: ServerLog): PgTaskError {
  return new PgTaskError(
    "EMBEDDED_FAILED",
    `the embedded server did not start: ${why}; its last words: ${words.lastWords()}`,
  );
}

async function isReady(
  server: GuardedProcess,
  words: ServerLog,
  { dataDirectory, silenceLimitMs }: PostmasterOptions,
): Promise<"ready" | "silent"> {
  const watch = { over: false };
  void server.ended.then(() => (watch.over = true));
  while (!watch.over) {
    const lockFile = await readLockFile(dataDirectory);
    if (lockFile?.pid === server.pid && lockFile.status === "ready") return "ready";
    if (words.silenceMs() > silenceLimitMs) return "silent";
    await sleep(lookEveryMs);
  }
  return await new Promise<never>(() => {});
}

function stopper(
  server: GuardedProcess,
  words: ServerLog,
  options: PostmasterOptions,
): () => Promise<void> {
  let stopped: Promise<void> | undefined;
  return () => (stopped ??= stop(server, words, options));
}

async function stop(
  server: GuardedProcess,
  words: ServerLog,
  { binaries, dataDirectory, log }: PostmasterOptions,
): Promise<void> {
  words.calm();
  if (process.platform === "win32") {
    await run(binaries.pgCtl, ["stop", "--mode=fast", "-D", dataDirectory], null);
  } else {
    server.signal("SIGINT");
  }
  const timer = setTimeout(() => {
    log.warn(
      `the embedded server is still there after ${fastShutdownLimitMs} ms: ending it at once`,
    );
    server.signal("SIGQUIT");
  }, fastShutdownLimitMs);
  await server.ended;
  clearTimeout(timer);
}
