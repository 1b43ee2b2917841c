import { sleep } from "../../shared/backoff.js";
import { ConnectionStringError, ConnectionProblem } from "../../shared/postgres/errors.js";
import { PgTaskError } from "../../shared/errors.js";
import { applicationNames } from "../../shared/postgres/applicationNames.js";
import { isOwnerSql } from "../../shared/postgres/backendIdentity.js";
import { omitUndefined } from "../../shared/omitUndefined.js";
import { onlyServer, serversOf, type TargetServer } from "../../shared/postgres/target/target.js";
import type { RemoteProcess, RemoteProof, RemoteRunState } from "../../shared/ipc/run.js";
import { maxSendingSilenceMs, maxSilenceMs } from "../../shared/tuning.js";
import type { ProtocolConnection } from "../../shared/postgres/protocol/connection.js";
import { literal } from "../../shared/postgres/quoting.js";
import { connectRemote, resolveAddresses, type RemoteConnection } from "./connectRemote.js";
import { ServerFull, type ConnectionPermits, ManagerServer } from "./managerServer.js";
import { LoginRefused } from "../../shared/postgres/auth/login.js";
import { fence, readLedgerState } from "./remoteLedger.sql.js";
import { resolveRemote, type RemoteContext, type RemoteTarget } from "./resolveRemoteTarget.js";
import { timeoutSignal } from "../../shared/timeoutSignal.js";

const pauseMs = 500;
const answerMs = 10_000;
/** A fence asks several servers in turn, of which some may not answer, so it has more time, and each has less. */
const fenceAnswerMs = 30_000;
const maxConnectMs = 3_000;

/**
 * Bounds, in ms, of the silence after which a run's server is asked about it. It doubles with each question, and starts
 * again at the minimum when data has arrived.
 */
const minQueryIntervalMs = 1_000;
const maxQueryIntervalMs = 30_000;

const answerLimit = 1 << 16;

/** The server is unreachable, refuses the connection or does not answer. */
const expectedErrors = [ConnectionProblem, ConnectionStringError, ServerFull, LoginRefused, PgTaskError];

function throwIfUnexpected(error: unknown, signal: AbortSignal): void {
  if (!signal.aborted && !expectedErrors.some((kind) => error instanceof kind)) throw error;
}

interface ProcessQueryOptions {
  readonly managerServer: ManagerServer;
  readonly signal: AbortSignal;
}

/** Asks repeatedly until a run whose connection was lost has ended. Returns null if `signal` was aborted first. */
export async function waitForEnd(
  target: RemoteTarget,
  process: RemoteProcess,
  options: ProcessQueryOptions,
): Promise<"committed" | "gone" | null> {
  const { signal } = options;
  while (!signal.aborted) {
    try {
      const state = await readState(target, process, options);
      if (state !== "running" && state !== null) return state;
    } catch (error) {
      throwIfUnexpected(error, signal);
    }
    await sleep(pauseMs, signal);
  }
  return null;
}

/** Asks once what has become of a remote run. Returns null if its server did not say. */
export async function findRemoteProcess(
  remote: string,
  process: RemoteProcess,
  context: RemoteContext,
  permits: ConnectionPermits,
): Promise<RemoteRunState | null> {
  const signal = timeoutSignal(process.proof === undefined ? answerMs : fenceAnswerMs);
  try {
    const { user } = { ...context.managerTarget, ...process.proof };
    const target = await resolveRemote(remote, { ...context, managerTarget: { ...context.managerTarget, user } });
    const { host, port } = context.managerTarget;
    const resolved = await resolveAddresses({ host, port }, signal);
    const addresses = resolved.map(({ address }) => address);
    const managerServer = new ManagerServer(permits, { addresses, port, startedAt: null });
    return await readState(target, process, { managerServer, signal });
  } catch (error) {
    throwIfUnexpected(error, signal);
    return null;
  }
}

async function readState(
  target: RemoteTarget,
  process: RemoteProcess,
  options: ProcessQueryOptions,
): Promise<RemoteRunState | null> {
  const { proof } = process;
  if (proof === undefined) {
    return await onServer({ target, server: findServer(target, process), process }, options, presence);
  }
  const connectTimeoutMs = Math.min(target.connectTimeoutMs || maxConnectMs, maxConnectMs);
  const own = ownServer(target, process);
  let problem: unknown = null;
  for (const server of own === null ? serversOf(target) : [own, ...serversOf(target)]) {
    try {
      const state = await onServer(
        { target: { ...target, connectTimeoutMs }, server, process },
        options,
        (query, { wire, known }) => fenceRun(query, wire, { known, proof }),
      );
      if (state !== null) return state;
    } catch (error) {
      throwIfUnexpected(error, options.signal);
      problem = error;
    }
  }
  if (problem !== null) throw problem;
  return null;
}

const presence = async (query: QueryBackend): Promise<RemoteRunState> =>
  (await query("pid")) === null ? "gone" : "running";

/**
 * Ends what is left of a run and fences it. A replica that has taken over knows the run by its copy of the ledger.
 * Returns null if this is another server, or one that cannot write.
 */
async function fenceRun(
  query: QueryBackend,
  wire: ProtocolConnection,
  { known, proof }: { readonly known: RemoteConnection["known"]; readonly proof: RemoteProof },
): Promise<RemoteRunState | null> {
  const state = await readLedgerState(wire, known.obstacle);
  if (state.kind !== "found") return null;
  // If it was dropped and created again, a run on the same server may have recorded the key of the old one.
  if (state.ledger.key !== proof.ledger && known.serverStartedAt !== proof.serverStart) return null;
  // A commit that waits for standbys is not interrupted: it would end without them.
  await query(
    "CASE WHEN wait_event OPERATOR(pg_catalog.=) 'SyncRep' THEN false ELSE pg_catalog.pg_terminate_backend(pid) END",
  );
  const committed = await fence(wire, state.ledger, proof);
  if (committed === null) return null;
  // What is not wrapped in a transaction may still be running.
  return committed ? "committed" : await presence(query);
}

/**
 * Watches a run's connection, because a half-open one never reports that it is closed. After a silence, asks the server
 * what the backend is doing. Behind a pooler, which may run the task in another backend, it is not watched. Returns
 * true if the connection is half-open, false if `signal` was aborted or it is not watched.
 */
export async function waitUntilHalfOpen(
  target: RemoteTarget,
  { wire, process }: RemoteConnection,
  options: ProcessQueryOptions,
): Promise<boolean> {
  if (wire.pid !== process.pid) return false;
  let queryMs = minQueryIntervalMs;
  while (await sleep(queryMs, options.signal)) {
    const silentMs = await wire.silentMs();
    if (silentMs < queryMs) queryMs = minQueryIntervalMs;
    else {
      const isStillSilent = async (): Promise<boolean> => (await wire.silentMs()) >= silentMs;
      if ((await isHalfOpen(target, process, isStillSilent, options)) === true) {
        if (await isStillSilent()) return true;
      } else queryMs = Math.min(2 * queryMs, maxQueryIntervalMs);
    }
  }
  return false;
}

/**
 * Asks the server of a silent run, over another connection, whether its backend is gone or waits for its client. If it
 * waits although nothing arrives, the connection is cut, and the backend is terminated. Returns true if it was waiting
 * or is gone, false if it works, null if the server did not answer.
 */
async function isHalfOpen(
  target: RemoteTarget,
  process: RemoteProcess,
  isStillSilent: () => Promise<boolean>,
  options: ProcessQueryOptions,
): Promise<boolean | null> {
  const signal = timeoutSignal(answerMs + maxSendingSilenceMs, options.signal);
  try {
    const server = findServer(target, process);
    return await onServer({ target, server, process }, { ...options, signal }, async (query) => {
      const before = await query(waitingSinceSql);
      if (before === null) return true;
      const waitMs = before.startsWith("sending") ? maxSendingSilenceMs : maxSilenceMs;
      if (before === "" || !(await sleep(waitMs, signal))) return false;
      const now = await query(waitingSinceSql);
      if (now === null) return true;
      if (now !== before || !(await isStillSilent())) return false;
      await query("pg_catalog.pg_terminate_backend(pid)");
      return true;
    });
  } catch (error) {
    throwIfUnexpected(error, signal);
    return null;
  }
}

const waitingSinceSql =
  "CASE WHEN state OPERATOR(pg_catalog.~~) 'idle%' THEN pg_catalog.concat('idle ', state_change) " +
  "WHEN wait_event OPERATOR(pg_catalog.=) 'ClientWrite' THEN pg_catalog.concat('sending ', state_change) END";

/** Evaluates an SQL expression over the backend's row in pg_stat_activity: null if it is gone, "" for NULL. */
type QueryBackend = (expression: string) => Promise<string | null>;

interface RunPlace {
  readonly target: RemoteTarget;
  readonly server: TargetServer;
  readonly process: RemoteProcess;
}

async function onServer<Result>(
  { target, server, process }: RunPlace,
  { managerServer, signal }: ProcessQueryOptions,
  act: (query: QueryBackend, connection: RemoteConnection) => Promise<Result>,
): Promise<Result> {
  const connection = await connectRemote(
    { ...onlyServer(target, server), sessionAttributes: "any" },
    { applicationName: applicationNames.remoteWatch, messageLimit: answerLimit, managerServer, signal },
  );
  const { wire } = connection;
  const onAbort = (): void => void wire.close();
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await act(async (expression) => {
      const answer = await wire.query(
        `SELECT ${expression} FROM pg_catalog.pg_stat_activity AS activity WHERE ` +
          `activity.pid OPERATOR(pg_catalog.=) ${process.pid} AND ` +
          isOwnerSql("activity", literal(process.owner)),
      );
      if (answer.error !== null) throw new LoginRefused(answer.error);
      const [row] = answer.rows;
      return row === undefined ? null : (row[0] ?? "");
    }, connection);
  } finally {
    signal.removeEventListener("abort", onAbort);
    await wire.close();
  }
}

/**
 * Finds the run's server among the target's. A name may have several addresses, so it gets the one that the run used.
 */
function findServer(target: RemoteTarget, process: RemoteProcess): TargetServer {
  const server = ownServer(target, process);
  if (server === null) throw new ConnectionProblem("the connection string no longer contains the server");
  return server;
}

function ownServer(target: RemoteTarget, { host, address, port }: RemoteProcess): TargetServer | null {
  const server = serversOf(target).find(
    (each) => each.port === port && (each.host === host || each.address === address),
  );
  return server === undefined ? null : { ...server, host, ...omitUndefined({ address: address ?? undefined }) };
}
