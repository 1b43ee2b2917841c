import { sleep } from "../../shared/backoff.js";
import { ConnectionStringError } from "../../shared/postgres/connectionString/error.js";
import { PgTaskError } from "../../shared/errors.js";
import { ownerSql } from "../../shared/postgres/backendIdentity.js";
import type { RemoteProcess } from "../../shared/ipc/messages.js";
import { literal } from "../../shared/postgres/quoting.js";
import { connectRemote, placesOf } from "./connectRemote.js";
import { ServerFull, ManagerServer, type ConnectionPermits } from "./managerServerLimit.js";
import { LoginRefused } from "../../shared/postgres/auth/login.js";
import { ConnectionProblem } from "../../shared/postgres/errors.js";
import { resolveRemote } from "./resolveRemoteTarget.js";
import type { RemoteServer, RemoteTarget } from "./remoteTarget.js";
import type { RemoteContext } from "./connectionOptions.js";

/** How often the server is asked, in ms. */
const pauseMs = 500;
/** How long one question may take, in ms. */
const answerMs = 10_000;

/** How long a process has to wait for us until it is taken for one that is cut off, in ms. */
const stillMs = 400;

/** Largest message of the answer, in bytes. */
const messageLimit = 1 << 16;

/** Why a server could not be asked, or did not answer. */
const problems = [ConnectionProblem, ConnectionStringError, ServerFull, LoginRefused, PgTaskError];

/** By what, and for how long, a server is asked. */
interface Asking {
  readonly ownServer: ManagerServer;
  readonly signal: AbortSignal;
}

/**
 * Resolves when the server says that the process of a lost connection is gone, so that what it ran
 * has no effect any more that it has not had; or on abort. While the server cannot be asked, or may
 * not say, that is not known.
 *
 * @returns whether it is gone
 */
export async function awaitGone(
  target: RemoteTarget,
  place: RemoteProcess,
  { ownServer, signal }: Asking,
): Promise<boolean> {
  while (!signal.aborted) {
    try {
      if (await isGone(target, place, { ownServer, signal })) return true;
    } catch (error) {
      if (!signal.aborted && !problems.some((kind) => error instanceof kind)) throw error;
    }
    await sleep(pauseMs, signal);
  }
  return false;
}

/**
 * Asks once, by the task's own connection string, whether the process is gone; null when the server
 * cannot be asked.
 */
export async function findRemoteProcess(
  remote: string,
  place: RemoteProcess,
  context: RemoteContext,
  desk: ConnectionPermits,
): Promise<boolean | null> {
  const signal = AbortSignal.timeout(answerMs);
  try {
    const target = await resolveRemote(remote, context);
    const { host, port } = context.own;
    const own = await placesOf({ host, port, address: null }, signal);
    const addresses = own.map(({ address }) => address);
    const ownServer = new ManagerServer(desk, { addresses, port, started: null });
    return await isGone(target, place, { ownServer, signal });
  } catch (error) {
    if (!signal.aborted && !problems.some((kind) => error instanceof kind)) throw error;
    return null;
  }
}

async function isGone(
  target: RemoteTarget,
  place: RemoteProcess,
  { ownServer, signal }: Asking,
): Promise<boolean> {
  return await atServer(
    target,
    place,
    { ownServer, signal },
    async (ask) => (await ask("pid")) === null,
  );
}

/**
 * Asks the server of a run that says nothing, by a connection of its own, whether the run's process
 * is gone or waits for us, as one does whose answer has not arrived; then that one is ended.
 *
 * @returns null when the server cannot be asked
 */
export async function standsStill(
  target: RemoteTarget,
  place: RemoteProcess,
  { ownServer, signal }: Asking,
): Promise<boolean | null> {
  const limited = AbortSignal.any([signal, AbortSignal.timeout(answerMs)]);
  try {
    return await atServer(target, place, { ownServer, signal: limited }, async (ask) => {
      const idleSince = "CASE WHEN state OPERATOR(pg_catalog.~~) 'idle%' THEN state_change END";
      const before = await ask(idleSince);
      if (before === null) return true;
      if (before === "" || !(await sleep(stillMs, limited))) return false;
      const now = await ask(idleSince);
      if (now === null) return true;
      if (now !== before) return false;
      await ask("pg_catalog.pg_terminate_backend(pid)");
      return true;
    });
  } catch (error) {
    if (!limited.aborted && !problems.some((kind) => error instanceof kind)) throw error;
    return null;
  }
}

/** Reads an expression over the process's row in pg_stat_activity; null when it is gone, "" for NULL. */
type Ask = (expression: string) => Promise<string | null>;

async function atServer<Result>(
  target: RemoteTarget,
  place: RemoteProcess,
  { ownServer, signal }: Asking,
  act: (ask: Ask) => Promise<Result>,
): Promise<Result> {
  const { wire } = await connectRemote(
    { ...target, servers: [serverAt(target, place)], sessionAttributes: "any" },
    { applicationName: "pg_task", messageLimit, ownServer, signal },
  );
  const end = (): void => void wire.close();
  signal.addEventListener("abort", end, { once: true });
  try {
    return await act(async (expression) => {
      // One whose start may not be seen counts as there.
      const answer = await wire.ask(
        `SELECT ${expression} FROM pg_catalog.pg_stat_activity AS activity WHERE ` +
          `activity.pid OPERATOR(pg_catalog.=) ${place.pid} AND ` +
          `coalesce(${ownerSql("activity")} OPERATOR(pg_catalog.=) ${literal(place.owner)}, true)`,
      );
      if (answer.error !== null) throw new LoginRefused(answer.error);
      const [row] = answer.rows;
      return row === undefined ? null : (row[0] ?? "");
    });
  } finally {
    signal.removeEventListener("abort", end);
    await wire.close();
  }
}

/**
 * The one of the target's servers that was reached, at the address at which it was: a name may mean
 * others as well.
 *
 * @throws ConnectionProblem when the connection string does not name it any more
 */
function serverAt({ servers }: RemoteTarget, { host, address, port }: RemoteProcess): RemoteServer {
  const server = servers.find((each) => {
    const named = each.host === host || (each.host === "" && each.address === host);
    return each.port === port && (named || each.address === address);
  });
  if (server === undefined) {
    throw new ConnectionProblem("the connection string does not name the server any more");
  }
  return { ...server, host, address };
}
